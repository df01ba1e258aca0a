"""Apache Kafka from its Maven artifacts, made ready once for all runs on this machine.

The home is a cache folder outside the repository: the jars, a class-data archive (the start takes 1.5 s
instead of 6) and a formatted log folder to copy. A file lock lets any number of processes ask for it at
once; a half-made home is never seen.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.cache import cache_folder, locked

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = "4.3.1"
MISSING = "Java 17 and Maven (mvn), or Docker; or set SFD_TEST_BOOTSTRAP to the address of a Kafka for tests"
JVM_FLAGS = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData")
QUICK_FLAGS = ("-XX:TieredStopAtLevel=1",)  # a short-lived broker gains by it; with TLS it is ten times slower

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sfd-stream</groupId><artifactId>kafka-for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
      <exclusions>{exclusions}</exclusions>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version>
    </dependency>
  </dependencies>
</project>
"""
_EXCLUDED = ("connect-runtime", "connect-api", "connect-json", "connect-transforms")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_LOG4J = """rootLogger.level = WARN
rootLogger.appenderRef.out.ref = OUT
appender.out.type = Console
appender.out.name = OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %m (%c)%n
"""


class NoKafkaError(Exception):
    """No real broker can be had here; the text says what to install."""


def say(text: str) -> None:
    print(f"[kafka for tests] {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress, for a person who waits


def java_version() -> str:
    """What `java -version` says, or NoKafkaError where there is none or one below 17."""
    try:
        answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoKafkaError(f"no Java here: {MISSING}") from error
    text = answer.stderr + answer.stdout
    major = text.partition('version "')[2].partition('"')[0].partition(".")[0].partition("-")[0]
    if not major.isdigit() or int(major) < 17:
        raise NoKafkaError(f"Java {major} is too old: {MISSING}")
    return text


class KafkaHome:
    """Where the jars are, and how a broker's command line reads."""

    def __init__(self, folder: Path, java: str) -> None:
        self.folder = folder
        # An archive is good for one build of Java only.
        self.archive = folder / f"classes-{hashlib.sha256(java.encode()).hexdigest()[:12]}.jsa"
        self.libs = folder / "libs"
        self.formatted = folder / "formatted"

    def java(self, *arguments: str, flags: tuple[str, ...] = QUICK_FLAGS) -> list[str]:
        shared = [f"-XX:SharedArchiveFile={self.archive}", "-Xshare:auto"] if self.archive.exists() else []
        log = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        return ["java", *JVM_FLAGS, *flags, *shared, log, "-cp", f"{self.libs}/*", *arguments]

    def format(self, settings: Path, *arguments: str) -> None:
        """Formats the log folder that the settings file names. `arguments` may add SCRAM users."""
        command = ["format", "--standalone", "-t", new_cluster_id(), "-c", str(settings), *arguments]
        _run(self.java("kafka.tools.StorageTool", *command), "format a log folder")

    def copy_formatted(self, logs: Path) -> None:
        """A log folder of its own, with a cluster id of its own, without the second that formatting takes."""
        shutil.copytree(self.formatted, logs)
        meta = logs / "meta.properties"
        lines = meta.read_text().splitlines()
        renewed = [f"cluster.id={new_cluster_id()}" if line.startswith("cluster.id=") else line for line in lines]
        meta.write_text("\n".join(renewed) + "\n")

    def ready(self) -> bool:
        return self.libs.is_dir() and self.formatted.is_dir() and self.archive.exists()


def new_cluster_id() -> str:
    """A cluster id never begins with `-`: StorageTool would take it for an option."""
    return "k" + urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


def kafka_home(folder: Path | None = None) -> KafkaHome:
    """The home, fetched and prepared if this machine has never done so."""
    home = KafkaHome(folder or cache_folder() / f"kafka-{VERSION}", java_version())
    if home.ready():
        return home
    with locked(home.folder.parent / f"{home.folder.name}.lock"):
        if not home.libs.is_dir():
            _fetch_jars(home)
        (home.folder / "log4j2.properties").write_text(_LOG4J)
        if not home.formatted.is_dir():
            _format_template(home)
        if not home.archive.exists():
            _make_archive(home)
    return home


def _fetch_jars(home: KafkaHome) -> None:
    if shutil.which("mvn") is None:
        raise NoKafkaError(f"no Maven here: {MISSING}")
    say(f"fetching the jars of Apache Kafka {VERSION} (45 MB, once) into {home.folder}")
    home.folder.mkdir(parents=True, exist_ok=True)
    exclusions = "".join(
        f"<exclusion><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId></exclusion>"
        for name in _EXCLUDED
    )
    (home.folder / "pom.xml").write_text(_POM.format(version=VERSION, exclusions=exclusions))
    fresh = home.folder / "libs.new"
    shutil.rmtree(fresh, ignore_errors=True)
    command = ["mvn", "-B", "-q", "-f", str(home.folder / "pom.xml"), _COPY]
    _run([*command, "-DincludeScope=runtime", f"-DoutputDirectory={fresh}"], "fetch the jars")
    fresh.rename(home.libs)
    say(f"{len(list(home.libs.iterdir()))} jars fetched")


def _format_template(home: KafkaHome) -> None:
    fresh = home.folder / "formatted.new"
    shutil.rmtree(fresh, ignore_errors=True)
    settings = home.folder / "template.properties"
    write_properties(settings, broker_properties(port=19092, controller_port=19093, logs=fresh))
    home.format(settings)
    fresh.rename(home.formatted)


def _make_archive(home: KafkaHome) -> None:
    """One broker's life with the classes it loaded written down at its end."""
    from tests.support.kafka import LocalBroker

    say("writing the class archive (once)")
    fresh = home.archive.with_suffix(".new")
    broker = LocalBroker.start(home, flags=(*QUICK_FLAGS, f"-XX:ArchiveClassesAtExit={fresh}"))
    try:
        topic = broker.create_topic()
        broker.produce(topic, [b"one"])
        assert broker.terminate(), "the broker did not end on SIGTERM"
    finally:
        broker.close()
    if fresh.exists():
        fresh.rename(home.archive)
    else:  # no archive is slower, not wrong; an empty file would be a warning at each start
        say("Java wrote no class archive; brokers will start more slowly")


def _run(command: list[str], purpose: str) -> None:
    answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if answer.returncode != 0:
        tail = "\n".join(answer.stdout.splitlines()[-15:])
        raise NoKafkaError(f"could not {purpose} (exit {answer.returncode}):\n{tail}")


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))


def broker_properties(*, port: int, controller_port: int, logs: Path) -> dict[str, str]:
    """One small broker that is its own controller, with group and restart times short enough for tests."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "log.dirs": str(logs),
        **SMALL_BROKER,
    }


SMALL_BROKER = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "200",
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.cleaner.backoff.ms": "500",
    # A slow shared disk must not look like a broken broker.
    "log.flush.offset.checkpoint.interval.ms": "5000",
}
