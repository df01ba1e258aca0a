"""Will a worker with these settings do its work, here and now? Each check tries one thing; none leaves a trace.

checks()              all of them, in order
examine(checks, patient)   what each found, as it is done
"""

from __future__ import annotations

from collections.abc import Iterator

from sfd_stream.doctor import broker, machine, scores, store, topics
from sfd_stream.doctor.check import Check, Examined, Finding, Verdict, examine, exit_code
from sfd_stream.doctor.context import Patient

__all__ = ["Check", "Examined", "Finding", "Patient", "Verdict", "checks", "examine", "exit_code"]


def checks() -> Iterator[Check]:
    for part in (broker, topics, scores, store, machine):
        yield from part.checks()
