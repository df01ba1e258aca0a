"""Checks the checkpoint store: connection, contract, free space. All that is written is removed again."""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sfd_stream.doctor.check import Check, Finding, failed, good, skipped, warning
from sfd_stream.doctor.context import Patient, newest_manifests
from sfd_stream.doctor.permissions import newest_record
from sfd_stream.errors import StoreError, StoreUnavailableError
from sfd_stream.storage.contract import key_part
from sfd_stream.storage.objects import ObjectStore
from sfd_stream.storage.probe import probe_store
from sfd_stream.tools.scaling import column_totals
from sfd_stream.tools.sizing import as_size, stored_bytes

_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})


def reachable(patient: Patient) -> Finding:
    began = time.monotonic()
    found = patient.store.list(key_part(patient.settings.group))
    took_ms = 1000 * (time.monotonic() - began)
    return good(f"{patient.store.url} lists {len(found)} objects of the group in {took_ms:,.0f} ms")


def conditional_create(patient: Patient) -> Finding:
    with swept(folder_of(patient)):
        probe_store(patient.store, uuid.uuid4().hex)
    return good(
        "of eight simultaneous creates of one object, one succeeds; a written object can be read and listed at once"
    )


def durable(patient: Patient) -> Finding:
    folder = folder_of(patient)
    if folder is None:
        return skipped("an object store answers a write only when it is durable")
    kind = file_system(folder)
    if kind in _IN_MEMORY:
        return warning(
            f"{folder} is on a {kind}, which is memory: fsync does nothing there, and a restart loses the checkpoints",
            "set checkpoint.url to a folder on a disk, or to an object store",
        )
    key = f"probe/{uuid.uuid4().hex}"
    with swept(folder):
        began = time.monotonic()
        try:
            patient.store.put(key, bytes(4096))
        finally:
            patient.store.delete(key)
        took_ms = 1000 * (time.monotonic() - began)
    return good(f"a small object is written, on the disk ({kind}), and removed in {took_ms:,.0f} ms")


def room(patient: Patient) -> Finding:
    folder = folder_of(patient)
    if folder is None:
        return skipped("an object store does not report its free space")
    partitions = patient.partitions_known or 1
    one = stored_bytes(patient.shape, patient.settings.checkpoint.keep)
    free = shutil.disk_usage(_there(folder)).free
    words = f"{as_size(free)} are free in {folder}, and checkpoints may take {partitions} x {as_size(one)}"
    if free < one * partitions:
        return failed(
            words,
            "make room, lower checkpoint.keep or sketch.buffer_max_bytes, or use another disk",
            StoreUnavailableError,
        )
    return good(words)


def folder_of(patient: Patient) -> Path | None:
    """The folder of a store on disk; None for any other store."""
    parts = urlsplit(patient.store.url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def file_system(folder: Path) -> str:
    """The type of the file system that holds the folder, or will hold it."""
    where = _there(folder).resolve()
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    points = [(Path(fields[1].encode().decode("unicode_escape")), fields[2]) for fields in mounts]
    holding = [(len(point.parts), at, kind) for at, (point, kind) in enumerate(points) if where.is_relative_to(point)]
    return max(holding)[2] if holding else "unknown"


def _there(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


@contextlib.contextmanager
def swept(folder: Path | None) -> Iterator[None]:
    """Removes the folders that were created in the block, if they are empty."""
    made = [] if folder is None else [each for each in (folder / "probe", folder, *folder.parents) if not each.exists()]
    try:
        yield
    finally:
        for each in made:
            with contextlib.suppress(OSError):
                each.rmdir()


CLOCK_S: Final = 5.0
"""Clocks may differ by this much without a warning."""
_WHOLE_S: Final = 1.0
"""Stores report times in whole seconds."""
_REMEDY: Final = "set both by NTP: ages, alerts, tokens and certificates depend on the clock"


def clock(patient: Patient) -> Finding:
    """An object written now has about our time in the store, and no record or checkpoint of others has a later time."""
    ahead_s = _store_ahead_s(patient)
    if ahead_s is not None and abs(ahead_s) > CLOCK_S:
        which = "behind" if ahead_s > 0 else "ahead of"
        return warning(f"this machine's clock is {abs(ahead_s):,.0f} s {which} that of {patient.store.url}", _REMEDY)
    now, times = patient.wall_clock(), _written_by_others(patient)
    name, at = max(times.items(), key=lambda item: item[1], default=("", now))
    if at > now + CLOCK_S:
        return warning(
            f"{name} has a time {at - now:,.0f} s in the future: this machine's clock or the writer's is wrong", _REMEDY
        )
    if ahead_s is not None:
        return good(f"this machine's clock and that of {patient.store.url} agree")
    if not times:
        return skipped("no record and no checkpoint to compare with")
    return good(
        f"no record or checkpoint of others has a time in the future ({len(times)} compared); this does not show"
        " whether this machine's clock is ahead"
    )


def _written_by_others(patient: Patient) -> dict[str, float]:
    record = newest_record(patient)
    times = {} if record is None else {f"the newest record of {record.topic()}/0": record.timestamp()[1] / 1000}
    for partition, manifest in newest_manifests(patient).items():
        times[f"the newest checkpoint of partition {partition}"] = manifest.written_at_s
    return times


def _store_ahead_s(patient: Patient) -> float | None:
    """How far the clock of an object store is ahead of ours; None if that is unknown."""
    store, key = patient.store, f"probe/{uuid.uuid4().hex}"
    if not isinstance(store, ObjectStore):
        return None
    with contextlib.suppress(StoreError):  # without the right to write: another check reports it
        began = patient.wall_clock()
        try:
            store.put(key, b"what time is it?")
            ended, stored_s = patient.wall_clock(), store.written_at_s(key)
        finally:
            store.delete(key)
        return min(stored_s + _WHOLE_S - began, 0.0) or max(stored_s - ended, 0.0)
    return None


def scaling(patient: Patient) -> Finding:
    settings = patient.settings
    if not settings.sketch.column_squares:
        return skipped("sketch.column_squares is off")
    found = column_totals(patient.store, settings.group, settings.input.topic, patient.timeout_s)
    if found is None:
        return skipped("no checkpoint has sums of squares yet")
    if lines := found.advice():
        return warning("; ".join(lines), "scale columns before they are sent, or by input.features")
    return good("no column dominates the rows sketched")


def checks() -> Iterator[Check]:
    yield Check("store", reachable, "check checkpoint.url, its options and the credentials")
    yield Check("conditional create", conditional_create, "use another store", after=("store",))
    yield Check("fsync", durable, "use another disk", after=("conditional create",))
    yield Check("free space", room, "check the disk", after=("store",))
    yield Check("clock", clock, "check the topic's leaders", after=("right to read", "store"))
    yield Check("scaling", scaling, '"sfd-stream checkpoint verify" checks the stored states', after=("store",))
