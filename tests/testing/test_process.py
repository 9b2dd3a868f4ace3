"""What an embedded cluster does to the process that it runs in."""
import os
import subprocess
import sys
import textwrap

import pytest

from tests.support.embedded import ROOT

pytestmark = pytest.mark.embedded


def run(code, status=0):
    """What a fresh interpreter prints that runs `code`: (stdout, stderr)."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        universal_newlines=True,
        close_fds=True,
    )
    out, err = process.communicate()
    assert process.returncode == status, err
    return out.strip(), err.strip()


def test_without_the_wheel_the_error_says_what_to_install():
    out, err = run(
        """
        import sys
        sys.modules["confluent_kafka"] = None
        from kiel.exc import MissingDependencyError
        from kiel.testing import EmbeddedCluster
        try:
            EmbeddedCluster()
        except MissingDependencyError as error:
            print(error)
        """
    )
    assert "pip install 'kiel[testing]'" in out
    assert err == ""


def test_a_function_that_librdkafka_lacks_is_named_with_the_version_it_came_with():
    from kiel.exc import MissingDependencyError
    from kiel.testing import librdkafka

    class Function(object):
        def __init__(self, answer=None):
            self.answer = answer

        def __call__(self):
            return self.answer

    class Library(object):
        def __init__(self, version):
            for name in librdkafka.SIGNATURES:
                if name != "rd_kafka_mock_topic_delete":
                    setattr(self, name, Function())
            self.rd_kafka_version = Function(version)

    functions = librdkafka.Functions(Library(0x020600FF))
    with pytest.raises(MissingDependencyError) as caught:
        functions.mock_topic_delete(None, b"events")
    assert "rd_kafka_mock_topic_delete" in str(caught.value)
    assert "2.15.0" in str(caught.value) and "2.6.0" in str(caught.value)
    with pytest.raises(MissingDependencyError, match="2.6.0 or later.*1.9.2"):
        librdkafka.Functions(Library(0x010902FF))


wheel = pytest.mark.skipif("sys.version_info < (3,)", reason="confluent-kafka has no wheel for Python 2.7")


@wheel
def test_importing_needs_no_confluent_kafka():
    out, _ = run("import sys, kiel.testing; print('confluent_kafka' in sys.modules)")
    assert out == "False"


@wheel
def test_nothing_is_printed_and_no_thread_is_left():
    pytest.importorskip("confluent_kafka")
    out, err = run(
        """
        import os, socket, struct
        from kiel.testing import EmbeddedCluster

        def threads():
            return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

        EmbeddedCluster().close()
        before = threads()
        for _ in range(3):
            with EmbeddedCluster(brokers=3) as cluster:
                # An API that librdkafka logs an error about, before it hangs up.
                with socket.create_connection(("127.0.0.1", int(cluster.brokers[0].split(":")[1]))) as peer:
                    try:
                        peer.sendall(struct.pack(">ihhih", 10, 4, 0, 0, -1))
                        assert not peer.recv(1)
                    except ConnectionResetError:
                        pass
        print(threads() - before)
        """
    )
    assert (out, err) == ("0", "")


@wheel
def test_a_cluster_that_was_never_closed_ends_with_the_interpreter():
    pytest.importorskip("confluent_kafka")
    code = "from kiel.testing import EmbeddedCluster; print(len(EmbeddedCluster(2).brokers))"
    assert run(code) == ("2", "")


@wheel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_neither_use_nor_close_its_parents_cluster():
    pytest.importorskip("confluent_kafka")
    out, err = run(
        """
        import os, sys, warnings
        warnings.simplefilter("ignore")  # Python 3.12 and later warn of a fork beside threads
        from kiel.exc import UsageError
        from kiel.testing import EmbeddedCluster
        cluster = EmbeddedCluster()
        child = os.fork()
        if not child:
            try:
                cluster.create_topic("events")
            except UsageError:
                cluster.close()
                with EmbeddedCluster() as own:
                    own.create_topic("events")
                sys.exit(7)
        print(os.waitpid(child, 0)[1] >> 8)
        cluster.create_topic("events")
        cluster.close()
        """
    )
    assert out == "7"
    assert err == ""
