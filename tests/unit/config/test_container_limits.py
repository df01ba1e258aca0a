"""The container's quota, read from trees of control groups as the kernel lays them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfd_stream.config import load
from sfd_stream.config.container_limits import MEMORY_SHARE, Quota, fitted, misfits, read_quota
from sfd_stream.config.model import Settings

GIB = 2**30


def lay(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


OVERRIDES = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t", "checkpoint.url=memory://"]


def settings(**worker: object) -> Settings:
    given = [f"worker.{name}={value}" for name, value in worker.items()]
    return load(None, environ={}, overrides=[*OVERRIDES, "sketch.d=100", *given]).settings


def test_no_control_groups_is_no_limit(tmp_path: Path) -> None:
    assert read_quota(tmp_path) == Quota(None, None)


def test_version_2_in_a_container(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/",
        "sys/fs/cgroup/cpu.max": "150000 100000",
        "sys/fs/cgroup/memory.max": str(GIB),
    }
    assert read_quota(lay(tmp_path, files)) == Quota(1.5, GIB)


def test_version_2_says_max_for_no_limit(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/memory.max": "max"}
    assert read_quota(lay(tmp_path, files)) == Quota(None, None)


def test_a_limit_above_us_holds_for_us(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/pods/one/main",
        "sys/fs/cgroup/pods/one/main/cpu.max": "max 100000",
        "sys/fs/cgroup/pods/one/main/memory.max": str(4 * GIB),
        "sys/fs/cgroup/pods/one/cpu.max": "200000 100000",
        "sys/fs/cgroup/pods/memory.max": str(3 * GIB),
        "sys/fs/cgroup/others/memory.max": str(GIB),
    }
    assert read_quota(lay(tmp_path, files)) == Quota(2.0, 3 * GIB)


def test_version_1(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2 * GIB),
    }
    assert read_quota(lay(tmp_path, files)) == Quota(0.5, 2 * GIB)


def test_version_1_without_limits(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    assert read_quota(lay(tmp_path, files)) == Quota(None, None)


def test_pinned_cores_are_a_quota_too(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}
    assert read_quota(lay(tmp_path, files), affinity=2).cpus == 2.0


def test_memory_follows_the_quota_unless_it_was_given() -> None:
    assert fitted(settings(), Quota(None, GIB)).worker.memory_max_bytes == int(GIB * MEMORY_SHARE)
    assert fitted(settings(memory_max_bytes="512MiB"), Quota(None, GIB)).worker.memory_max_bytes == GIB // 2
    assert fitted(settings(), Quota(None, None)).worker.memory_max_bytes == 2 * GIB


def test_several_workers_share_the_quota() -> None:
    assert Quota(4.0, GIB).shared_by(4) == Quota(1.0, GIB // 4)
    assert Quota(None, None).shared_by(4) == Quota(None, None)


def test_threads_never_follow_the_quota() -> None:
    assert fitted(settings(), Quota(64.0, None)).worker.blas_threads == 1


@pytest.mark.parametrize(
    ("worker", "quota", "said"),
    [
        ({"blas_threads": 4}, Quota(1.5, None), ["worker.blas_threads is 4, but the quota is 1.5 CPUs"]),
        ({"blas_threads": 2}, Quota(1.5, None), []),
        (
            {"memory_max_bytes": "1GiB"},
            Quota(None, GIB),
            ["worker.memory_max_bytes is 1GiB, but the memory limit is 1GiB"],
        ),
        ({"memory_max_bytes": "512MiB"}, Quota(None, GIB), []),
        ({}, Quota(0.1, None), []),
        ({}, Quota(None, GIB // 4), ["sketch.buffer_max_bytes is 256MiB, but the memory limit is 256MiB"]),
    ],
)
def test_what_was_asked_for_and_is_not_there_is_said(worker: dict[str, object], quota: Quota, said: list[str]) -> None:
    found = list(misfits(fitted(settings(**worker), quota), quota))
    assert len(found) == len(said)
    assert all(words.startswith(start) for words, start in zip(found, said, strict=True))


def test_fitted_settings_never_complain_of_memory() -> None:
    assert not list(misfits(fitted(settings(), Quota(None, GIB)), Quota(None, GIB)))
