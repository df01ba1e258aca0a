"""A disk that says no: full, read-only, without rights; on real file systems where this machine allows it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sfd_stream.errors import StoreRefusedError, StoreUnavailableError
from sfd_stream.storage.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def _as_nobody() -> Iterator[None]:
    """Without root's rights, to which mode bits do not apply.

    For this thread alone: seteuid interrupts all threads by a signal, and librdkafka's built-in broker, which another
    test of this process may use, does not survive that.
    """
    libc, is_root = ctypes.CDLL(None), os.geteuid() == 0
    if is_root:
        libc.setfsuid(65534)
    try:
        yield
    finally:
        if is_root:
            libc.setfsuid(0)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a tmpfs: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_said_in_words_and_harms_nothing(small_disk: Path) -> None:
    store = DiskStore(small_disk / "root")
    store.put("a/1", b"x" * 5_000_000)
    for call in (store.put, store.create_if_absent):
        with pytest.raises(StoreUnavailableError, match=r"bytes are free: make room"):
            call("a/2", b"y" * 5_000_000)
    assert store.list("") == ["a/1"]
    assert _files(small_disk) == ["1"]
    store.delete("a/1")
    store.create_if_absent("a/2", b"y" * 5_000_000)
    assert len(store.get("a/2")) == 5_000_000


def test_a_read_only_disk_refuses_writes_and_still_reads(small_disk: Path) -> None:
    store = DiskStore(small_disk / "root")
    store.put("a/1", b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a/1", b"y"),
        lambda: store.create_if_absent("a/2", b"y"),
        lambda: store.create_if_absent("new/1", b"y"),
        lambda: store.delete("a/1"),
    ]
    for call in calls:
        with pytest.raises(StoreRefusedError, match="Read-only file system"):
            call()
    assert store.get("a/1") == b"x"
    assert store.list("") == ["a/1"]


def test_a_folder_without_rights_is_refused(open_folder: Path) -> None:
    store = DiskStore(open_folder / "root", access="everyone")
    store.put("a/1", b"x")
    (open_folder / "root" / "a").chmod(0o555)
    calls: list[Callable[[], object]] = [
        lambda: store.put("a/1", b"y"),
        lambda: store.create_if_absent("a/2", b"y"),
        lambda: store.delete("a/1"),
    ]
    with _as_nobody():
        for call in calls:
            with pytest.raises(StoreRefusedError, match="Permission denied"):
                call()
        assert store.get("a/1") == b"x"
        assert store.list("") == ["a/1"]


def test_a_root_below_a_folder_that_we_may_not_read_works(open_folder: Path) -> None:
    root = open_folder / "closed" / "root"
    root.mkdir(parents=True)
    root.chmod(0o777)
    (open_folder / "closed").chmod(0o711)
    with _as_nobody():
        DiskStore(root).create_if_absent("a/1", b"x")
    assert DiskStore(root).get("a/1") == b"x"


def test_what_others_keep_in_the_folder_is_no_key_of_ours(open_folder: Path) -> None:
    DiskStore(open_folder, access="everyone").put("a/1", b"x")
    (open_folder / "lost+found").mkdir(mode=0o000)
    (open_folder / "a" / ".nfs0001").write_bytes(b"")
    (open_folder / "a" / ".tmp-0001").write_bytes(b"")
    with _as_nobody():
        assert DiskStore(open_folder).list("") == ["a/1"]


@pytest.mark.parametrize("folder", ["/proc/nope", "/proc/nope/deeper", "/dev/null/below"])
def test_a_folder_that_can_never_be_created_is_refused_at_once(folder: str) -> None:
    """/proc answers ENOENT to a mkdir although the folder above exists: waiting does not change that."""
    store = DiskStore(Path(folder))
    assert store.list("") == []
    for call in (store.put, store.create_if_absent):
        with pytest.raises(StoreRefusedError, match=r"checkpoint\.url"):
            call("group/topic/0/1", b"x")


def test_a_folder_that_is_removed_while_one_is_created_in_it_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, mkdir = DiskStore(tmp_path / "root"), Path.mkdir

    def removed_first(path: Path, *args: Any, **named: Any) -> None:
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        mkdir(path, *args, **named)

    (tmp_path / "root").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", removed_first)
        with pytest.raises(StoreUnavailableError):
            store.put("a/b/1", b"x")
    store.put("a/b/1", b"x")
    assert store.get("a/b/1") == b"x"
