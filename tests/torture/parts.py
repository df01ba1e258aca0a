"""The real parts of a campaign: brokers, a store, and a proxy on every connection that a program makes to them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.support.azurite import AzuriteServer
from tests.support.fake_gcs import GcsServer
from tests.support.kafka import QUICK_FLAGS, LocalBroker, broker_properties, free_ports, write_properties
from tests.support.kafka_home import KafkaHome, kafka_home, new_cluster_id
from tests.support.proxy import ResettingProxy
from tests.support.seaweed import SeaweedServer

ROOM_BYTES = 256 * 2**20
"""Size of the file system under a store on disk. Filling it makes writes fail with ENOSPC."""

ALONE = {"broker.session.timeout.ms": "12000", "broker.heartbeat.interval.ms": "2000"}
"""A broker that is its own controller and is paused for longer than its session is fenced: then no partition has a
leader. Kafka 4.3.1 can lose the end of a transaction in that state, so that its offsets are never readable again, and
librdkafka may lose its only broker (docs/reliability.md). With this session pauses of 10 s fence nobody; a broker that
was killed takes some 12 s to come back."""

_CLUSTER = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "5000",
}


class Brokers:
    """One broker, or three that replicate each other. Each program has its own listener and proxy at each broker.

    The campaign itself and the brokers use a listener without a proxy (`direct`).
    """

    def __init__(self, nodes: list[LocalBroker], links: dict[str, list[ResettingProxy]]) -> None:
        self.nodes = nodes
        self.links = links

    @classmethod
    def start(cls, count: int, programs: Iterable[str], stack: contextlib.ExitStack, *, fencing: bool = False) -> Self:
        """`fencing`: pauses of a second fence a broker, the only one too."""
        home, names = kafka_home(), list(programs)
        controllers, cluster = free_ports(count), new_cluster_id()
        voters = ",".join(f"{place + 1}@127.0.0.1:{port}" for place, port in enumerate(controllers))
        nodes: list[LocalBroker] = []
        links: dict[str, list[ResettingProxy]] = {name: [] for name in names}
        for place in range(count):
            folder = Path(tempfile.mkdtemp(prefix="sfd-kafka-"))
            port, *inner = free_ports(1 + len(names))
            proxies = [stack.enter_context(ResettingProxy(target)) for target in inner]
            for name, proxy in zip(names, proxies, strict=True):
                links[name].append(proxy)
            settings = broker_properties(port=port, controller_port=controllers[place], logs=folder / "logs")
            settings |= _listeners(port, controllers[place], inner, [proxy.port for proxy in proxies])
            if count == 1 and not fencing:
                settings |= ALONE
            if count > 1:
                del settings["controller.quorum.bootstrap.servers"]
                settings |= {**_CLUSTER, "node.id": str(place + 1), "controller.quorum.voters": voters}
            write_properties(folder / "server.properties", settings)
            _format(home, folder, cluster if count > 1 else None)
            nodes.append(stack.enter_context(LocalBroker(home, folder, port, QUICK_FLAGS)))
        brokers = cls(nodes, links)
        brokers._start_all()
        return brokers

    def _start_all(self) -> None:
        """All at once: the first of three does not answer before a second one has started."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()

    @property
    def direct(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def first(self) -> LocalBroker:
        return self.nodes[0]

    def through_links(self, program: str) -> str:
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.links[program])

    def create_topic(self, name: str, partitions: int, **config: str) -> None:
        wanted = NewTopic(name, partitions, len(self.nodes), config={k.replace("_", "."): v for k, v in config.items()})
        self._patiently(lambda: self.first.admin.create_topics([wanted])[name].result(30))

    def add_partitions(self, name: str, total: int) -> None:
        self._patiently(lambda: self.first.add_partitions(name, total))

    @staticmethod
    def _patiently(step: Callable[[], object]) -> None:
        """A cluster that has just started may not have three brokers yet, and a paused one may be fenced."""
        deadline = time.monotonic() + 60
        while True:
            try:
                step()
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return


def _listeners(port: int, controller: int, inner: list[int], outer: list[int]) -> dict[str, str]:
    """A listener per program that advertises the program's proxy."""
    names = [f"PROGRAM{place}" for place in range(len(inner))]
    here = [f"{name}://127.0.0.1:{at}" for name, at in zip(names, inner, strict=True)]
    there = [f"{name}://127.0.0.1:{at}" for name, at in zip(names, outer, strict=True)]
    direct = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "listeners": ",".join([direct, *here, f"CONTROLLER://127.0.0.1:{controller}"]),
        "advertised.listeners": ",".join([direct, *there]),
        "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in ["PLAINTEXT", "CONTROLLER", *names]),
        "inter.broker.listener.name": "PLAINTEXT",
    }


