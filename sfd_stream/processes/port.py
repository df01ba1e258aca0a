"""One port for several workers: the supervisor asks each at its own socket, and answers for all, each labelled.

Workers answer on Unix sockets in a folder that only this user may enter. One that does not answer in time, because it
is being started again, is named as down, and counted as not up.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfd_stream.observe import metrics as m
from sfd_stream.observe.registry import CONTENT_TYPE
from sfd_stream.observe.routes import SHARED_S, page
from sfd_stream.observe.server import Response, Route, Shared
from sfd_stream.observe.status import SCHEMA
from sfd_stream.processes import spectrum
from sfd_stream.processes.spectrum import Merging

ANSWER_S = 2.0
BYTES_MAX = 64 * 2**20


@dataclass
class Gathering:
    """`sockets` by the worker's name; `labels` are those that all of them share."""

    sockets: Mapping[str, Path]
    labels: Mapping[str, str]
    stuck_after_s: float
    clock: Callable[[], float]
    _silent_since: dict[str, float] = field(default_factory=dict)
    """When a worker was first asked in vain; nobody may have asked for long before."""

    def __post_init__(self) -> None:
        self._merging = Merging(lambda: self._ask_all(spectrum.PATH), self.clock)

    def close(self) -> None:
        self._merging.close()

    def routes(self) -> Mapping[str, Route]:
        return {
            "/": Route(page),
            "/metrics": Route(Shared(self.metrics, SHARED_S)),
            "/status.json": Route(Shared(self.status, SHARED_S)),
            "/healthz": Route(Shared(self.health, SHARED_S), paced=False),
            "/readyz": Route(Shared(self.ready, SHARED_S), paced=False),
        }

    async def metrics(self) -> Response:
        answers = await self._ask_all("/metrics")
        down = [name for name in self.sockets if name not in answers]
        return Response(200, CONTENT_TYPE, merged([body.decode() for _, body in answers.values()] + self._down(down)))

    async def status(self) -> Response:
        answers = await self._ask_all("/status.json")
        workers: list[Any] = [worker for _, body in answers.values() for worker in json.loads(body)["workers"]]
        if not workers:
            return Response.text(503, "no worker answers")
        down = [name for name in self.sockets if name not in answers]
        whole = {"schema": SCHEMA, "workers": workers, "down": down, **self._merging.consider(workers)}
        body = json.dumps(whole, separators=(",", ":"))
        return Response(200, "application/json", body.encode())

    async def health(self) -> Response:
        """Fails for a loop that does not turn, and for a worker that was asked in vain for as long."""
        answers = await self._ask_all("/healthz")
        stuck = [f"worker {name}: {_words(body)}" for name, (code, body) in answers.items() if code != 200]
        silent = [
            f"worker {name} does not answer"
            for name, since_s in self._silent_since.items()
            if self.clock() - since_s > self.stuck_after_s
        ]
        return Response.text(503, "; ".join(stuck + silent)) if stuck or silent else Response.text(200, "ok")

    async def ready(self) -> Response:
        answers = await self._ask_all("/readyz")
        waiting = [f"worker {name}: {_words(body)}" for name, (code, body) in answers.items() if code != 200]
        waiting += [f"worker {name} is not up" for name in self.sockets if name not in answers]
        return Response.text(503, "; ".join(waiting)) if waiting else Response.text(200, "all workers are ready")

    def _down(self, names: list[str]) -> list[str]:
        labels = "".join(f',{name}="{_escaped(value)}"' for name, value in self.labels.items())
        head = f"# HELP {m.UP.name} {m.UP.help}\n# TYPE {m.UP.name} gauge\n"
        return [f'{head}{m.UP.name}{{worker="{name}"{labels}}} 0.0\n' for name in names]

    async def _ask_all(self, path: str) -> dict[str, tuple[int, bytes]]:
        """The code and body of each worker that answers in time."""
        names = list(self.sockets)
        asked = (asyncio.wait_for(_ask(self.sockets[name], path), ANSWER_S) for name in names)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        told = zip(names, answers, strict=True)
        heard = {name: answer for name, answer in told if not isinstance(answer, BaseException)}
        now = self.clock()
        self._silent_since = {name: self._silent_since.get(name, now) for name in names if name not in heard}
        return heard


async def _ask(socket_path: Path, path: str) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_unix_connection(str(socket_path), limit=BYTES_MAX)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]), body
    finally:
        writer.close()


def merged(texts: list[str]) -> bytes:
    """Several expositions as one: each family once, with the samples of all."""
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


def _words(body: bytes) -> str:
    return body.decode("utf-8", "replace").strip()


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
