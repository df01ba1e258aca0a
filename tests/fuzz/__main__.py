"""`python -m tests.fuzz`: see the package's docstring. Exit code 1 if a decoder failed."""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import time
from pathlib import Path

from tests.fuzz.engine import Fuzzer
from tests.fuzz.targets import targets

CORPUS = Path(__file__).with_name("corpus")
TURN_S = 2.0


def main() -> int:
    known = targets()
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes the decoders.")
    parser.add_argument("targets", nargs="*", choices=[*known, []], help="All of them by default.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wanted = given.targets or list(known)
    fuzzers = {
        name: Fuzzer(known[name].run, list(known[name].inputs), random.Random(f"{given.seed} {name}"))
        for name in wanted
    }
    found = fuzz(fuzzers, time.monotonic() + 60 * given.minutes)
    for name, fuzzer in fuzzers.items():
        print(
            f"{name:16} {fuzzer.tried:9,} inputs, {len(fuzzer.inputs):5,} kept, {len(fuzzer.reached):5,} lines reached"
            f"{', ' + str(found.count(name)) + ' failures' if name in found else ''}"
        )
    return 1 if found else 0


def fuzz(fuzzers: dict[str, Fuzzer], deadline: float) -> list[str]:
    """The targets that failed, once per different input."""
    found: list[str] = []
    while time.monotonic() < deadline:
        for name, fuzzer in fuzzers.items():
            turn = time.monotonic() + TURN_S
            while time.monotonic() < min(turn, deadline):
                failing = fuzzer.step()
                if failing is not None and keep(name, failing):
                    found.append(name)
    return found


def keep(name: str, data: bytes) -> bool:
    """Writes a failing input to the corpus; whether it was new."""
    path = CORPUS / name / hashlib.sha256(data).hexdigest()[:16]
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"{name}: fails on {data!r:.300}, kept as {path}")
    return True


if __name__ == "__main__":
    sys.exit(main())
