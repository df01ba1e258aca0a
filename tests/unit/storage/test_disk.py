"""What a disk must do in which order, and what is left when a step fails or the power goes between two."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfd_stream.cli.build import store_of
from sfd_stream.config import load
from sfd_stream.errors import ObjectExistsError, StoreRefusedError, StoreUnavailableError
from sfd_stream.storage.disk import DiskStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from sfd_stream.storage.disk import Access

KILLED_AT_FSYNC = """
import os, pathlib, signal, sys
from sfd_stream.storage.disk import DiskStore

def fsync(descriptor):
    os.fsync(descriptor)
    if ".tmp-" in os.readlink(f"/proc/self/fd/{descriptor}"):
        os.kill(os.getpid(), signal.SIGKILL)

getattr(DiskStore(pathlib.Path(sys.argv[1]), fsync=fsync), sys.argv[2])("a/1", b"never seen")
"""


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def _is_temporary(path: Path) -> bool:
    return path.name.startswith(".tmp-")


def _files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def _failing(number: int, when: Callable[[Path], bool]) -> Callable[[int], None]:
    """An fsync that fails with `number` on the paths for which `when` holds."""

    def fsync(descriptor: int) -> None:
        if when(_path_of(descriptor)):
            raise OSError(number, os.strerror(number))
        os.fsync(descriptor)

    return fsync


@pytest.mark.parametrize("verb", ["create_if_absent", "put"])
def test_content_is_synced_before_its_name_and_the_name_before_the_return(tmp_path: Path, verb: str) -> None:
    root = tmp_path / "not" / "yet"
    named = root / "a" / "b" / "1"
    synced: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        os.fsync(descriptor)
        synced.append((_path_of(descriptor), named.exists()))

    getattr(DiskStore(root, fsync=fsync), verb)("a/b/1", b"x")
    at = next(at for at, (path, _) in enumerate(synced) if _is_temporary(path))
    assert synced[at][1] is False
    assert synced[at + 1 :] == [(named.parent, True)]
    folders = {path for path, _ in synced[:at]}
    assert folders >= {root / "a", root, root.parent, tmp_path}


def test_a_delete_is_synced_before_it_returns(tmp_path: Path) -> None:
    synced: list[tuple[Path, bool]] = []

    def fsync(descriptor: int) -> None:
        synced.append((_path_of(descriptor), (tmp_path / "a" / "1").exists()))

    DiskStore(tmp_path).put("a/1", b"x")
    DiskStore(tmp_path, fsync=fsync).delete("a/1")
    assert synced == [(tmp_path / "a", False)]


def test_folders_that_another_process_made_are_synced_before_they_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "root" / "a").mkdir(parents=True)
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        synced.append(_path_of(descriptor))

    store = DiskStore(tmp_path / "root", fsync=fsync)
    store.put("a/1", b"x")
    assert {tmp_path, tmp_path / "root"} <= set(synced)
    synced.clear()
    store.put("a/2", b"x")
    assert len(synced) == 2, "once is enough: then the file and its folder only"


@pytest.mark.parametrize("verb", ["create_if_absent", "put"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_content_that_could_not_be_synced_never_gets_its_name(tmp_path: Path, verb: str, number: int) -> None:
    store = DiskStore(tmp_path / "root", fsync=_failing(number, _is_temporary))
    with pytest.raises(StoreUnavailableError, match="a/1"):
        getattr(store, verb)("a/1", b"x")
    assert store.list("") == []
    assert _files(tmp_path) == []


def test_a_failed_replacement_leaves_the_old_content(tmp_path: Path) -> None:
    DiskStore(tmp_path).put("a/1", b"old")
    with pytest.raises(StoreUnavailableError):
        DiskStore(tmp_path, fsync=_failing(errno.EIO, _is_temporary)).put("a/1", b"new")
    assert DiskStore(tmp_path).get("a/1") == b"old"


def test_a_name_that_could_not_be_synced_is_not_shown_until_it_is(tmp_path: Path) -> None:
    broken = threading.Event()
    broken.set()
    folder = tmp_path / "a"
    store = DiskStore(tmp_path, fsync=_failing(errno.EIO, lambda path: path == folder and broken.is_set()))
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"x")
    for call in (lambda: store.get("a/1"), lambda: store.list("a"), lambda: store.list("")):
        with pytest.raises(StoreUnavailableError):
            call()
    broken.clear()
    assert store.list("a") == ["a/1"]
    assert store.get("a/1") == b"x"
    with pytest.raises(ObjectExistsError):
        store.create_if_absent("a/1", b"x")


def test_a_failed_sync_is_not_forgotten_because_an_earlier_one_ends_well(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    first_syncs, second_failed = threading.Event(), threading.Event()
    syncs = iter(["slow", "fails", "works"])

    def fsync(descriptor: int) -> None:
        how = next(syncs) if _path_of(descriptor) == folder else "works"
        if how == "slow":
            first_syncs.set()
            assert second_failed.wait(30)
        if how == "fails":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = DiskStore(tmp_path, fsync=fsync)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(store.create_if_absent, "a/1", b"x")
        assert first_syncs.wait(30)
        with pytest.raises(StoreUnavailableError):
            store.create_if_absent("a/2", b"y")
        second_failed.set()
        first.result()
    assert store.get("a/2") == b"y"
    assert next(syncs, None) is None, "the read had to sync the folder first"


def test_a_folder_is_trusted_only_when_all_above_it_are_synced(tmp_path: Path) -> None:
    broken = threading.Event()
    broken.set()
    synced: set[Path] = set()

    def fsync(descriptor: int) -> None:
        if _path_of(descriptor) == tmp_path and broken.is_set():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced.add(_path_of(descriptor))

    store = DiskStore(tmp_path / "root", fsync=fsync)
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"x")
    assert store.list("") == []
    broken.clear()
    store.create_if_absent("a/1", b"x")
    assert tmp_path in synced


@pytest.mark.parametrize("verb", ["create_if_absent", "put"])
def test_a_crash_between_content_and_name_leaves_nothing_to_see(tmp_path: Path, verb: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED_AT_FSYNC, str(tmp_path), verb], check=False)
    assert done.returncode == -signal.SIGKILL
    store = DiskStore(tmp_path)
    assert len(_files(tmp_path)) == 1, "the temp file shows that the crash came after it"
    assert store.list("") == []
    store.create_if_absent("a/1", b"the next owner's")
    assert store.remove_stale() == 1
    assert _files(tmp_path) == ["1"]


def test_cleaning_up_spares_the_temp_file_of_a_living_writer(tmp_path: Path) -> None:
    cleaned: list[int] = []

    def fsync(descriptor: int) -> None:
        if _is_temporary(_path_of(descriptor)):
            cleaned.append(DiskStore(tmp_path).remove_stale())

    DiskStore(tmp_path, fsync=fsync).create_if_absent("a/1", b"x")
    assert cleaned == [0]
    assert DiskStore(tmp_path).get("a/1") == b"x"


def test_a_writer_whose_temp_file_is_taken_away_says_so_and_writes_nothing(tmp_path: Path) -> None:
    def fsync(descriptor: int) -> None:
        if _is_temporary(_path_of(descriptor)):
            _path_of(descriptor).unlink()

    store = DiskStore(tmp_path, fsync=fsync)
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"x")
    with pytest.raises(StoreUnavailableError):
        store.put("a/1", b"x")
    assert DiskStore(tmp_path).list("") == []


def test_an_own_link_that_nfs_reports_as_existing_counts_as_created(tmp_path: Path) -> None:
    def link(source: Path, target: Path) -> None:
        os.link(source, target)
        raise FileExistsError(errno.EEXIST, "the answer to the first try was lost")

    DiskStore(tmp_path, link=link).create_if_absent("a/1", b"own")
    assert DiskStore(tmp_path).get("a/1") == b"own"
    assert _files(tmp_path) == ["1"]


def test_anothers_link_at_the_last_moment_wins(tmp_path: Path) -> None:
    def link(source: Path, target: Path) -> None:
        DiskStore(tmp_path).create_if_absent("a/1", b"another's")
        os.link(source, target)

    with pytest.raises(ObjectExistsError):
        DiskStore(tmp_path, link=link).create_if_absent("a/1", b"own")
    assert DiskStore(tmp_path).get("a/1") == b"another's"
    assert _files(tmp_path) == ["1"]


def test_writers_are_not_disturbed_by_cleaners(tmp_path: Path) -> None:
    store, cleaner = DiskStore(tmp_path), DiskStore(tmp_path)
    keys = [f"a/{number:03d}" for number in range(60)]
    writing = threading.Event()
    writing.set()

    def clean() -> None:
        while writing.is_set():
            cleaner.remove_stale()

    with ThreadPoolExecutor(5) as pool:
        cleaning = pool.submit(clean)
        try:
            list(pool.map(lambda key: store.create_if_absent(key, key.encode()), keys))
        finally:
            writing.clear()
        cleaning.result()
    assert store.list("a") == keys
    assert _files(tmp_path) == [key.removeprefix("a/") for key in keys]


def test_where_there_are_no_locks_nothing_is_cleaned_and_writing_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    store = DiskStore(tmp_path)
    store.create_if_absent("a/1", b"x")
    (tmp_path / "a" / ".tmp-0001").write_bytes(b"perhaps alive")
    assert store.remove_stale() == 0
    assert _files(tmp_path) == [".tmp-0001", "1"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, number: int) -> None:
    def link(_source: Path, _target: Path) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StoreRefusedError, match="without hard links"):
        DiskStore(tmp_path, link=link).create_if_absent("a/1", b"x")
    assert _files(tmp_path) == []


def test_a_folder_removed_behind_our_back_is_made_again(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "root")
    store.put("a/1", b"x")
    (tmp_path / "root" / "a" / "1").unlink()
    (tmp_path / "root" / "a").rmdir()
    store.create_if_absent("a/1", b"y")
    assert store.get("a/1") == b"y"


def test_a_folder_is_no_object_and_an_object_no_folder(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("a/b/1", b"x")
    for call in (store.put, store.create_if_absent):
        with pytest.raises(StoreRefusedError):
            call("a/b", b"y")
        with pytest.raises(StoreRefusedError):
            call("a/b/1/c", b"y")
    assert store.list("") == ["a/b/1"]


def test_a_pipe_or_a_device_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A read of the pipe would wait for a writer; one of the device would never end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for key in ("pipe", "device"):
        with pytest.raises(StoreRefusedError, match="is not a regular file"):
            DiskStore(tmp_path).get(key, max_bytes=10)


def test_a_link_out_of_the_root_is_the_administrators_and_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "elsewhere")
    DiskStore(tmp_path / "root").put("a/1", b"x")
    assert (tmp_path / "elsewhere" / "a" / "1").read_bytes() == b"x"


ACCESS = {None: (0o600, 0o700), "owner": (0o600, 0o700), "group": (0o660, 0o770), "everyone": (0o644, 0o755)}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o027])
@pytest.mark.parametrize("access", ACCESS)
def test_files_and_folders_are_open_to_those_who_were_chosen_whatever_the_umask(
    access: Access | None, umask: int, tmp_path: Path
) -> None:
    root = tmp_path / "above" / "checkpoints"
    store = DiskStore(root) if access is None else DiskStore(root, access=access)
    before = os.umask(umask)
    try:
        store.create_if_absent("group/topic/1", b"x")
        store.put("group/topic/2", b"x")
    finally:
        os.umask(before)
    files, folders = ACCESS[access]
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*")}
    assert modes == {
        "above": folders,
        "above/checkpoints": folders,
        "above/checkpoints/group": folders,
        "above/checkpoints/group/topic": folders,
        "above/checkpoints/group/topic/1": files,
        "above/checkpoints/group/topic/2": files,
    }


@pytest.mark.parametrize("access", ["owner", "group", "everyone"])
def test_the_folder_that_was_there_keeps_its_rights_and_its_group_is_inherited(access: Access, tmp_path: Path) -> None:
    """A volume with an fsGroup: its root belongs to the group, with the set-group-ID bit."""
    root = tmp_path / "volume"
    root.mkdir()
    root.chmod(0o2775)
    DiskStore(root, access=access).put("group/1", b"x")
    assert root.stat().st_mode & 0o7777 == 0o2775
    assert (root / "group").stat().st_mode & 0o7777 == ACCESS[access][1] | 0o2000


def test_a_folder_that_another_makes_at_the_same_moment_keeps_its_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its owner may change them: two workers with users of their own would refuse each other."""
    made, exists = tmp_path / "group", Path.exists
    made.mkdir()
    made.chmod(0o711)
    monkeypatch.setattr(Path, "exists", lambda path: path != made and exists(path))
    DiskStore(tmp_path).put("group/1", b"x")
    assert made.stat().st_mode & 0o777 == 0o711


def test_the_setting_reaches_the_store(tmp_path: Path) -> None:
    given = ["kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t", "sketch.d=50"]
    given += [f"checkpoint.url={tmp_path.as_uri()}", "checkpoint.file_access=group"]
    store_of(load(None, environ={}, overrides=given).settings).put("a/1", b"x")
    assert (tmp_path / "a" / "1").stat().st_mode & 0o777 == 0o660
