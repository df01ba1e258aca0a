"""The processor and memory limits of this process: those of its container, not of the host.

Reads control groups of version 2 and 1. A limit holds for all groups below it, so the smallest limit on the path from
the process's group to the root counts. In a container that path has one step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfd_stream.config.model import Settings
from sfd_stream.config.types import size_text

MEMORY_SHARE: Final = 0.6
"""Share of the memory limit for sketches and buffers. Python, librdkafka's queues and checkpoints need the rest."""

# Version 1 has no value for "no limit": it returns the largest number of whole pages.
_V1_UNLIMITED_BYTES: Final = 2**60


@dataclass(frozen=True, slots=True)
class Quota:
    """None means that only the machine is the limit."""

    cpus: float | None
    memory_bytes: int | None

    def shared_by(self, workers: int) -> Quota:
        """The share of each of this many processes."""
        cpus = None if self.cpus is None else self.cpus / workers
        return Quota(cpus, None if self.memory_bytes is None else self.memory_bytes // workers)


def read_quota(root: Path = Path("/"), *, affinity: int | None = None) -> Quota:
    """The smallest limits that hold for this process. `root` is the folder of /proc and /sys."""
    cpus = [*_cpus(root), *([] if affinity is None else [float(affinity)])]
    return Quota(min(cpus, default=None), min(_memory_bytes(root), default=None))


def own_quota() -> Quota:
    return read_quota(affinity=len(os.sched_getaffinity(0)))


def memory_budget(settings: Settings, quota: Quota) -> int:
    """worker.memory_max_bytes if it was set, else the share of the container's limit, else the default."""
    worker = settings.worker
    if "memory_max_bytes" in worker.model_fields_set or quota.memory_bytes is None:
        return worker.memory_max_bytes
    return int(quota.memory_bytes * MEMORY_SHARE)


def fitted(settings: Settings, quota: Quota) -> Settings:
    """The settings with the memory budget of this container."""
    worker = settings.worker.model_copy(update={"memory_max_bytes": memory_budget(settings, quota)})
    return settings.model_copy(update={"worker": worker})


def misfits(settings: Settings, quota: Quota) -> Iterator[str]:
    """One sentence for each limit that fitted settings exceed.

    The number of threads is not reduced to the quota: another number of threads changes the last bits of results.
    """
    worker = settings.worker
    if quota.cpus is not None and worker.blas_threads > math.ceil(quota.cpus):
        yield (
            f"worker.blas_threads is {worker.blas_threads}, but the quota is {quota.cpus:g} CPUs:"
            " threads will wait for each other; ask for fewer or raise the CPU limit"
        )
    if quota.memory_bytes is None:
        return
    limit = f"the memory limit is {size_text(quota.memory_bytes)}"
    if worker.memory_max_bytes > quota.memory_bytes * (1 + MEMORY_SHARE) / 2:
        yield (
            f"worker.memory_max_bytes is {size_text(worker.memory_max_bytes)}, but {limit}:"
            " the kernel may end this process; leave it out or raise the limit"
        )
    if settings.sketch.buffer_max_bytes > worker.memory_max_bytes:
        yield (
            f"sketch.buffer_max_bytes is {size_text(settings.sketch.buffer_max_bytes)}, but {limit}:"
            " one partition's buffer may not fit; set it lower or raise the limit"
        )


def _groups(root: Path, controller: str) -> Iterator[str]:
    """The process's group under that controller ("" in version 2) and all its parents, as relative paths."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = Path(path.lstrip("/"))
            yield from (str(each) for each in (group, *group.parents))
            return
    yield "."


def _values(root: Path, controller: str, *files: str) -> Iterator[list[str]]:
    """The words in these files, for each group. Version 1 has a folder for each controller."""
    for group in _groups(root, controller):
        folder = root / "sys/fs/cgroup" / controller / group
        yield " ".join(_text(folder / file) for file in files).split()


def _cpus(root: Path) -> Iterator[float]:
    for words in (*_values(root, "", "cpu.max"), *_values(root, "cpu", "cpu.cfs_quota_us", "cpu.cfs_period_us")):
        if len(words) == 2 and all(map(str.isdigit, words)):  # no limit is "max" in version 2, -1 in version 1
            yield int(words[0]) / int(words[1])


def _memory_bytes(root: Path) -> Iterator[int]:
    for words in (*_values(root, "", "memory.max"), *_values(root, "memory", "memory.limit_in_bytes")):
        if words and words[0].isdigit() and int(words[0]) < _V1_UNLIMITED_BYTES:
            yield int(words[0])


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # another version of control groups, or none
        return ""
