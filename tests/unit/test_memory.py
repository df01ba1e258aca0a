"""The collector visits few of many records, and still finds what is in a cycle. Threads share one pool of memory."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfd_stream.memory import NEW_OBJECTS_MAX, collected_seldom


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


THREADS = """
import ctypes, sys, threading
from sfd_stream.memory import share_one_arena

if sys.argv[2] == "shared":
    share_one_arena()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
everyone = threading.Barrier(8)

def allocate():
    libc.malloc(ctypes.c_size_t(1_000))
    everyone.wait()

threads = [threading.Thread(target=allocate) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has arenas")
def test_threads_share_one_arena(tmp_path: Path) -> None:
    def arenas(how: str) -> int:
        file = tmp_path / how
        subprocess.run([sys.executable, "-c", THREADS, str(file), how], check=True, timeout=60)
        return file.read_text().count("<heap ")

    assert (arenas("shared"), arenas("as it is") > 1) == (1, True)
