"""All messages that kiel declares, and strategies (hypothesis) that make values for their fields."""
import importlib
import pkgutil

from hypothesis import strategies as st

from kiel import protocol
from kiel.protocol import primitives, schema
from kiel.protocol.primitives import Array


def _whole(low, high):
    return st.integers(low, high)


VALUES = {
    primitives.Boolean: st.booleans(),
    primitives.Int8: _whole(-0x80, 0x7F),
    primitives.Int16: _whole(-0x8000, 0x7FFF),
    primitives.UInt16: _whole(0, 0xFFFF),
    primitives.Int32: _whole(-0x80000000, 0x7FFFFFFF),
    primitives.UInt32: _whole(0, 0xFFFFFFFF),
    primitives.Int64: _whole(-0x8000000000000000, 0x7FFFFFFFFFFFFFFF),
    primitives.Float64: st.floats(allow_nan=False),
    primitives.Uuid: st.binary(min_size=16, max_size=16),
    primitives.String: st.text(max_size=150),
    primitives.Bytes: st.binary(max_size=150),
    primitives.Records: st.binary(max_size=150),
}


def messages():
    """Every Request and Response class in kiel.protocol's modules, in a fixed order."""
    for module in pkgutil.iter_modules(protocol.__path__, protocol.__name__ + "."):
        importlib.import_module(module[1])
    classes = schema.Request.__subclasses__() + schema.Response.__subclasses__()
    ours = [cls for cls in classes if cls.__module__.startswith(protocol.__name__ + ".")]
    return sorted(ours, key=lambda cls: (cls.key, cls.__name__))


def by_name(part):
    """A test's id for a class or a version."""
    return getattr(part, "__name__", str(part))


def versions(cls):
    return range(cls.versions[0], cls.versions[1] + 1)


def messages_at_versions():
    """[(class, version)] for every version of every message."""
    return [(cls, version) for cls in messages() for version in versions(cls)]


def values_of(kind, version):
    """A strategy for the values of a type."""
    if isinstance(kind, Array):
        return st.lists(values_of(kind.of, version), max_size=3)
    if kind in VALUES:
        return VALUES[kind]
    return instances(kind, version)


def instances(cls, version):
    """A strategy for instances of a struct or message, with a value in every field that the version has."""
    fields = {}
    for field in cls.parts:
        if field.exists_at(version):
            values = values_of(field.kind, version)
            fields[field.name] = st.none() | values if field.nullable_at(version) else values
    return st.builds(cls, **fields)


def any_message():
    """A strategy for (an instance of any message, a version)."""

    def at_version(chosen):
        cls, version = chosen
        return st.tuples(instances(cls, version), st.just(version))

    return st.sampled_from(messages_at_versions()).flatmap(at_version)
