"""Real brokers for tests and benchmarks: the first rung of a ladder that holds.

    SFD_TEST_BOOTSTRAP    a broker that is already there
    Docker                apache/kafka by testcontainers, where an engine answers
    Java 17 and Maven     Apache Kafka from its Maven artifacts (kafka_home.py)

Knows nothing of pytest: `with start_broker() as broker: ... broker.bootstrap`. A broker started here dies
with the process that started it, even by kill -9. Each topic gets a name of its own: any number of tests
share one broker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.kafka_home import (
    MISSING,
    QUICK_FLAGS,
    SMALL_BROKER,
    VERSION,
    KafkaHome,
    NoKafkaError,
    broker_properties,
    kafka_home,
    say,
    write_properties,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

START_TIMEOUT_S = 60.0
IMAGE = f"apache/kafka:{VERSION}"
# Runs a program that the kernel kills when its parent dies (a preexec_fn is unsafe beside other threads).
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9);"
    "os.getppid() == int(sys.argv[1]) or os._exit(9); os.execvp(sys.argv[2], sys.argv[2:])"
)


class Broker:
    """A broker's address, and what tests do to its topics. `close` ends what was started and nothing else."""

    kind = "given"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            # Tests provoke what it would complain of.
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 0}
            # With more than one request in flight the first may be refused by a leader that is not ready,
            # the second
            # taken, and the first then be called a duplicate: reported as delivered, without an offset,
            # and lost.
            settings["max.in.flight.requests.per.connection"] = 1
            # Silent: "coordinator load in progress" on a fresh broker is harmless.
            self._producer = Producer({**settings, "log_level": 0})
        return self._producer

    def create_topic(
        self, *, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None
    ) -> str:
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        wanted = NewTopic(name, partitions, 1, config=dict(config or {}))
        self._wait_for(lambda: self._created(wanted), f"a broker that takes {name}")
        self._wait_for(lambda: self.leaders_known(name), f"leaders of {name}")
        return name

    def _created(self, wanted: NewTopic) -> bool:
        """Not while the controller has fenced the only broker, whose heartbeat came late on a loaded machine."""
        try:
            self.admin.create_topics([wanted])[wanted.topic].result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                raise
            return False
        return True

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)
        self._wait_for(lambda: not self._exists(name), f"the end of {name}")

    def add_partitions(self, name: str, total: int) -> None:
        self.admin.create_partitions([NewPartitions(name, total)])[name].result(30)
        self._wait_for(lambda: self.leaders_known(name, partitions=total), f"partitions of {name}")
        self._producer = None  # an old one may not know them for minutes

    def delete_records(self, name: str, partition: int, below_offset: int) -> None:
        where = TopicPartition(name, partition, below_offset)
        self.admin.list_topics(name, timeout=10)  # a long-lived client is fenced after a broker's restart without it
        self.admin.delete_records([where])[where].result(30)

    def set_group(self, group: str, config: Mapping[str, str]) -> None:
        """What KIP-848 leaves to the broker: a group's session timeout and heartbeat."""
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()]
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        partition: int = 0,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Appends the values in order, each acknowledged before this returns."""
        producer = self.producer
        failures: list[object] = []

        def report(error: KafkaError | None, message: Message[Any, Any]) -> None:
            if error is not None or message.offset() is None:
                failures.append(error or "no offset")

        for value in values:
            producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=report,
                headers=list(headers) if headers else None,
            )
            if len(producer) > 50_000:
                producer.poll(0.1)
        left = producer.flush(60)
        assert not left, f"{left} messages to {topic} were not sent"
        assert not failures, f"{topic}: {failures[0]}"

    def end_offset(self, topic: str, partition: int = 0) -> int:
        where = TopicPartition(topic, partition)
        return int(self.admin.list_offsets({where: OffsetSpec.latest()})[where].result(30).offset)

    def leaders_known(self, name: str | None = None, *, partitions: int | None = None) -> bool:
        """Metadata may answer before partitions have leaders: only then is a broker of use."""
        metadata = self.admin.list_topics(name, timeout=5)
        for topic in metadata.topics.values():
            if topic.error is not None or not topic.partitions:
                return False
            if partitions is not None and len(topic.partitions) != partitions:
                return False
            if any(p.leader < 0 for p in topic.partitions.values()):
                return False
        return bool(metadata.brokers)

    def _exists(self, name: str) -> bool:
        return name in self.admin.list_topics(timeout=5).topics

    def _wait_for(self, condition: Any, what: str, timeout_s: float = START_TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(KafkaException):
                if condition():
                    return
            time.sleep(0.05)
        raise TimeoutError(f"waited {timeout_s:.0f} s for {what} at {self.bootstrap}")

    def kill(self) -> None:
        raise NotImplementedError(f"a {self.kind} broker is not ours to kill")

    def restart(self) -> None:
        raise NotImplementedError(f"a {self.kind} broker is not ours to restart")

    def close(self) -> None:
        self._admin = self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalBroker(Broker):
    """Apache Kafka on the local Java, in a temporary folder that goes with it."""

    kind = "local"

    def __init__(self, home: KafkaHome, folder: Path, port: int, flags: tuple[str, ...]) -> None:
        super().__init__(f"127.0.0.1:{port}")
        self._home = home
        self._folder = folder
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def start(
        cls,
        home: KafkaHome,
        *,
        properties: Mapping[str, str] | None = None,
        flags: tuple[str, ...] = QUICK_FLAGS,
    ) -> Self:
        """A broker that answers. `properties` are added to, or replace, those of one small broker."""
        for attempt in range(3):
            folder = Path(tempfile.mkdtemp(prefix="sfd-kafka-"))
            port, controller_port = free_ports(2)
            settings = broker_properties(port=port, controller_port=controller_port, logs=folder / "logs")
            write_properties(folder / "server.properties", {**settings, **(properties or {})})
            home.copy_formatted(folder / "logs")
            broker = cls(home, folder, port, flags)
            try:
                broker.restart()
            except NoKafkaError:
                log = broker.log()
                broker.close()
                if attempt == 2 or "Address already in use" not in log:
                    raise
            else:
                return broker
        raise AssertionError("unreachable")

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def log(self) -> str:
        path = self._folder / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def restart(self) -> None:
        """Starts it, after `kill` if it runs, on the same port and folder; waits for leaders."""
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """The clients are new: an old one may have lost its only broker for good (librdkafka's issue 5301)."""
        self.kill()
        self._admin = self._producer = None
        java = self._home.java("kafka.Kafka", str(self._folder / "server.properties"), flags=self._flags)
        with (self._folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _DIE_WITH_PARENT, str(os.getpid()), *java],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then end it
                cwd=self._folder,
            )

    def wait_until_ready(self) -> None:
        self._wait_for(self._answers, "the broker")

    def _answers(self) -> bool:
        process = self._process
        assert process is not None
        if process.poll() is not None:
            tail = "\n".join(self.log().splitlines()[-15:])
            raise NoKafkaError(f"Kafka ended with {process.returncode} at its start:\n{tail}")
        return self.leaders_known()

    def kill(self) -> None:
        """SIGKILL: no goodbye, nothing flushed."""
        self._end(signal.SIGKILL)

    def terminate(self) -> bool:
        """An orderly end; says whether it came within its time."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> bool:
        if self._process is None:
            return True
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            return False
        self._process = None
        return True

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing answers. On a loaded machine its threads stop some time later."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        process = Path(f"/proc/{self._process.pid}")
        self._wait_for(
            lambda: all(_state_of(task) in "TZX" for task in process.glob("task/*")), "a stop of its threads"
        )

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        super().close()
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class ContainerBroker(Broker):
    """The project's own image under Docker, on a host port that stays the same over restarts."""

    kind = "container"

    def __init__(self, bootstrap: str, container: Any) -> None:
        super().__init__(bootstrap)
        self._container = container

    @classmethod
    def start(cls, *, properties: Mapping[str, str] | None = None) -> Self:
        from testcontainers.core.container import DockerContainer

        (port,) = free_ports(1)
        settings = broker_properties(port=9092, controller_port=9093, logs=Path("/tmp/kraft-logs"))  # in the container
        # The host's port leads nowhere from within; there the broker talks to itself, as for every transaction.
        settings["listeners"] = "PLAINTEXT://0.0.0.0:9092,INSIDE://127.0.0.1:9094,CONTROLLER://127.0.0.1:9093"
        settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{port},INSIDE://127.0.0.1:9094"
        settings["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        settings["inter.broker.listener.name"] = "INSIDE"
        container = DockerContainer(IMAGE)
        container.ports[9092] = ("127.0.0.1", port)  # the loopback alone: with_bind_ports would take every address
        for key, value in {**settings, **(properties or {})}.items():
            container.with_env("KAFKA_" + key.replace("_", "__").replace(".", "_").upper(), value)
        container.start()
        broker = cls(f"127.0.0.1:{port}", container)
        try:
            broker._wait_for(broker.leaders_known, "the container's broker")
        except TimeoutError:
            broker.close()
            raise
        return broker

    def kill(self) -> None:
        self._container.get_wrapped_container().kill()

    def restart(self) -> None:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        if wrapped.status == "running":
            wrapped.kill()
        wrapped.start()
        self._wait_for(self.leaders_known, "the container's broker")

    def pause(self) -> None:
        self._container.get_wrapped_container().pause()

    def resume(self) -> None:
        self._container.get_wrapped_container().unpause()

    def close(self) -> None:
        super().close()
        self._container.stop()


def _state_of(task: Path) -> str:
    """The letter of /proc: T if it is stopped, X if it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def start_broker(*, properties: Mapping[str, str] | None = None, private: bool = False) -> Broker:
    """The first rung that holds, else NoKafkaError saying what to install.

    A `private` broker is always started here, so that it can be killed; `properties` are the broker's own.
    """
    given = os.environ.get("SFD_TEST_BOOTSTRAP")
    if given and not private and not properties:
        return Broker(given)
    if _docker_answers():
        try:
            return ContainerBroker.start(properties=properties)
        except Exception as error:  # noqa: BLE001 - whatever Docker lacks (the image, a port), Java may have
            say(f"Docker answers, but {IMAGE} does not start ({error}); trying the local Java")
    return LocalBroker.start(kafka_home(), properties=properties)


def _docker_answers() -> bool:
    """Asked on the bare socket: Docker's own library leaves one open when no engine is there."""
    scheme, _, where = (os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock").partition("://")
    unix = scheme == "unix"
    host, _, port = where.rpartition(":")
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as engine:
        engine.settimeout(2)
        try:
            engine.connect(where if unix else (host, int(port)))
            engine.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in engine.recv(64)
        except (OSError, ValueError):
            return False


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


__all__ = [
    "MISSING",
    "SMALL_BROKER",
    "Broker",
    "ContainerBroker",
    "LocalBroker",
    "NoKafkaError",
    "free_ports",
    "kafka_home",
    "start_broker",
]
