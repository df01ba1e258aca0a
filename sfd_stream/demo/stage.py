"""The parts of the demo: a broker, topics, workers, a checkpoint store. All of them are removed afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import KafkaException, Producer

from sfd_stream.demo.checks import COLUMNS, ELL, HASH_SEED, DemoError
from sfd_stream.kafka.properties import for_producer
from sfd_stream.storage.contract import Store
from sfd_stream.tools.produce import Filler, RowMessage

PARTITIONS = 4
PATIENCE_S = 90.0
END_S = 20.0
_POLL_S = 0.1
_QUIET = {"log_level": 2}
_LOGIN = ("SFD_KAFKA__",)
_STORE = ("SFD_CHECKPOINT__OPTIONS__",)


@dataclass(frozen=True)
class DemoSetup:
    """The broker, topics and store of the demo. `given`: the broker is the user's, not the built-in one."""

    bootstrap: str
    topic: str
    snapshots: str
    group: str
    checkpoints: str
    given: bool
    format: str = "msgpack"

    @property
    def overrides(self) -> tuple[str, ...]:
        """Settings that the environment must not change."""
        return (f"kafka.bootstrap.servers={self.bootstrap}", f"kafka.group.id={self.group}")

    @property
    def environ(self) -> dict[str, str]:
        """Our environment without the settings of other services. Credentials for a given broker or bucket stay."""
        ours = _LOGIN * self.given + _STORE * (not self.checkpoints.startswith("file:"))
        return {name: text for name, text in os.environ.items() if not name.startswith("SFD_") or name.startswith(ours)}

    def write_settings(self, folder: Path) -> Path:
        """Writes a settings file with short times: a session of seconds, checkpoints and snapshots every second."""
        session_ms = 6000 if self.given else 3000  # the minimum of a real broker, by default
        settings = {
            "kafka": {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 300},
            "input": {"topic": self.topic, "format": self.format, "columns": "hashed", "hash_seed": HASH_SEED},
            "sketch": {"d": COLUMNS, "ell": ELL, "buffer_max_bytes": "64KiB"},
            "checkpoint": {"url": self.checkpoints, "every_rows": 200, "every_s": 1, "revoke_budget_s": 5},
            "snapshot": {"topic": self.snapshots, "every_s": 1, "dtype": "float32"},
            "http": {"host": "127.0.0.1", "port": 0},
            "log": {"format": "json"},
        }
        path = folder / "demo.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path


@contextlib.contextmanager
def built_in_broker() -> Iterator[str]:
    """Runs librdkafka's mock broker in a separate process. It ends with this process, however that ends."""
    command = [sys.executable, "-m", "sfd_stream.kafka.mock_broker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@dataclass
class DemoWorker:
    """A worker process. It has its own session, so that a Ctrl-C reaches only the demo, and it ends with the demo."""

    number: int
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, number: int, folder: Path, settings: Path, setup: DemoSetup) -> DemoWorker:
        log = folder / f"worker-{number}.log"
        command = [sys.executable, "-m", "sfd_stream.cli", "run", "--worker-number", str(number)]
        command += ["--config", str(settings)]
        command += [word for text in setup.overrides for word in ("--set", text)]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True, env=setup.environ
            )
        return cls(number, log, process)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def page(self) -> str | None:
        """The address of its status page, once it is logged: the only line with the key `url`."""
        return next((str(line["url"]) for line in self._lines() if "url" in line), None)

    def last_words(self) -> str:
        lines = list(self._lines())
        return str(lines[-1].get("event", "")) if lines else "nothing"

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                yield found if isinstance(found, dict) else {}

    def kill(self) -> None:
        """Kills the process as `kill -9` does."""
        self.process.kill()
        self.end(END_S)

    def end(self, patience_s: float) -> None:
        """Waits until the process ends, and kills it if that takes too long."""
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def partitions(self) -> list[dict[str, Any]]:
        """The partitions in `/status.json`; empty while the port does not answer."""
        url = self.page() if self.alive else None
        if url is None:
            return []
        # Directly to the port, even if the environment names a proxy.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{url}status.json", timeout=2.0) as answer:
                return list(json.load(answer)["workers"][0]["partitions"])
        except (OSError, HTTPException, ValueError):
            return []

    def reads(self) -> list[int]:
        """The partitions that it reads."""
        return sorted(int(part["partition"]) for part in self.partitions() if part["state"] == "reading")


@dataclass
class Workers:
    """The workers. Leaving the `with` block sends SIGTERM and kills those that do not end in time."""

    folder: Path
    settings: Path
    setup: DemoSetup
    all: dict[int, DemoWorker] = field(default_factory=dict)
    fallen: set[int] = field(default_factory=set)
    """The workers that the demo killed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.all.values():
            if worker.alive:
                worker.process.terminate()
        for worker in self.all.values():
            worker.end(END_S)

    def start(self, number: int) -> DemoWorker:
        self.fallen.discard(number)
        self.all[number] = DemoWorker.start(number, self.folder, self.settings, self.setup)
        return self.all[number]

    def kill(self, number: int) -> None:
        self.fallen.add(number)
        self.all[number].kill()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until the condition holds. The demo ends if a worker exits by itself, or after a long time."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.check_alive(what)
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not happen within {PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)

    def check_alive(self, before: str) -> None:
        for worker in self.all.values():
            if not worker.alive and worker.number not in self.fallen:
                raise DemoError(
                    f"worker {worker.number} ended with exit code {worker.process.returncode} before {before};"
                    f" its last log line: {worker.last_words()}"
                )


class Feed:
    """The producer of the demo's rows."""

    def __init__(self, kafka: Mapping[str, Any], topic: str) -> None:
        # With more requests in flight, a new topic was observed to acknowledge a message that is not in its log.
        tuned = {"linger.ms": 20, "enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
        self._producer = Producer({**for_producer(kafka), **_QUIET, **tuned})
        self._topic = topic
        self.sent = 0

    def send(self, messages: Sequence[RowMessage], rows_per_s: float) -> None:
        """Sends all messages at this rate. The broker acknowledges each of them."""
        before = self.sent

        def count(rows: int) -> None:
            self.sent = before + rows

        filler = Filler(self._producer, self._topic, PARTITIONS, rate=rows_per_s, clock=time.monotonic)
        filler.fill(messages, count)


def remove_topics(admin: Any, setup: DemoSetup) -> list[str]:
    """Deletes the demo's topics and group from the user's broker. Returns what could not be deleted, and why."""
    left = []
    removals = {f"topic {name}": done for name, done in admin.delete_topics([setup.topic, setup.snapshots]).items()}
    removals |= {f"group {name}": done for name, done in admin.delete_consumer_groups([setup.group]).items()}
    for what, done in removals.items():
        try:
            done.result(END_S)
        except TimeoutError:
            left.append(f"{what} (no answer)")
        except KafkaException as error:
            if error.args[0].name() not in {"UNKNOWN_TOPIC_OR_PART", "GROUP_ID_NOT_FOUND"}:
                left.append(f"{what} ({error.args[0].str()})")
    return left


def remove_checkpoints(store: Store) -> None:
    for key in store.list(""):
        store.delete(key)
