"""Reading 64 snapshots of 50 x 10,000 float32: decode and merge, against numpy's SVD of 100 x 10,000.

    python -m benchmarks.reading

The merge of two parts is one shrink of a 100 x 10,000 stack, so one SVD of that size is the yardstick for each merge.
Also: what encoding one snapshot takes (beside the loop, never in its way).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from sfd_stream.reader.merged import merge
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Snapshot, decode_snapshot, encode_snapshot, message_of

PARTS, ELL, D = 64, 50, 10_000
LIMIT = 3.0
"""Decode + merge per merge must take less than this many SVDs."""


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
        found["loop_late_p99_ms_idle"] = pauses_ms(None)
        found["loop_late_p99_ms_encoding"] = pauses_ms(lambda: message_of(encode_snapshot(one)))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))
    if found["svds_per_merge"] >= LIMIT:
        print(f"decode and merge take {found['svds_per_merge']:.2f} SVDs a merge: more than {LIMIT:g}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
