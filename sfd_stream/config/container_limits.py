"""What this process may use of the machine: the container's quota, not the host's cores and memory.

Control groups, version 2 and 1: a limit holds for all below it, so the least on the way from the process's group up
to the root is the one that counts. In a container that way is one step long.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfd_stream.config.model import Settings
from sfd_stream.config.types import show_size

MEMORY_SHARE: Final = 0.6
"""Of the memory limit, for sketches and buffers; the rest is for Python, librdkafka's queues and checkpoints."""

# Version 1 has no word for "no limit": it gives the largest number of whole pages.
_V1_UNLIMITED_BYTES: Final = 2**60


@dataclass(frozen=True, slots=True)
class Quota:
    """None means no limit but the machine itself."""

    cpus: float | None
    memory_bytes: int | None

    def shared_by(self, workers: int) -> Quota:
        """The share of each of this many processes."""
        cpus = None if self.cpus is None else self.cpus / workers
        return Quota(cpus, None if self.memory_bytes is None else self.memory_bytes // workers)


def read_quota(root: Path = Path("/"), *, affinity: int | None = None) -> Quota:
    """The least limits that hold for this process. `root` is where /proc and /sys hang."""
    cpus = [*_cpus_v2(root), *_cpus_v1(root)]
    if affinity is not None:
        cpus.append(float(affinity))
    memory = [*_memory_v2(root), *_memory_v1(root)]
    return Quota(min(cpus, default=None), min(memory, default=None))


def own_quota() -> Quota:
    return read_quota(affinity=len(os.sched_getaffinity(0)))


def memory_budget(settings: Settings, quota: Quota) -> int:
    """worker.memory_max_bytes where it was given; else the share of the container's limit; else the default."""
    worker = settings.worker
    if "memory_max_bytes" in worker.model_fields_set or quota.memory_bytes is None:
        return worker.memory_max_bytes
    return int(quota.memory_bytes * MEMORY_SHARE)


def fitted(settings: Settings, quota: Quota) -> Settings:
    """The settings with the memory that this container has."""
    worker = settings.worker.model_copy(update={"memory_max_bytes": memory_budget(settings, quota)})
    return settings.model_copy(update={"worker": worker})


def misfits(settings: Settings, quota: Quota) -> Iterator[str]:
    """What fitted settings ask for and is more than there is: a sentence each.

    Threads are not cut to the quota: another number gives other last bits.
    """
    worker = settings.worker
    if quota.cpus is not None and worker.blas_threads > math.ceil(quota.cpus):
        yield (
            f"worker.blas_threads is {worker.blas_threads}, but the quota is {quota.cpus:g} CPUs:"
            " threads will wait for each other; ask for fewer or raise the CPU limit"
        )
    if quota.memory_bytes is None:
        return
    limit = f"the memory limit is {show_size(quota.memory_bytes)}"
    if worker.memory_max_bytes > quota.memory_bytes * (1 + MEMORY_SHARE) / 2:
        yield (
            f"worker.memory_max_bytes is {show_size(worker.memory_max_bytes)}, but {limit}:"
            " the kernel may end this process; leave it out or raise the limit"
        )
    if settings.sketch.buffer_max_bytes > worker.memory_max_bytes:
        yield (
            f"sketch.buffer_max_bytes is {show_size(settings.sketch.buffer_max_bytes)}, but {limit}:"
            " one partition's buffer may not fit; set it lower or raise the limit"
        )


def _groups(root: Path, controller: str) -> Iterator[str]:
    """The process's group under that controller ("" in version 2) and all above it, as relative paths."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            group = Path(path.lstrip("/"))
            yield from (str(each) for each in (group, *group.parents))
            return
    yield "."


def _cpus_v2(root: Path) -> Iterator[float]:
    for group in _groups(root, ""):
        quota, _, period = _text(root / "sys/fs/cgroup" / group / "cpu.max").partition(" ")
        if quota.isdigit() and period.strip().isdigit():
            yield int(quota) / int(period)


def _cpus_v1(root: Path) -> Iterator[float]:
    for group in _groups(root, "cpu"):
        folder = root / "sys/fs/cgroup/cpu" / group
        quota, period = _text(folder / "cpu.cfs_quota_us").strip(), _text(folder / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit() and int(quota) > 0:  # -1 is no limit
            yield int(quota) / int(period)


def _memory_v2(root: Path) -> Iterator[int]:
    for group in _groups(root, ""):
        limit = _text(root / "sys/fs/cgroup" / group / "memory.max").strip()
        if limit.isdigit():
            yield int(limit)


def _memory_v1(root: Path) -> Iterator[int]:
    for group in _groups(root, "memory"):
        limit = _text(root / "sys/fs/cgroup/memory" / group / "memory.limit_in_bytes").strip()
        if limit.isdigit() and int(limit) < _V1_UNLIMITED_BYTES:
            yield int(limit)


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # another version of control groups, or none
        return ""
