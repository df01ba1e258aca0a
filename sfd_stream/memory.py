"""How programs that take many records manage their memory."""

from __future__ import annotations

import ctypes
import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW_OBJECTS_MAX = 50_000
"""The collector runs when there are this many more objects than after its last run: more than the records of a poll,
few enough that what it finds is some megabytes."""

_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_one_arena() -> None:
    """Makes all threads share one of the C library's pools of memory. To be called before threads begin.

    By default glibc gives most threads a pool of their own, up to eight for each core, and free memory of one pool is
    not used by another. The Kafka client allocates messages on many threads and frees them on ours: an overloaded
    worker used half as much memory again. Other C libraries have no such setting, and no such pools.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(_M_ARENA_MAX, 1)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Python's collector runs seldom while a program runs, and never visits the objects that exist at its beginning.

    Each record is an object that it visits. With Python's thresholds it runs every 700 objects: that took a quarter of
    the loop's time, and found nothing, since records are in no cycles.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
