"""Long fuzzing of all decoders: python -m tests.unit.wire.formats.fuzz [MESSAGES [FIRST_SEED [FORMAT...]]]

Prints for each format how many mutated messages were decoded, how many of them were bad, and by how much the memory of
the process grew. As many good messages stand between them, and must not change. The compiled decoder and the reference
must agree about all of them.
"""

from __future__ import annotations

import resource
import sys
import time

from tests.unit.wire.formats.test_formats import WAYS, fuzz_batch

BATCH = 1_000


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for way in sys.argv[3:] or WAYS:
        started, before, bad = time.monotonic(), _resident(), 0
        for seed in range(-(-wanted // (BATCH // 2))):
            bad += fuzz_batch(way, first + seed, BATCH)
        grown, seconds = _resident() - before, time.monotonic() - started
        done = f"{way}: {wanted:,} mutated (seeds from {first}), {bad:,} bad, memory +{grown / 1024:.0f} MiB"
        print(f"{done}, {seconds:.0f} s", flush=True)  # noqa: T201


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
