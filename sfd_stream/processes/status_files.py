"""One port for the workers of `run --workers N`: each worker writes its status to files, the supervisor serves them.

A worker writes `metrics.prom` and `status.json` to a folder of its own once a second, by write and rename, so that a
reader never finds half a file. The supervisor answers from the files of all workers. A worker without a fresh file is
down: it is being restarted, or its process is stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfd_stream.observe import metrics as m
from sfd_stream.observe.logs import Log
from sfd_stream.observe.registry import CONTENT_TYPE
from sfd_stream.observe.routes import SHARED_S, page_of, stuck_words
from sfd_stream.observe.server import Response, Route, Shared
from sfd_stream.observe.status import SCHEMA
from sfd_stream.observe.worker_status import Watch

WRITE_EVERY_S = 1.0
FRESH_S = 5.0
"""A worker whose files are older than this is reported as down."""

STATUS, METRICS = "status.json", "metrics.prom"
UNMERGED = "each worker shows its own partitions; sfd-stream watch shows the merged sketch of the topic"


# In a worker


@contextmanager
def written(folder: Path, watch: Watch, clock: Callable[[], float], log: Log) -> Iterator[None]:
    """Writes the files of this worker once a second, on a separate thread, until the block ends."""
    over = threading.Event()

    def keep_writing() -> None:
        while True:
            try:
                write(folder, watch, clock())
            except OSError as error:  # the disk may be full for a while
                log.warning("status files not written, will retry", error=str(error))
            if over.wait(WRITE_EVERY_S):
                return

    thread = threading.Thread(target=keep_writing, name="status-files", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WRITE_EVERY_S)


def write(folder: Path, watch: Watch, now_s: float) -> None:
    """`now_s` is of the system's monotonic clock, which all processes of the machine share."""
    _replace(folder / METRICS, watch.exposition())
    _replace(folder / STATUS, watch.status_json(written_s=now_s))


def _replace(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".new")
    partial.write_bytes(content)
    partial.replace(path)


# In the supervisor


def remove(folder: Path) -> None:
    """Removes the files of the predecessor before a worker is started."""
    for name in (STATUS, METRICS):
        (folder / name).unlink(missing_ok=True)


@dataclass(frozen=True)
class WorkerFiles:
    """The newest files of a worker, and their age."""

    status: dict[str, Any]
    metrics: str
    age_s: float

    @classmethod
    def read(cls, folder: Path, now_s: float) -> WorkerFiles | None:
        """None if the worker has not written yet."""
        try:
            found, metrics = json.loads((folder / STATUS).read_bytes()), (folder / METRICS).read_text("utf-8")
        except FileNotFoundError:
            return None
        [status], age_s = found["workers"], max(now_s - found["written_s"], 0.0)
        return cls({**status, "loop_idle_s": round(status["loop_idle_s"] + age_s, 3)}, metrics, age_s)


@dataclass
class WorkerStatuses:
    """`folders` by worker name; `labels` are common to all workers."""

    folders: Mapping[str, Path]
    labels: Mapping[str, str]
    stuck_after_s: float
    clock: Callable[[], float]
    _missing_since: dict[str, float] = field(default_factory=dict)

    def routes(self) -> Mapping[str, Route]:
        return {
            "/": Route(page_of("index.html")),
            "/metrics": Route(Shared(self.metrics, SHARED_S)),
            "/status.json": Route(Shared(self.status, SHARED_S)),
            "/healthz": Route(Shared(self.health, SHARED_S), paced=False),
            "/readyz": Route(Shared(self.ready, SHARED_S), paced=False),
        }

    async def metrics(self) -> Response:
        up, down = self._up_and_down()
        return Response(200, CONTENT_TYPE, merged([one.metrics for one in up.values()] + self._series_of(down)))

    async def status(self) -> Response:
        up, down = self._up_and_down()
        if not up:
            return Response.text(503, "all workers are down")
        whole: dict[str, Any] = {"schema": SCHEMA, "workers": [one.status for one in up.values()], "down": down}
        if sum(bool(one.status["partitions"]) for one in up.values()) > 1:
            whole["unmerged"] = UNMERGED
        return Response(200, "application/json", json.dumps(whole, separators=(",", ":")).encode())

    async def health(self) -> Response:
        """Fails if the loop of a worker does not turn, also in a stopped process, or if a worker does not start."""
        found, now_s = self._read_all(), self.clock()
        stuck = [
            f"worker {name}: {stuck_words(one.status['loop_idle_s'])}"
            for name, one in found.items()
            if one.status["loop_idle_s"] > self.stuck_after_s
        ]
        stuck += [
            f"worker {name} does not start"
            for name, since_s in self._missing_since.items()
            if now_s - since_s > self.stuck_after_s
        ]
        return Response.text(503, "; ".join(stuck)) if stuck else Response.text(200, "ok")

    async def ready(self) -> Response:
        up, down = self._up_and_down()
        waiting = [f"worker {name}: {one.status['doing']}" for name, one in up.items() if not one.status["ready"]]
        waiting += [f"worker {name} is down" for name in down]
        return Response.text(503, "; ".join(waiting)) if waiting else Response.text(200, "all workers are ready")

    def _up_and_down(self) -> tuple[dict[str, WorkerFiles], list[str]]:
        up = {name: one for name, one in self._read_all().items() if one.age_s <= FRESH_S}
        return up, [name for name in self.folders if name not in up]

    def _read_all(self) -> dict[str, WorkerFiles]:
        now_s = self.clock()
        read = {name: WorkerFiles.read(folder, now_s) for name, folder in self.folders.items()}
        self._missing_since = {name: self._missing_since.get(name, now_s) for name, one in read.items() if one is None}
        return {name: one for name, one in read.items() if one is not None}

    def _series_of(self, down: list[str]) -> list[str]:
        labels = "".join(f',{name}="{_escaped(value)}"' for name, value in self.labels.items())
        head = f"# HELP {m.UP.name} {m.UP.help}\n# TYPE {m.UP.name} gauge\n"
        return [f'{head}{m.UP.name}{{worker="{name}"{labels}}} 0.0\n' for name in down]


def merged(texts: list[str]) -> bytes:
    """Several expositions as one: each family once, with the samples of all workers."""
    families: dict[str, list[str]] = {}
    heads: dict[str, str] = {}
    for text in texts:
        name = ""
        for line in text.splitlines(keepends=True):
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                heads.setdefault(name, "")
                fresh = name not in families
                families.setdefault(name, [])
            if line.startswith("#"):
                heads[name] += line if fresh else ""
            else:
                families[name].append(line)
    return "".join(heads[name] + "".join(lines) for name, lines in families.items()).encode()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
