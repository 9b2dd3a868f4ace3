"""Real Kafka servers (KRaft) on this machine, from the jars that Maven brings."""
import base64
import os
import random
import shutil
import socket
import time
import uuid

from tests.support import admin, maven, process

START_SECONDS = 60
# Small and quick to start; a server that lives for seconds gains nothing from the optimizing compiler.
JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class KafkaServers(object):
    """`brokers` servers of one cluster, each of them broker and controller, with ids from 1.

        with KafkaServers(brokers=3, config={"min.insync.replicas": 2}) as servers:
            servers.create_topic("events", partitions=4, replication=3)
            servers.kill(2)
            servers.start_broker(2)

    Ports stay the same over restarts. The servers end with the process that made them, however that ends, and
    their directories are removed.
    """

    def __init__(self, version=maven.KAFKA, brokers=1, config=None):
        self.version = version
        self.config = config or {}
        self._ports = dict(zip(range(1, brokers + 1), zip(*[iter(free_ports(2 * brokers))] * 2)))
        self._servers = {}

    @property
    def bootstrap(self):
        """["127.0.0.1:port", ...], a broker each."""
        return ["127.0.0.1:%d" % self.port(broker_id) for broker_id in sorted(self._ports)]

    def port(self, broker_id):
        return self._ports[broker_id][0]

    def start(self):
        try:
            for broker_id in self._ports:
                self._servers[broker_id] = process.Server("kiel-kafka-")
            self._lay_out()
            for broker_id in self._ports:
                self._launch(broker_id)
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """End all of them at once, and remove their directories."""
        for broker_id in list(self._servers):
            self._servers.pop(broker_id).close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc_info):
        self.stop()

    def kill(self, broker_id):
        """kill -9"""
        self._servers[broker_id].kill()

    def start_broker(self, broker_id):
        """Start one that was killed: it and all others that run are ready when this returns."""
        self._launch(broker_id)
        self.wait_until_ready()

    def pause(self, broker_id):
        """SIGSTOP: sockets stay open, nothing is answered."""
        self._servers[broker_id].pause()

    def resume(self, broker_id):
        """SIGCONT"""
        self._servers[broker_id].resume()

    def heal(self):
        """Have all brokers up again, whatever a test did to them."""
        for broker_id, server in self._servers.items():
            if server.paused:
                server.resume()
            if not server.running:
                self._launch(broker_id)
        self.wait_until_ready()

    def log(self, broker_id):
        """What the broker has logged (warnings and errors)."""
        return self._servers[broker_id].log()

    def create_topic(self, name, partitions=1, replication=1, config=None):
        """Create it, and wait until every broker that runs knows a leader for each of its partitions."""
        admin.create_topic(self._running_ports()[0], name, partitions, replication, config or {})
        admin.wait_for_partitions(self._running_ports(), name, partitions)

    def delete_topic(self, name):
        admin.delete_topic(self._running_ports()[0], name)
        admin.wait_for_partitions(self._running_ports(), name, 0)

    def create_partitions(self, name, total):
        """Give the topic more partitions, `total` in all."""
        admin.create_partitions(self._running_ports()[0], name, total)
        admin.wait_for_partitions(self._running_ports(), name, total)

    def delete_records(self, topic, partition, offset):
        """Drop the records before `offset`, as retention does, in a cluster of one broker."""
        admin.delete_records(self._running_ports()[0], topic, partition, offset)

    def tool(self, class_name, args, input=None, timeout=60):
        """Run one of Apache's tools with --bootstrap-server and `args`: its stdout as bytes.

        ProcessError if it fails, or isn't done in `timeout` seconds.
        """
        command = self._java(class_name) + ["--bootstrap-server", ",".join(self.bootstrap)] + list(args)
        return process.run(command, input, timeout)

    def wait_until_ready(self):
        """Wait until every broker that runs says that all those are there."""
        deadline = time.time() + START_SECONDS
        running = self._running()
        while not all(admin.brokers_known(self.port(broker_id)) >= len(running) for broker_id in running):
            ended = [broker_id for broker_id in running if not self._servers[broker_id].running]
            if ended or time.time() > deadline:
                what = "ended" if ended else "isn't ready after %d s" % START_SECONDS
                tails = [self.log(broker_id)[-4000:] for broker_id in ended or running]
                raise AssertionError("broker %s %s; its log ends:\n%s" % (ended or running, what, "\n".join(tails)))
            time.sleep(0.05)

    def _running(self):
        up = [broker_id for broker_id, server in self._servers.items() if server.running and not server.paused]
        return sorted(up)

    def _running_ports(self):
        return [self.port(broker_id) for broker_id in self._running()]

    def _launch(self, broker_id):
        command = self._java("kafka.Kafka") + [self._path(broker_id, "server.properties")]
        self._servers[broker_id].start(command)

    def _java(self, class_name):
        jars = os.path.join(maven.kafka_classpath(self.version), "*")
        return [maven.java()] + JVM + [QUIET, "-cp", jars, class_name]

    def _path(self, broker_id, *names):
        return os.path.join(self._servers[broker_id].directory, *names)

    def _lay_out(self):
        """Write each broker's settings, and format its storage."""
        cluster_id = random_id()
        for broker_id in self._ports:
            with open(self._path(broker_id, "server.properties"), "w") as target:
                target.write("".join("%s=%s\n" % item for item in sorted(self._settings(broker_id).items())))
        first = min(self._ports)
        format_ = ["format", "--cluster-id", cluster_id, "--config", self._path(first, "server.properties")]
        process.run(self._java("kafka.tools.StorageTool") + format_)
        for broker_id in set(self._ports) - {first}:
            # What the tool writes for the others, without a JVM each: the same but for two ids.
            shutil.copytree(self._path(first, "data"), self._path(broker_id, "data"))
            with open(self._path(broker_id, "data", "meta.properties"), "w") as target:
                parts = ("1", cluster_id, broker_id, random_id())
                target.write("version=%s\ncluster.id=%s\nnode.id=%s\ndirectory.id=%s\n" % parts)

    def _settings(self, broker_id):
        port, controller_port = self._ports[broker_id]
        copies = min(3, len(self._ports))
        voters = ["%d@127.0.0.1:%d" % (node, ports[1]) for node, ports in self._ports.items()]
        settings = {
            "process.roles": "broker,controller",
            "node.id": broker_id,
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d" % (port, controller_port),
            "advertised.listeners": "PLAINTEXT://127.0.0.1:%d" % port,
            "log.dirs": self._path(broker_id, "data"),
            # Tests write records with timestamps of long ago: else they are deleted whenever the broker looks.
            "log.retention.ms": -1,
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 3,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.num.partitions": 3,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min(2, copies),
            "share.coordinator.state.topic.num.partitions": 3,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": min(2, copies),
        }
        settings.update(self.config)
        return settings


def random_id():
    """Kafka's way of writing a UUID. It may not begin with a dash: tools would take it for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text


def free_ports(count):
    """Free ports, below those that outgoing connections get, so that a broker finds its own free again."""
    ports = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(20000, 32000)
        probe = socket.socket()
        try:
            probe.bind(("127.0.0.1", port))
        except socket.error:
            continue
        finally:
            probe.close()
        if port not in ports:
            ports.append(port)
    return ports
