"""The collector of a program that takes many records: it visits few of them, and still finds what is in a cycle."""

from __future__ import annotations

import gc
from typing import Any

from sfd_stream.garbage import NEW_OBJECTS_MAX, collected_seldom


def test_records_of_many_polls_cause_no_collection_and_cycles_are_still_found() -> None:
    runs: list[str] = []
    before = gc.get_threshold()
    gc.callbacks.append(lambda phase, _: runs.append(phase))
    try:
        with collected_seldom():
            for _ in range(10 * NEW_OBJECTS_MAX // 4_000):
                records = [[] for _ in range(4_000)]
            assert (len(records), runs) == (4_000, [])
            for _ in range(2 * NEW_OBJECTS_MAX):
                cycle: list[Any] = []
                cycle.append(cycle)
            assert runs
    finally:
        gc.callbacks.pop()
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)
