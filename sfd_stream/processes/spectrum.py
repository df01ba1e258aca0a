"""One spectrum of what several workers hold: each gives the sketch of its own partitions, their supervisor merges them.

It is computed in the background, only after something has changed, with a rest after each so that it takes a small
share of one core, and only of sketches up to a size. Where there is none, a text says why.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from sfd_stream.errors import FormatError
from sfd_stream.observe.server import Response, Route
from sfd_stream.observe.spectra import (
    EVERY_S,
    MERGE_BYTES_MAX,
    SHARE_MAX,
    TOO_LARGE,
    Names,
    Whole,
    merged_of,
    spectrum_of,
)
from sfd_stream.observe.status import SpectrumStatus
from sfd_stream.observe.worker_status import Watch
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.threads import DaemonExecutor
from sfd_stream.wire.frames import decode_arrays, encode_arrays

PATH = "/sketch"
KIND = "pagesketch"
NAMES_MAX = 1_000
"""Names that are sent along, of the columns with the largest norms: a merged direction is strong in few others."""

Ask = Callable[[], Awaitable[Mapping[str, tuple[int, bytes]]]]


class UnmergedError(Exception):
    """Why there is no merged sketch, in words."""


# In a worker


def routes_within(watch: Watch) -> Mapping[str, Route]:
    """What only a supervisor may ask for, at the worker's own socket."""

    async def sketch() -> Response:
        whole = watch.looker.whole
        if isinstance(whole, str):
            return Response.text(503, whole)
        return Response(200, "application/octet-stream", encode(whole))

    return {PATH: Route(sketch)}


def encode(whole: Whole) -> bytes:
    sketch = whole.sketch
    numbers = {field.name: getattr(sketch, field.name) for field in fields(sketch) if field.name not in _ARRAYS}
    names = _strong_names(whole)
    more = {"partitions": list(whole.partitions), "columns": list(names), "names": list(names.values())}
    more["hash_seed"] = whole.names.seed
    return encode_arrays(KIND, {"sketch": numbers, **more}, {"matrix": sketch.matrix})


def decode(data: bytes) -> Whole:
    found = decode_arrays(data, kind=KIND)
    told = found.numbers
    sketch = Sketch(matrix=found.arrays["matrix"], column_sums=None, **told["sketch"])
    names = Names(dict(zip(told["columns"], told["names"], strict=True)), told["hash_seed"])
    return Whole(sketch, names, tuple(told["partitions"]))


_ARRAYS = ("matrix", "column_sums")


def _strong_names(whole: Whole) -> dict[int, str]:
    matrix, count = whole.sketch.matrix, min(NAMES_MAX, whole.sketch.d)
    if not whole.names.by_column:
        return {}
    norms = np.einsum("ij,ij->j", matrix, matrix)
    strong = np.argpartition(-norms, count - 1)[:count].tolist()
    return {column: whole.names.by_column[column] for column in strong if column in whole.names.by_column}


# In their supervisor


class Merging:
    """`consider` whenever the status is asked for: it gives what is known, and sees to something newer. One loop's."""

    def __init__(self, ask: Ask, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._beside = DaemonExecutor(1, "merge")
        self._shown: dict[str, Any] = {}
        self._rows: dict[str, int] = {}
        self._rest_until_s = float("-inf")
        self._task: asyncio.Task[None] | None = None

    def consider(self, workers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """`merged`, or `unmerged` and why; neither where one worker has all there is."""
        holders = [worker for worker in workers if worker["partitions"]]
        if len(holders) < 2:
            self._shown, self._rows = {}, {}
            return {}
        wanted = {worker["worker"]: sum(map(_rows_seen, worker["partitions"])) for worker in holders}
        running = self._task is not None and not self._task.done()
        if wanted != self._rows and not running and self._clock() >= self._rest_until_s:
            self._task = asyncio.get_running_loop().create_task(self._merge(holders))
        return self._shown

    def close(self) -> None:
        """Returns when the running merge is done."""
        self._beside.shutdown(wait=True, cancel_futures=True)

    async def _merge(self, holders: Sequence[Mapping[str, Any]]) -> None:
        began_s = self._clock()
        try:
            self._rows, spectrum = await self._ask_and_merge(holders)
            self._shown = {"merged": asdict(spectrum)}
        except UnmergedError as error:
            self._rows, self._shown = {}, {"unmerged": str(error)}
        finally:
            cost_s = self._clock() - began_s
            self._rest_until_s = self._clock() + max(EVERY_S, cost_s * (1 / SHARE_MAX - 1))

    async def _ask_and_merge(self, holders: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], SpectrumStatus]:
        if sum(map(_sketch_bytes, holders)) > MERGE_BYTES_MAX:
            raise UnmergedError(TOO_LARGE)
        answers, at_s = await self._ask(), max(worker["at_s"] for worker in holders)
        names, loop = [worker["worker"] for worker in holders], asyncio.get_running_loop()
        return await loop.run_in_executor(self._beside, _spectrum, names, answers, at_s)


def _rows_seen(partition: Mapping[str, Any]) -> int:
    return partition["spectrum"]["rows"] if partition["spectrum"] else 0


def _sketch_bytes(worker: Mapping[str, Any]) -> int:
    """What a worker's merged sketch takes at most, known before it is asked for."""
    spectra = [partition["spectrum"] for partition in worker["partitions"] if partition["spectrum"]]
    return max((8 * spectrum["ell"] * spectrum["d"] for spectrum in spectra), default=0)


def _spectrum(
    names: Sequence[str], answers: Mapping[str, tuple[int, bytes]], at_s: float
) -> tuple[dict[str, int], SpectrumStatus]:
    """The rows of each worker, and the spectrum of all."""
    for name in names:
        code, body = answers.get(name, (503, b"it does not answer"))
        if code != 200:
            raise UnmergedError(f"worker {name}: {body.decode('utf-8', 'replace').strip()}")
    try:
        wholes = {name: decode(answers[name][1]) for name in names}
        held = Counter(partition for whole in wholes.values() for partition in whole.partitions)
        if max(held.values()) > 1:
            raise UnmergedError("partitions are moving from one worker to another")
        merged = merged_of(list(wholes.values()))
    except (FormatError, ValueError, OverflowError) as error:
        raise UnmergedError(str(error)) from error
    rows = {name: whole.sketch.rows for name, whole in wholes.items()}
    return rows, spectrum_of(merged.sketch, merged.names, at_s)