def _format(home: KafkaHome, folder: Path, cluster: str | None) -> None:
    if cluster is None:
        home.copy_formatted(folder / "logs")
        return
    command = ["format", "-t", cluster, "-c", str(folder / "server.properties")]
    subprocess.run(home.java("kafka.tools.StorageTool", *command), check=True, capture_output=True)


class CampaignStore(Protocol):
    """Where checkpoints are. `links` has a proxy per program where the store is reached by a network."""

    links: dict[str, ResettingProxy]
    url: str

    def options(self, program: str | None = None) -> dict[str, str]: ...

    def logs(self) -> list[Path]: ...


@dataclass
class NetworkStore:
    """A store that programs reach by a network, each through a proxy of its own."""

    server: SeaweedServer | AzuriteServer | GcsServer
    folder: Path
    links: dict[str, ResettingProxy]
    url: str

    @classmethod
    def start(cls, kind: str, folder: Path, programs: Iterable[str], stack: contextlib.ExitStack) -> Self:
        server = stack.enter_context(NETWORK_STORES[kind].start(folder / kind))
        port = urlsplit(server.endpoint).port
        assert port is not None
        links = {name: stack.enter_context(ResettingProxy(port)) for name in programs}
        return cls(server, folder / kind, links, server.new_url())

    def options(self, program: str | None = None) -> dict[str, str]:
        """Of a program, through its proxy; without one, directly."""
        options = self.server.options(timeout_s="5", retry_s="2")
        if program is None:
            return options
        there = urlsplit(self.server.endpoint)
        here = there._replace(netloc=f"127.0.0.1:{self.links[program].port}")
        return {name: value if value != there.geturl() else here.geturl() for name, value in options.items()}

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    @property
    def survives_kill(self) -> bool:
        """Azurite keeps its data in memory. In a folder it would save the names of its objects every 5 s only."""
        return not isinstance(self.server, AzuriteServer)

    def kill(self) -> None:
        self.server.kill()

    def restart(self) -> None:
        assert not isinstance(self.server, AzuriteServer)
        self.server.restart()

    def signal(self, number: signal.Signals) -> None:
        assert self.server.process is not None
        self.server.process.send_signal(number)


NETWORK_STORES: dict[str, type[SeaweedServer | AzuriteServer | GcsServer]] = {
    "s3": SeaweedServer,
    "az": AzuriteServer,
    "gs": GcsServer,
}


@dataclass
class DiskStore:
    """A folder. Where this process may mount, it is a file system of its own that can be filled."""

    folder: Path
    can_be_full: bool
    links: dict[str, ResettingProxy] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, stack: contextlib.ExitStack) -> Self:
        place = folder / "disk"
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(place)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        if mounted:
            stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
        return cls(place, mounted)

    @property
    def url(self) -> str:  # type: ignore[override]
        return (self.folder / "checkpoints").as_uri()

    def options(self, program: str | None = None) -> dict[str, str]:  # noqa: ARG002 - as a store with a network has it
        return {}

    def logs(self) -> list[Path]:
        return []

    def fill(self) -> None:
        """Takes all room that is left, to the last byte."""
        with (self.folder / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))

    def free(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def temporary_files(self) -> int:
        return sum(1 for path in self.folder.rglob(".tmp-*"))


@dataclass
class Clock:
    """The wall clock of one program, by a preloaded library (clock.c) that is compiled here.

    `environment` is what the program needs; it is empty where there is no compiler.
    """

    file: Path
    environment: dict[str, str]

    @classmethod
    def of(cls, folder: Path) -> Self:
        clock, library = cls(folder / "clock", {}), folder / "clock.so"
        clock.set(0)
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is not None:
            source = str(Path(__file__).with_name("clock.c"))
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), source, "-ldl"], check=True)
            clock.environment = {"LD_PRELOAD": str(library), "SFD_CLOCK": str(clock.file)}
        return clock

    def set(self, seconds: float) -> None:
        """Steps the clock to this many seconds from the true time."""
        with self.file.open("r+b" if self.file.exists() else "wb") as file:
            file.write(struct.pack("d", seconds))


def copy_logs(brokers: Brokers, store: Any, folder: Path) -> None:
    for place, node in enumerate(brokers.nodes):
        (folder / f"broker-{place}.log").write_text(node.log())
    for log in store.logs():
        shutil.copy(log, folder)
