"""How often Python looks for garbage in cycles, in programs that take many records: seldom.

Each record is an object that Python's collector visits. With Python's thresholds it runs every 700 objects: that took
a quarter of the loop's time, and found nothing, since records are in no cycles.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NEW_OBJECTS_MAX = 50_000
"""The collector runs when there are this many more objects than after its last run: more than the records of a poll,
few enough that what it finds is some megabytes."""


@contextmanager
def collected_seldom() -> Iterator[None]:
    """For a program's run. The collector never visits the objects that exist at its beginning."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_MAX, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
