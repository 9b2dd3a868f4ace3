"""Apache Kafka from Maven Central: downloaded once, kept in $KIEL_CACHE (else .cache in the repository)."""
import contextlib
import fcntl
import os
import shutil
import tempfile
import time

from tests.support import process

KAFKA = "4.4.0"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
TRIES, PAUSE_SECONDS, TRY_SECONDS = 3, 5, 900
POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kiel</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>%s</dependencies>
</project>
"""
DEPENDENCY = "<dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>"


def which(tool):
    """The path of a program on PATH, or None."""
    paths = [os.path.join(folder, tool) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)


def java():
    """The path of the java program (of JAVA_HOME, or on PATH), or None."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else which("java")


def lacking(version=KAFKA):
    """What is not on this machine for starting a Kafka, or None."""
    if java() is None:
        return "java is not on PATH"
    if which("mvn") is None and not os.path.isdir(_directory(version)):
        return "mvn (Maven) is not on PATH"
    return None


def clients_jar(version=KAFKA):
    """The path of kafka-clients' jar; its common/message/*.json are Kafka's message definitions."""
    return os.path.join(kafka_classpath(version), "kafka-clients-%s.jar" % version)


def kafka_classpath(version=KAFKA):
    """A directory with the jars of Kafka's server and tools."""
    directory = _directory(version)
    if not os.path.isdir(directory):
        with _lock():
            if not os.path.isdir(directory):
                _download(directory, version)
    return directory


def _cache():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.environ.get("KIEL_CACHE") or os.path.join(root, ".cache")


def _directory(version):
    return os.path.join(_cache(), "kafka-" + version)


@contextlib.contextmanager
def _lock():
    """One download at a time, of all processes that share the cache; it ends with the process."""
    if not os.path.isdir(_cache()):
        os.makedirs(_cache())
    with open(os.path.join(_cache(), "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _download(directory, version):
    """Have Maven fill a directory beside `directory`, and rename it when it is whole."""
    artifacts = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        # Kafka's jars bring no logger that slf4j finds: without this one a server that fails says nothing.
        ("org.slf4j", "slf4j-simple", "1.7.36"),
    ]
    part = tempfile.mkdtemp(prefix="part-", dir=_cache())
    try:
        pom, jars = os.path.join(part, "pom.xml"), os.path.join(part, "jars")
        with open(pom, "w") as target:
            target.write(POM % "".join(DEPENDENCY % artifact for artifact in artifacts))
        _maven(["-f", pom, COPY, "-DoutputDirectory=" + jars, "-DincludeScope=runtime"])
        os.rename(jars, directory)
    finally:
        shutil.rmtree(part)


def _maven(args):
    """Run Maven, and again if the network let it down."""
    for left in reversed(range(TRIES)):
        try:
            return process.run(["mvn", "--batch-mode", "--quiet"] + args, timeout=TRY_SECONDS)
        except process.ProcessError:
            if not left:
                raise
            time.sleep(PAUSE_SECONDS)
