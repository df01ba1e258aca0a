"""The real worker as a simulated process. The only file that knows how the package is put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.simulation import admin, primitives
from tests.simulation.clients import process, world
from tests.simulation.content import COLUMNS
from tests.simulation.judge import DEAD, GROUP, INPUT, OUTPUT
from tests.simulation.loader import Edit, Universe
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process, active
from tests.simulation.store import SimulatedStore

MESSAGE_TIMEOUT_MS = 9_000
"""Shorter than the longest outage, so that deliveries fail."""

RANDOMNESS = primitives.Randomness()


class Log:
    """Takes the place of structlog's logger; every line goes into the history."""

    def __init__(self, context: dict[str, Any] | None = None) -> None:
        self._context = context or {}

    def bind(self, **context: Any) -> Log:
        return Log({**self._context, **context})

    def _line(self, event: str, **context: Any) -> None:
        if active().over:
            return
        words = " ".join(f"{name}={value}" for name, value in {**self._context, **context}.items())
        world().history.note(process().name, f"log: {event} {words}".rstrip())

    info = warning = debug = error = _line


class Package:
    """A loaded universe, ready to run workers."""

    def __init__(self, source: Path, edits: tuple[Edit, ...] = (), *, points: bool = False) -> None:
        opening = ModuleType("sfd_stream.storage.open")
        opening.open_store = self._open_store  # type: ignore[attr-defined]
        given = {**primitives.substitutes(RANDOMNESS), **admin.substitutes(), "sfd_stream.storage.open": opening}
        self.universe = Universe(source, given, edits=edits, points=points)
        self.universe["observe.logs"].get_logger = Log
        self.wiring = self.universe["cli.build"]
        self.errors = self.universe["errors"]

    def _open_store(self, *_: Any, **__: Any) -> SimulatedStore:
        return SimulatedStore(world().objects, process(), self.errors)


@lru_cache(maxsize=100)
def package(source: Path, edits: tuple[Edit, ...], points: bool) -> Package:
    return Package(source, edits, points=points)


@lru_cache(maxsize=4)
def reference(source: Path) -> Universe:
    """The package as it is, on real primitives, to make settings and to read what was written."""
    return Universe(source, {})


@lru_cache(maxsize=4)
def _base_settings(source: Path) -> Any:
    return reference(source)["config.model"].Settings(
        kafka={"bootstrap.servers": "simulated:9092", "group.id": GROUP},
        input={"topic": INPUT},
        sketch={"d": COLUMNS, "ell": 2, "buffer_factor": 1.0},
        checkpoint={"url": "memory://simulated"},
        snapshot={"topic": OUTPUT},
        dead_letters={"topic": DEAD, "max_share": 1.0, "max_consecutive": 1_000_000},
    )


def settings_of(source: Path, scenario: Scenario) -> Any:
    base = _base_settings(source)
    protocol = {
        "eager": {"partition.assignment.strategy": "range"},
        "kip-848": {"group.protocol": "consumer"},
    }.get(scenario.protocol, {})
    session = {} if scenario.protocol == "kip-848" else {"session.timeout.ms": int(scenario.session_s * 1000)}
    times = {"max.poll.interval.ms": int(scenario.max_poll_s * 1000), "message.timeout.ms": MESSAGE_TIMEOUT_MS}
    kafka = {**base.kafka, **protocol, **session, **times}
    snapshot = {
        "topic": None if scenario.delivery == "none" else OUTPUT,
        "every_s": scenario.snapshot_every_s,
        "republish_s": scenario.republish_s,
        "delivery": "transactional" if scenario.delivery == "transactional" else "idempotent",
        "inline_max_bytes": 900_000 if scenario.inline else 10,
    }
    checkpoint = {
        "every_rows": scenario.every_rows,
        "every_s": scenario.every_s,
        "keep": scenario.keep,
        "revoke_budget_s": scenario.revoke_budget_s,
    }
    worker = {"batch_records": scenario.batch_records, "memory_max_bytes": 2**30}
    found = base.model_copy(
        update={
            "kafka": kafka,
            "input": base.input.model_copy(update={"columns": scenario.columns, "start": scenario.start, "d_max": 64}),
            "checkpoint": base.checkpoint.model_copy(update=checkpoint),
            "snapshot": base.snapshot.model_copy(update=snapshot),
            "worker": base.worker.model_copy(update=worker),
        }
    )
    if not scenario.one_in_memory:
        return found
    room = reference(source)["cli.build"].shape_of(found, 0).memory_bytes()
    return found.model_copy(update={"worker": found.worker.model_copy(update={"memory_max_bytes": room})})


class Worker:
    """One simulated process that runs the real worker until it exits, crashes or is stopped."""

    def __init__(self, package: Package, settings: Any, name: str, *, until_end: bool, watched: bool) -> None:
        self.process = Process(name)
        self.last_point = "starting"
        self.exit: tuple[int, str] | None = None
        self.on_reach: Callable[[Worker, str], None] = lambda *_: None
        self.on_exit: Callable[[Worker], None] = lambda _: None
        self._package = package
        self._settings = settings
        self._until_end = until_end
        self._watched = watched
        self._worker: Any = None
        self._manifests: dict[int, Any] = {}
        self._stopping = False

    def start(self) -> None:
        active().spawn(self.process, f"{self.process.name} main", self._main)

    def stop(self) -> None:
        """SIGTERM."""
        self._stopping = True
        if self._worker is not None:
            self._worker._stopping = True

    def new_manifests(self) -> Iterator[tuple[int, int, bytes]]:
        """Partition, number and bytes of each manifest that the worker takes for its newest, once."""
        if self._worker is None:
            return
        for owned in self._worker.partitions:
            manifest = owned.chain.manifest
            if manifest is not None and self._manifests.get(owned.number) is not manifest:
                self._manifests[owned.number] = manifest
                yield owned.number, manifest.number, self._package.universe["state.manifest"].encode_manifest(manifest)

    def _main(self) -> None:
        self.exit = outcome_of(self._run, self._package, self.process)
        active().call_later(0.0, lambda: self.on_exit(self))
        active().wait(None)  # the process ends on the hub, with all its threads

    def _run(self) -> None:
        self._worker, _ = self._package.wiring.worker_of(self._settings, until_end=self._until_end, reach=self._reach)
        if self._stopping:
            self._worker.stop()
        self._worker.run()

    def _reach(self, point: str) -> None:
        self.last_point = point
        self.on_reach(self, point)
        active().point()


def outcome_of(main: Callable[[], None], package: Package, process: Process) -> tuple[int, str]:
    """The exit code of a process with this main function, and why."""
    try:
        main()
    except package.errors.SfdError as error:
        return error.exit_code, f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - a traceback ends a process with 1
        world().history.note(process.name, f"traceback: {_innermost(error)}")
        return 1, f"{type(error).__name__}: {error}"
    return 0, ""


def _innermost(error: BaseException) -> str:
    frames = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{traceback.tb_lineno} {code.co_name}")
        traceback = traceback.tb_next
    return " > ".join(frames[-6:])
