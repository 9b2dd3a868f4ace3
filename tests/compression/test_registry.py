import pytest

from kiel import compression, exc


@pytest.mark.parametrize("name, number", [("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_names_and_numbers(name, number):
    assert compression.number(name) == number
    assert compression.name(number) == name


def test_no_name_is_none():
    assert compression.number(None) == compression.NONE


@pytest.mark.parametrize("name", ["brotli", "GZIP", "", 1, b"\xff"])
def test_unknown_names(name):
    with pytest.raises(exc.ConfigurationError) as caught:
        compression.number(name)
    assert "gzip" in str(caught.value)


@pytest.mark.parametrize("number", [-1, 5, 6, 7, 8])
def test_unknown_numbers(number):
    for call in (
        lambda: compression.name(number),
        lambda: compression.check(number),
        lambda: compression.compress(number, b""),
        lambda: compression.decompress(number, b"", 10),
    ):
        with pytest.raises(exc.UnsupportedCodecError) as caught:
            call()
        assert str(number) in str(caught.value)


@pytest.mark.parametrize("number, name", [(2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_codecs_that_are_not_supported_yet_are_named(number, name):
    for call in (lambda: compression.compress(number, b""), lambda: compression.decompress(number, b"", 10)):
        with pytest.raises(exc.UnsupportedCodecError) as caught:
            call()
        assert name in str(caught.value)


def test_none():
    assert compression.compress(0, b"as it is") == b"as it is"
    assert compression.decompress(0, b"as it is", 8) == b"as it is"
    assert list(compression.pieces(0, b"as it is", 8, 3, 5)) == [b"it"]
    with pytest.raises(exc.ProtocolError):
        compression.decompress(0, b"as it is", 7)
    with pytest.raises(exc.ConfigurationError):
        compression.check(0, 5)
