"""The tree of another commit, from this repository's history, and how its programs are started.

Knows nothing of pytest: the tests of two versions and `benchmarks.compare` both use it.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

HERE = Path(__file__).parents[2]
RELEASED = "75b2d4e"
"""The commit whose workers and checkpoint folders are in use: what comes after it must get along with them."""


class NoHistoryError(Exception):
    """The commit is not in this repository, or this is no repository."""


def extract(revision: str, folder: Path) -> Path:
    """The whole tree of `revision`, by `git archive`, in the new folder `folder`."""
    try:
        archive = subprocess.run(
            ["git", "archive", "--format=tar", f"{revision}^{{commit}}"], cwd=HERE, check=True, capture_output=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        raise NoHistoryError(f"commit {revision} is not in this repository's history: it takes a full clone") from None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def environment_of(tree: Path) -> dict[str, str]:
    """For a process whose `sfd_stream` is that of `tree`, with this environment's packages and one BLAS thread."""
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    return {**os.environ, **one_thread, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
