"""An EmbeddedCluster for other processes: ``python -m kiel.testing`` takes JSON lines on stdin."""
import argparse
import json
import sys

from kiel.exc import ConfigurationError, KielError
from kiel.testing.embedded import EmbeddedCluster

COMMANDS = (
    "create_topic",
    "delete_topic",
    "delete_records",
    "topic_error",
    "set_leader",
    "broker_down",
    "broker_up",
    "set_rtt",
    "set_coordinator",
    "push_errors",
    "clear_errors",
    "api_versions",
    "set_api_versions",
    "track_requests",
    "clear_requests",
    "requests",
)


def answer(cluster, line):
    """What to answer to one line: {"result": ...} or {"error": the class's name, "message": ...}."""
    try:
        command = json.loads(line)
        if not isinstance(command, dict) or command.get("call") not in COMMANDS:
            raise ConfigurationError('a command looks like {"call": "create_topic", "args": ["events", 3]}')
        method = getattr(cluster, command["call"])
        return {"result": method(*command.get("args", []), **command.get("kwargs", {}))}
    except (KielError, TypeError, ValueError) as error:
        return {"error": type(error).__name__, "message": str(error)}


def main(arguments=None):
    """Run a cluster until stdin closes, so that it never outlives whoever started it."""
    parser = argparse.ArgumentParser(prog="python -m kiel.testing", description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers (default 1)")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create it; may be repeated"
    )
    options = parser.parse_args(arguments)
    try:
        with EmbeddedCluster(options.brokers) as cluster:
            for topic in options.topic:
                name, _, partitions = topic.partition(":")
                cluster.create_topic(name, int(partitions or 1))
            _say({"bootstrap": cluster.bootstrap, "brokers": cluster.brokers})
            for line in iter(sys.stdin.readline, ""):
                _say(answer(cluster, line))
    except KeyboardInterrupt:
        return 130
    except (KielError, ValueError) as error:
        parser.exit(1, "%s: %s\n" % (parser.prog, error))


def _say(what):
    sys.stdout.write(json.dumps(what, sort_keys=True) + "\n")
    sys.stdout.flush()
