"""The records of the topic: do the settings make rows of them?"""

from __future__ import annotations

from collections.abc import Iterator

from sfd_stream.doctor.check import Check, Finding, good, skipped, warning
from sfd_stream.doctor.context import Patient

_SEE = '"sfd-stream features" shows what becomes of each field'


def features(patient: Patient) -> Finding:
    if patient.settings.input.format == "msgpack":
        return skipped("input.format is msgpack: rows have their columns already")
    assert patient.preview is not None, "given with the other parts"
    found = patient.preview()
    if not found.messages:
        return skipped("the topic has no messages yet")
    if lines := found.warnings():
        return warning("; ".join(lines), _SEE)
    return good(f"{found.rows} rows of {found.messages} messages have {found.features:,} features")


def checks() -> Iterator[Check]:
    yield Check("features", features, _SEE, after=("topic", "right to read"))
