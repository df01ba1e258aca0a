"""A partition's history made without a broker, and the program run on it."""

from __future__ import annotations

import json
import logging
import signal
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack
import numpy as np
import pytest
import yaml

from sfd_stream.cli import main
from sfd_stream.cli.build import plan_of, shape_of, store_of
from sfd_stream.config import load
from sfd_stream.loop.runtime import Runtime
from sfd_stream.state.manifest import Binding, Manifest
from sfd_stream.state.perform import Patience, run
from sfd_stream.state.steps import AskCommitted, AskLog, AskOutputEpoch, LogFacts, Question, Refused
from sfd_stream.tools.inspect import Place, stand
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.part import RowLimits
from sfd_stream.worker.checkpoint_chain import CheckpointChain
from tests.unit.worker.chains import answering, driven

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sfd_stream.config.model import Settings
    from sfd_stream.state.partition import PartitionState

D = 20


def messages(first: int, last: int) -> list[bytes]:
    """Row k has a one in column k mod D, so that column sums tell which rows were counted."""
    return [msgpack.packb({"i": [k % D]}) for k in range(first, last)]


@dataclass
class Site:
    """A settings file with a store of its own; commands run on it in this process, workers in their own."""

    folder: Path
    topic: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:12]}")
    group: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:12]}")
    bootstrap: str = "127.0.0.1:1"
    store_url: str | None = None

    @property
    def file(self) -> Path:
        return self.folder / "settings.yaml"

    def write(self, **changes: dict[str, Any]) -> None:
        tree: dict[str, dict[str, Any]] = {
            "kafka": {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            },
            "input": {"topic": self.topic},
            "sketch": {"d": D, "ell": 4},
            "http": {"port": 0},
            "checkpoint": {"url": self.store_url or (self.folder / "store").as_uri(), "give_up_s": 20.0},
            "log": {"format": "text"},
        }
        for section, values in changes.items():
            tree.setdefault(section, {}).update(values)
        self.file.write_text(yaml.safe_dump(tree))

    @property
    def settings(self) -> Settings:
        return load(self.file, environ={}).settings

    def place(self, partition: int = 0) -> Place:
        return Place(self.group, self.topic, partition)

    def newest_or_none(self, partition: int) -> Manifest | None:
        patience = Patience(5.0, time.monotonic, time.sleep, lambda: 1.0)
        found = run(stand(self.place(partition)), store_of(self.settings), patience).newest
        assert not isinstance(found, Refused), found
        return found

    def newest(self, partition: int = 0) -> Manifest:
        found = self.newest_or_none(partition)
        assert found is not None
        return found

    def blob_paths(self, partition: int = 0) -> list[Path]:
        """Of the newest manifest."""
        return [self.folder / "store" / blob.key for blob in self.newest(partition).references]

    def run(self, *arguments: str) -> int:
        """The exit code of a command in this process."""
        return main([*arguments, "--config", str(self.file)])

    def rows(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        """The summary's partitions after a worker, in this process, that went to the end."""
        capsys.readouterr()
        code = self.run("run", "--until-end", "--json")
        told = capsys.readouterr()
        assert code == 0, told.err
        found: dict[str, Any] = json.loads(told.out)["partitions"]
        return found

    def refusal(self, capsys: pytest.CaptureFixture[str]) -> str:
        """What a worker says that refuses the state it found."""
        capsys.readouterr()
        code = self.run("run", "--until-end", "--json")
        told = capsys.readouterr().err
        assert code == 3, told
        return told


def now() -> float:
    """Looked up at each call, so that tests can change the clock."""
    return time.time()


class History:
    """An owner of one partition, without a broker: claims, and checkpoints rows."""

    def __init__(self, site: Site, partition: int = 0, *, ids: tuple[str | None, str | None] = ("c", "t")) -> None:
        settings = site.settings
        self.site = site
        self.log = LogFacts(0, 1_000_000)
        self.shape = shape_of(settings, partition)
        self.binding = Binding(*ids, site.group, site.topic, partition)
        plan, runtime = plan_of(settings, until_end=False), Runtime(store_of(settings), wall_clock=now)
        self.chain = CheckpointChain(plan, partition, runtime)
        self.state: PartitionState

    def claim(self) -> History:
        self.state, _ = driven(self.chain.claim(self.binding, self.shape, "earliest", answering(self._answer)))
        return self

    def checkpoint(self, rows: int) -> Manifest:
        first = self.state.next_offset
        batch = decode(messages(first, first + rows), self.state.columns, RowLimits())
        self.state.apply(batch, first + rows, None, 0)
        return driven(self.chain.write(self.state.freeze(), self.binding))

    def _answer(self, question: Question) -> Any:
        match question:
            case AskLog():
                return self.log
            case AskCommitted() | AskOutputEpoch():
                return None


def column_sums(first: int, last: int) -> list[float]:
    return [float(x) for x in np.bincount(np.arange(first, last) % D, minlength=D)]


@pytest.fixture(autouse=True)
def left_as_found() -> Iterator[None]:
    """A command run in this process takes over signals and logging."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.captureWarnings(capture=False)
    for handler in [h for h in logging.getLogger().handlers if type(h).__module__.startswith("sfd_stream")]:
        logging.getLogger().removeHandler(handler)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.write()
    return made
