"""Checkpoints in a folder. A completed write survives a loss of power; an incomplete one never gets its name.

    create  temp file, fsync, link to the name (atomic: fails if the name exists), unlink temp, fsync folder
    put     temp file, fsync, rename to the name, fsync folder

Readers get the old state or the new one. A crash leaves at most a temp file: no list contains it, and `remove_stale`
removes it. The file system must have hard links. An NFS mount must not cache changes of other clients
(`lookupcache=none,actimeo=0`): LIST and GET must include every earlier write.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import secrets
import shutil
import stat
import threading
from typing import TYPE_CHECKING, Literal

from sfd_stream.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sfd_stream.storage.contract import check_key, check_prefix, is_safe_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Access = Literal["owner", "group", "everyone"]
_MODES = {"owner": (0o600, 0o700), "group": (0o660, 0o770), "everyone": (0o644, 0o755)}
"""Modes of files and of folders."""

_TEMPORARY_PREFIX = ".tmp-"
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_RIGHTS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
# EEXIST comes from creating a folder where a file exists.
_NOT_A_PLACE = frozenset({errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
_NOT_OFFERED = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})


class DiskStore:
    """The guarantees depend on two calls, `fsync` and `link`; tests make them fail."""

    def __init__(
        self,
        root: Path,
        *,
        access: Access = "owner",
        fsync: Callable[[int], None] = os.fsync,
        link: Callable[[Path, Path], None] = os.link,
    ) -> None:
        self._root = root
        self.url = root.as_uri()
        self._file_mode, self._folder_mode = _MODES[access]
        self._fsync = fsync
        self._link = link
        self._lock = threading.Lock()
        self._durable_folders: set[Path] = set()
        self._unsure_folders: set[Path] = set()

    def __repr__(self) -> str:
        return f"DiskStore({self.url!r})"

    def create_if_absent(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._named("create", key):
            if os.path.lexists(path):
                raise self._exists(path, key)
            self._write(path, data, self._link_once)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._named("write", key):
            self._write(path, data, os.replace)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        path = self._path(key)
        with self._named("read", key):
            self._settle(path.parent)
            try:
                # A pipe must not block us, and a device must not be read at all.
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise ObjectMissingError(f"no {key} in {self.url}") from None
            try:
                return self._content(descriptor, key, max_bytes)
            finally:
                os.close(descriptor)

    def _content(self, descriptor: int, key: str, max_bytes: int | None) -> bytes:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise ObjectMissingError(f"no {key} in {self.url}")
        if not stat.S_ISREG(mode):
            raise StoreRefusedError(f"{key} in {self.url} is not a regular file; remove it")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read() if max_bytes is None else file.read(max_bytes + 1)

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        folder = check_prefix(prefix)
        with self._named("list", prefix):
            keys = sorted(self._walk(self._root / folder, folder))
        return [key for key in keys if start_after is None or key > start_after]

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._named("delete", key), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()
            self._sync_folder(path.parent)

    def remove_stale(self, prefix: str = "") -> int:
        """Removes temp files below `prefix` whose writers have ended. Returns their number.

        A writer locks its temp file while it lives, so no clock is needed. Where locks do not work (some NFS mounts), a
        running writer may lose its temp file: then its link fails, and it raises an error.
        """
        folder = self._root / check_prefix(prefix)
        with self._named("clean", prefix):
            return sum(_remove_if_stale(path) for path in folder.rglob(f"{_TEMPORARY_PREFIX}*"))

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _write(self, path: Path, data: bytes, publish: Callable[[Path, Path], None]) -> None:
        """Gives `data` its name by `publish` once it is on the disk, then puts the name on the disk too."""
        self._make_durable_folder(path.parent)
        with self._temporary(path.parent) as (descriptor, temporary):
            with open(descriptor, "wb", closefd=False) as file:
                file.write(data)
            # After a failed fsync the kernel may have dropped the pages, so this file never gets its name.
            self._fsync(descriptor)
            publish(temporary, path)
        self._sync_folder(path.parent)

    def _link_once(self, temporary: Path, path: Path) -> None:
        try:
            self._link(temporary, path)
        except FileExistsError:
            # NFS may repeat a link whose answer was lost, and then find our own name: the link count decides.
            if temporary.stat().st_nlink != 2:
                raise self._exists(path, path.relative_to(self._root).as_posix()) from None
        except OSError as error:
            if error.errno in _NO_HARD_LINKS and os.access(path.parent, os.W_OK):
                raise StoreRefusedError(
                    f"{self.url} is on a file system without hard links ({error.strerror}), and an atomic "
                    f"create needs them; use another file system or an object store for checkpoint.url"
                ) from error
            raise

    def _exists(self, path: Path, key: str) -> StoreError:
        if path.is_dir():
            return StoreRefusedError(f"{key} is a folder in {self.url}, it can't be an object too")
        return ObjectExistsError(f"{key} exists in {self.url}")

    @contextlib.contextmanager
    def _temporary(self, folder: Path) -> Iterator[tuple[int, Path]]:
        """A new file that only we know, locked while we use it. Its temp name is removed at the end."""
        descriptor, path = _open_temporary(folder)
        try:
            os.fchmod(descriptor, self._file_mode)  # whatever the umask
            yield descriptor, path
        finally:
            # Closed first: NFS keeps a file that is removed while open under another name.
            os.close(descriptor)
            with contextlib.suppress(OSError):
                path.unlink()

    def _make_durable_folder(self, folder: Path) -> None:
        """Creates the folder and syncs it into its parents.

        A folder that exists is synced too: the process that created it may have ended before the sync.
        """
        if folder in self._durable_folders and folder.is_dir():
            return
        with self._lock:
            top = next(parent for parent in self._root.parents if parent.exists())
            self._make_folders(folder)
            chain = list(itertools.takewhile(lambda one: one != top, (folder, *folder.parents)))
            for one in chain:
                self._fsync_parent(one)
            # Only now: a folder is no safer than the folders above it.
            self._durable_folders.update(chain)

    def _make_folders(self, folder: Path) -> None:
        """Like `mkdir -p`, with our rights on each new folder, independent of the umask. A group that a folder inherits
        from the one above it, as on a volume with an fsGroup, stays.
        """
        missing = list(itertools.takewhile(lambda one: not one.exists(), (folder, *folder.parents)))
        for one in reversed(missing or [folder]):
            try:
                one.mkdir(self._folder_mode)
            except FileExistsError:
                if not one.is_dir():
                    raise
                continue  # another process has just created it: its creator sets the rights
            except FileNotFoundError as error:
                if not one.parent.is_dir():
                    raise
                raise StoreRefusedError(
                    f"can't create folder {one}, although {one.parent} exists: {error.strerror}; set checkpoint.url "
                    "to a folder of a file system that takes new folders"
                ) from error
            one.chmod(self._folder_mode | (one.stat().st_mode & stat.S_ISGID))

    def _fsync_parent(self, folder: Path) -> None:
        try:
            self._fsync_folder(folder.parent)
        except PermissionError:
            # Above our root a folder need not be readable for us; its creator has made it durable.
            if folder != self._root:
                raise

    def _sync_folder(self, folder: Path) -> None:
        """Puts the folder's names on the disk. If that fails, notes the folder."""
        try:
            self._fsync_folder(folder)
        except OSError:
            with self._lock:
                self._unsure_folders.add(folder)
            raise

    def _settle(self, folder: Path) -> None:
        """A name that we created but could not sync must not count as durable just because it can be read."""
        if folder not in self._unsure_folders:
            return
        # Under the lock, so that a failure of another sync meanwhile is noted after this one, and is not lost.
        with self._lock:
            self._fsync_folder(folder)
            self._unsure_folders.discard(folder)

    def _fsync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)

    def _walk(self, folder: Path, prefix: str) -> Iterator[str]:
        self._settle(folder)
        try:
            with os.scandir(folder) as entries:
                # A name that can't be a key is not ours: temp files, a volume's lost+found.
                found = [(entry.name, entry.is_dir()) for entry in entries if is_safe_part(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            return
        for name, is_folder in found:
            key = f"{prefix}/{name}" if prefix else name
            if is_folder:
                yield from self._walk(folder / name, key)
            else:
                yield key

    @contextlib.contextmanager
    def _named(self, verb: str, key: str) -> Iterator[None]:
        """Raises errors of the operating system as our own, with what to do."""
        try:
            yield
        except OSError as error:
            raise self._translated(
                error, f"can't {verb} {key or 'anything'} in {self.url}: {error.strerror}"
            ) from error

    def _translated(self, error: OSError, what: str) -> StoreError:
        if error.errno in _FULL:
            return StoreUnavailableError(f"{what}; {self._room()}: make room, or lower checkpoint.keep")
        if error.errno in _NO_RIGHTS:
            return StoreRefusedError(f"{what}; the worker's user must be able to write there")
        if error.errno in _NOT_A_PLACE:
            return StoreRefusedError(f"{what}; checkpoint.url must be a folder that holds nothing else")
        if error.errno in _NOT_OFFERED:
            return StoreRefusedError(f"{what}; set checkpoint.url to a folder on another file system")
        return StoreUnavailableError(what)

    def _room(self) -> str:
        try:
            usage = shutil.disk_usage(self._root)
        except OSError:
            return "the disk is full"
        return f"{usage.free:,} of {usage.total:,} bytes are free"


def _open_temporary(folder: Path) -> tuple[int, Path]:
    while True:
        path = folder / f"{_TEMPORARY_PREFIX}{secrets.token_hex(12)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # A cleaner may have removed the file between the open and the lock: use another name.
        if _lock(descriptor) is not False and os.fstat(descriptor).st_nlink == 1:
            return descriptor, path
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Whether the lock is ours; None where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove_if_stale(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        stale = _lock(descriptor) is True
        if stale:
            path.unlink(missing_ok=True)
        return stale
    finally:
        os.close(descriptor)
