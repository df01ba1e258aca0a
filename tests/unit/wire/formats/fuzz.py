"""Long fuzzing of all decoders: python -m tests.unit.wire.formats.fuzz [MESSAGES [FIRST_SEED [FORMAT...]]]

Prints for each format how many mutated messages were decoded, how many of them were bad, and by how much the memory of
the process grew after its first tenth. As many good messages stand between them, and must not change. The compiled
decoder and the reference must agree about all of them. Each format has a process of its own, one for each core at a
time. Progress goes to stderr. The exit code is 1 if a format failed.
"""

from __future__ import annotations

import resource
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.unit.wire.formats.test_fuzz import fuzz_batch
from tests.unit.wire.formats.ways import WAYS

BATCH = 2_000
"""Messages decoded together: every other one is mutated."""
WHOLE_EVERY = 20
"""Of as many batches the reference decodes one whole, and of the others what the compiled decoder takes."""


def main() -> int:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    failed = 0
    with ProcessPoolExecutor(mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        running = {pool.submit(fuzz, way, wanted, first): way for way in sys.argv[3:] or WAYS}
        for done in as_completed(running):
            error = done.exception()
            failed += error is not None
            print(done.result() if error is None else f"{running[done]}: FAILED: {error!r}", flush=True)  # noqa: T201
    return 1 if failed else 0


def fuzz(way: str, wanted: int, first: int) -> str:
    started, bad, early = time.monotonic(), 0, 0
    batches = -(-wanted // (BATCH // 2))
    for number in range(batches):
        try:
            bad += fuzz_batch(way, first + number, BATCH, whole=number % WHOLE_EVERY == 0)
        except Exception as error:
            raise RuntimeError(f"seed {first + number}: {error!r}") from error
        if number == batches // 10:
            early = _resident()
        if (number + 1) % 50 == 0:
            print(f"{way}: {(number + 1) * BATCH // 2:,} mutated", file=sys.stderr, flush=True)  # noqa: T201
    grown, seconds = _resident() - early, time.monotonic() - started
    mutated = batches * (BATCH // 2)
    done = f"{way}: {mutated:,} mutated (seeds from {first}), {bad:,} bad, memory +{grown / 1024:.0f} MiB"
    return f"{done}, {seconds:.0f} s"


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())
