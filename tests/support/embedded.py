"""An EmbeddedCluster on every interpreter: in this process, or in one that has confluent-kafka."""
import json
import os
import subprocess

from kiel import exc
from kiel.testing import EmbeddedCluster, SeenRequest, names
from kiel.testing.remote import COMMANDS
from tests.support import needs
from tests.support.process import OWN_GROUP

try:
    import confluent_kafka
except ImportError:
    confluent_kafka = None

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def embedded_cluster(brokers=1):
    """An EmbeddedCluster; where there is no confluent-kafka, one run by KIEL_SERVER_PYTHON (else python3)."""
    return EmbeddedCluster(brokers) if confluent_kafka else ClusterProcess(brokers)


class ClusterProcess(object):
    """`python -m kiel.testing`, with EmbeddedCluster's methods; it ends when this process does."""

    DISCONNECT = EmbeddedCluster.DISCONNECT

    def __init__(self, brokers=1):
        python = os.environ.get("KIEL_SERVER_PYTHON", "python3")
        self._process = subprocess.Popen(
            [python, "-m", "kiel.testing", "--brokers", str(brokers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=ROOT),
            universal_newlines=True,
            close_fds=True,
            **OWN_GROUP
        )
        line = self._process.stdout.readline()
        if not line:
            self.close()
            needs.missing("%s can't run an embedded cluster; set KIEL_SERVER_PYTHON" % python)
        started = json.loads(line)
        self.bootstrap = str(started["bootstrap"])
        self.brokers = [str(address) for address in started["brokers"]]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        if self._process is not None:
            process, self._process = self._process, None
            process.stdin.close()
            process.wait()
            process.stdout.close()

    def push_errors(self, api, errors, broker_id=None):
        codes = [names.error_code(error) for error in errors]
        self._call("push_errors", names.api_key(api), codes, broker_id)

    def clear_errors(self, api):
        self._call("clear_errors", names.api_key(api))

    def topic_error(self, topic, error):
        self._call("topic_error", topic, names.error_code(error))

    def set_api_versions(self, api, lowest, highest):
        self._call("set_api_versions", names.api_key(api), lowest, highest)

    def api_versions(self):
        return dict((int(key), tuple(versions)) for key, versions in self._call("api_versions").items())

    def requests(self, api=None):
        rows = self._call("requests", None if api is None else names.api_key(api))
        return [SeenRequest(*row) for row in rows]

    def __getattr__(self, name):
        if name not in COMMANDS:
            raise AttributeError(name)
        return lambda *args, **kwargs: self._call(name, *args, **kwargs)

    def _call(self, name, *args, **kwargs):
        if self._process is None:
            raise exc.UsageError("this cluster is closed")
        self._process.stdin.write(json.dumps({"call": name, "args": args, "kwargs": kwargs}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise exc.KielError("the embedded cluster's process ended with %r" % self._process.wait())
        answer = json.loads(line)
        if "error" in answer:
            raise getattr(exc, answer["error"], exc.KielError)(answer["message"])
        return answer["result"]
