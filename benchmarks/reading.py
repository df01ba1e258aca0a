"""Reading 64 snapshots of 50 x 10,000 float32: decode and merge, against numpy's SVD of 100 x 10,000.

    python -m benchmarks.reading [--paste]

The merge of two parts is one shrink of a 100 x 10,000 stack, so one SVD of that size is the yardstick for each merge.
Also: what encoding one snapshot takes, and how much later a loop turns while another thread encodes; its limit is that
of a whole worker (benchmarks/pauses.py). `--paste` writes the table into docs/experiments.md.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.tables import Table, paste
from sfd_stream.reader.merged import merge
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Snapshot, decode_snapshot, encode_snapshot, message_of

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
PARTS, ELL, D = 64, 50, 10_000
SVDS_MAX = 3.0
"""Decode + merge per merge must take less than this many SVDs."""

LATE_MAX_MS = 5.0
"""More than an idle loop's, at the 99th percentile, while a snapshot is encoded beside it."""


def parts() -> list[Snapshot]:
    rng = np.random.default_rng(0)
    made = []
    for p in range(PARTS):
        matrix = rng.standard_normal((ELL, D)) * (0.95 ** np.arange(ELL))[:, None]
        total = float(np.sum(matrix**2))
        sketch = Sketch(matrix, ELL, 0.01 * total, 1e-4, 1000, 100_000, 1.01 * total, rng.random(D), 1000.0, 1)
        made.append(Snapshot(SnapshotId("c", "g", "t", p, 1, 1), PARTS, 1000, 0.0, sketch, "fixed", dtype="float32"))
    return made


def seconds(action: Callable[[], Any], repeats: int) -> float:
    """The median; the machine may be shared."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return median(found)


def measure() -> dict[str, float]:
    made = parts()
    values = [encode_snapshot(snapshot) for snapshot in made]
    stack = np.random.default_rng(1).standard_normal((2 * ELL, D))
    decoded = [decode_snapshot(value) for value in values]
    svd_s = seconds(lambda: np.linalg.svd(stack, full_matrices=False), 7)
    both_s = seconds(lambda: merge([decode_snapshot(value) for value in values], 0.0), 3)
    return {
        "svd_of_100_x_10000_ms": 1e3 * svd_s,
        "encode_one_float32_ms": 1e3 * seconds(lambda: encode_snapshot(made[0]), 7),
        "encode_one_float64_ms": 1e3 * seconds(lambda: encode_snapshot(replace(made[0], dtype="float64")), 7),
        "decode_64_ms": 1e3 * seconds(lambda: [decode_snapshot(value) for value in values], 3),
        "merge_64_ms": 1e3 * seconds(lambda: merge(decoded, 0.0), 3),
        "decode_and_merge_64_ms": 1e3 * both_s,
        "snapshot_bytes": float(len(values[0])),
        "svds_per_merge": both_s / (PARTS - 1) / svd_s,
    }


def pauses_ms(busy: Callable[[], Any] | None) -> float:
    """The 99th percentile of how late a loop of 1 ms turns is, while another thread does `busy` again and again."""
    done = threading.Event()

    def other() -> None:
        while busy is not None and not done.is_set():
            busy()

    thread = threading.Thread(target=other)
    thread.start()
    late = []
    for _ in range(2_000):
        began = time.perf_counter()
        time.sleep(1e-3)
        late.append(time.perf_counter() - began - 1e-3)
    done.set()
    thread.join()
    return 1e3 * float(np.quantile(late, 0.99))


def main() -> int:
    with threadpool_limits(1):
        found = measure()
        one = replace(parts()[0], dtype="float64")
        idle = pauses_ms(None)
        found["loop_later_p99_ms"] = pauses_ms(lambda: message_of(encode_snapshot(one))) - idle
    made = table(found)
    made.show(Console())
    if "--paste" in sys.argv:
        paste([PAGE], [made])
    return int(found["svds_per_merge"] >= SVDS_MAX or found["loop_later_p99_ms"] >= LATE_MAX_MS)


def table(found: dict[str, float]) -> Table:
    def ms(name: str) -> str:
        return f"{found[name]:,.1f} ms"

    rows = [
        ["SVD of 100 x 10,000, the yardstick", ms("svd_of_100_x_10000_ms"), ""],
        ["encode one, float32", f"{ms('encode_one_float32_ms')}, {found['snapshot_bytes'] / 1e6:.1f} MB", ""],
        ["encode one, float64", ms("encode_one_float64_ms"), ""],
        ["decode 64", ms("decode_64_ms"), ""],
        ["merge 64", ms("merge_64_ms"), ""],
        ["decode and merge 64", ms("decode_and_merge_64_ms"), ""],
        ["the same, per merge", f"{found['svds_per_merge']:.2f} SVDs", f"{SVDS_MAX:g}"],
        ["a loop beside an encoding thread: p99 later by", ms("loop_later_p99_ms"), f"{LATE_MAX_MS:g} ms"],
    ]
    return Table("reading", "Reading 64 snapshots of 50 x 10,000", ["", "measured", "limit"], rows)


if __name__ == "__main__":
    sys.exit(main())
