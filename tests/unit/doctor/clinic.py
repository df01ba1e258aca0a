"""Settings that are right, on real parts; a test makes one of them wrong and sees what the doctor says."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfd_stream.cli import main
from sfd_stream.cli.commands.doctor import _patient
from sfd_stream.config import load
from sfd_stream.doctor import Finding, checks, examine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kafka import Broker


@dataclass
class Diagnosis:
    exit_code: int
    checks: dict[str, dict[str, str]]
    printed: str

    def verdict(self, name: str) -> str:
        return self.checks[name]["verdict"]

    def words(self, name: str) -> str:
        return self.checks[name]["reason"]

    def bad(self) -> list[str]:
        """What is neither good nor passed over: the law is that a fault is found by its own check, and no other."""
        return [name for name, found in self.checks.items() if found["verdict"] in {"warning", "failed"}]


@dataclass
class Clinic:
    """Topics of rows, snapshots and dead letters on a broker, and a store that is not there yet."""

    broker: Broker
    folder: Path
    client: dict[str, str] = field(default_factory=dict)
    group: str = field(default_factory=lambda: f"g-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.rows = self.broker.create_topic(partitions=2)
        self.dead = self.broker.create_topic()
        self.sketches = self.broker.create_topic(config={"cleanup.policy": "compact"})

    @property
    def store(self) -> Path:
        return self.folder / "made later" / "store"

    @property
    def settings(self) -> dict[str, str]:
        client = self.client or {"bootstrap.servers": self.broker.bootstrap}
        return {
            **{f"kafka.{name}": value for name, value in client.items()},
            "kafka.group.id": self.group,
            "input.topic": self.rows,
            "sketch.d": "20",
            "sketch.ell": "4",
            "dead_letters.topic": self.dead,
            "snapshot.topic": self.sketches,
            "checkpoint.url": self.store.as_uri(),
        }

    def examine(self, **changes: str) -> Diagnosis:
        return diagnosis({**self.settings, **changes})


def diagnosis(settings: dict[str, str]) -> Diagnosis:
    """Of the command itself, in this process."""
    out, err = io.StringIO(), io.StringIO()
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["doctor", "--json", *flags])
    found = json.loads(out.getvalue())
    assert found["exit_code"] == code, err.getvalue()
    assert err.getvalue() == ""
    return Diagnosis(code, {check["name"]: check for check in found["checks"]}, out.getvalue())


def attempt(name: str, folder: Path, **changes: Any) -> Finding:
    """One check alone, where no broker is needed for it."""
    settings = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.group.id": "g",
        "input.topic": "rows",
        "sketch.d": "20",
        "sketch.ell": "4",
        "checkpoint.url": (folder / "store").as_uri(),
        **changes,
    }
    patient = _patient(load(None, environ={}, overrides=[f"{key}={value}" for key, value in settings.items()]).settings)
    (wanted,) = (check for check in checks() if check.name == name)
    (found,) = examine([wanted], patient)
    return found.finding
