"""Runs the tests that failed in the last run of pytest once more, alone: python -m tests.support.again [ARGUMENT...]

A test on real parts may miss its time on a machine whose cores others use too. It gets one more run, after all others.
Both results are printed, so that such a test is seen and fixed. More than a few failures are no accident: exit code 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 3
"""With more failures than this nothing is run again."""


def main() -> int:
    cache = ROOT / ".pytest_cache/v/cache/lastfailed"
    failed = names_of(json.loads(cache.read_text(encoding="utf-8")))
    cache.unlink()  # the names with a group would stay in it
    print(f"\nfailed: {', '.join(failed)}", flush=True)  # noqa: T201
    if not 0 < len(failed) <= MOST:
        return 1
    print(f"running once more, alone: {len(failed)}", flush=True)  # noqa: T201
    return subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:], *failed], cwd=ROOT, check=False).returncode


def names_of(failed: dict[str, bool]) -> list[str]:
    """Without the group that xdist appends to a name."""
    names = (name.rpartition("@")[0] if "@" in name.rpartition("]")[2] else name for name in failed)
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    sys.exit(main())
