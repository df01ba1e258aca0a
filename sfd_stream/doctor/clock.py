"""Does this machine's clock agree with those of others?"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Final

from sfd_stream.doctor.check import Check, Finding, good, skipped, warning
from sfd_stream.doctor.context import Patient
from sfd_stream.doctor.permissions import newest_record
from sfd_stream.doctor.stored import newest_manifests
from sfd_stream.errors import StoreError
from sfd_stream.storage.objects import ObjectStore

CLOCK_S: Final = 5.0
"""Clocks may differ by this much and nobody cares."""
_WHOLE_S: Final = 1.0
"""Stores tell times in whole seconds."""
_REMEDY: Final = "set both by NTP: ages, alerts, tokens and certificates go by the clock"


def clock(patient: Patient) -> Finding:
    """What an object store says of something written just now is of now, and nothing that others wrote is of later."""
    ahead_s = _store_ahead_s(patient)
    if ahead_s is not None and abs(ahead_s) > CLOCK_S:
        which = "behind" if ahead_s > 0 else "ahead of"
        return warning(f"this machine's clock is {abs(ahead_s):,.0f} s {which} that of {patient.store.url}", _REMEDY)
    now, seen = patient.wall_clock(), _written_by_others(patient)
    name, at = max(seen.items(), key=lambda item: item[1], default=("", now))
    if at > now + CLOCK_S:
        return warning(
            f"{name} is of {at - now:,.0f} s after now: this machine's clock or the writer's is wrong", _REMEDY
        )
    if ahead_s is not None:
        return good(f"this machine's clock and that of {patient.store.url} agree")
    if not seen:
        return skipped("no record and no checkpoint to compare with")
    return good(
        f"nothing that others wrote is of later than now ({len(seen)} looked at); whether this machine's clock is"
        " ahead can't be seen from that"
    )


def _written_by_others(patient: Patient) -> dict[str, float]:
    record = newest_record(patient, 0)
    seen = {} if record is None else {f"the newest record of {record.topic()}/0": record.timestamp()[1] / 1000}
    for partition, manifest in newest_manifests(patient).items():
        seen[f"the newest checkpoint of partition {partition}"] = manifest.written_at_s
    return seen


def _store_ahead_s(patient: Patient) -> float | None:
    """By how much the clock of an object store is ahead of ours; None where that can't be told."""
    store, key = patient.store, f"probe/{uuid.uuid4().hex}"
    if not isinstance(store, ObjectStore):
        return None
    with contextlib.suppress(StoreError):  # without the right to write: another check says so
        began = patient.wall_clock()
        try:
            store.put(key, b"what time is it?")
            ended, told = patient.wall_clock(), store.written_at_s(key)
        finally:
            store.delete(key)
        return min(told + _WHOLE_S - began, 0.0) or max(told - ended, 0.0)
    return None


def checks() -> Iterator[Check]:
    yield Check("clock", clock, "look at the topic's leaders", after=("right to read", "store"))
