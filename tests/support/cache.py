"""What tests download or build once per machine, shared by all test processes and all clones.

Correctness does not depend on which process runs which test: every folder is filled under a file lock, in a temporary
place, and renamed when it is complete. A half-filled folder is never visible.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "sfd-stream"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file lock. The kernel releases it when the process ends, for any reason."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def filled_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """`folder`, filled by the first process that asks for it. Others wait. If `fill` raises, nothing is left."""
    with locked(folder.parent / f"{folder.name}.lock"):
        if not folder.is_dir():
            fresh = folder.parent / f"{folder.name}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            fill(fresh)
            fresh.rename(folder)
    return folder
