"""Checks whether a worker with these settings can run here. Each check tries one thing and leaves nothing behind.

checks()                   all checks, in order
examine(checks, patient)   runs them and returns the finding of each
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
