"""How long each step of a snapshot keeps the interpreter to itself: the longest that the loop could be held up by it.

A thread that wants a turn each millisecond says how late it got it, less its own wait for a processor. The best of some
runs counts: the thread that holds the interpreter may have to wait for a processor, because of other processes. So
this can be measured on a machine that others use too, unlike the pauses of a whole loop (benchmarks/pauses.py).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.state.partition import PartitionState, Shape, encode, sketch_of
from sfd_stream.wire.columns import FixedColumns
from sfd_stream.wire.rows.decode import DecodedBatch
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import SnapshotEncoder, message_of

TURN_S = 1e-3
RUNS = 9


def queued() -> float:
    """Seconds in which this thread could have run and had no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def held_ms(step: Callable[[], Any]) -> float:
    return min(_latest_ms(step) for _ in range(RUNS))


def _latest_ms(step: Callable[[], Any]) -> float:
    over, begun, late = threading.Event(), threading.Event(), [0.0]

    def other() -> None:
        begun.set()
        while not over.is_set():
            began_s, queued_s = time.perf_counter(), queued()
            time.sleep(TURN_S)
            late.append(time.perf_counter() - began_s - TURN_S - (queued() - queued_s))

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    step()
    over.set()
    thread.join()
    return 1e3 * max(late)


def steps(ell: int, d: int, nnz: int, rows: int) -> Iterator[tuple[str, Callable[[], Any]]]:
    """By name, on a state with `rows` pending rows."""
    shape, rng = Shape(FixedColumns(d), Parameters(d=d, ell=ell)), np.random.default_rng(0)
    columns = np.sort(rng.integers(0, d // nnz, (rows, nnz)) + np.arange(nnz) * (d // nnz), axis=1)
    pointers = np.arange(rows + 1, dtype=np.int64) * nnz
    block = RowBlock(pointers, columns.astype(np.int32).ravel(), rng.normal(size=rows * nnz), d)
    state = PartitionState(shape, 0)
    state.apply(DecodedBatch(block, np.ones(rows, np.int64), (), state.columns, ()), rows, None, 0)
    frozen = state.freeze()
    sketch = sketch_of(frozen, shape)
    encoder, snapshot_id = SnapshotEncoder("t", "", 0), SnapshotId("c", "g", "t", 0, 1, 1)

    def encode_snapshot() -> bytes:
        return encoder.encode(sketch, frozen.columns, snapshot_id, partitions=1, next_offset=rows, made_at_s=0.0)

    encoded = encode_snapshot()
    yield "freezing the state", state.freeze
    yield "making its sketch", lambda: sketch_of(frozen, shape)
    yield "encoding the snapshot", encode_snapshot
    yield "encoding the checkpoint", lambda: encode(frozen, None)
    yield "making the message", lambda: message_of(encoded)
