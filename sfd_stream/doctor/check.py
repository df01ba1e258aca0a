"""A check tries one thing and reports what it found, the reason, and the remedy.

Checks run in order. A check is skipped if it depends on a check that failed: it would only report the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sfd_stream.doctor.context import Patient
from sfd_stream.errors import BrokerRefusedError, SfdError

WARNED: Final = 1
"""The exit code if no check failed and at least one warned."""


class Verdict(StrEnum):
    GOOD = "good"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """`exit_code` is the code with which `run` would end for this reason, at once or later."""

    verdict: Verdict
    reason: str
    remedy: str = ""
    exit_code: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """`remedy` goes with errors that the attempt raises. `after` names the checks that this one depends on."""

    name: str
    attempt: Callable[[Patient], Finding]
    remedy: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Examined:
    name: str
    finding: Finding

    def as_map(self) -> dict[str, Any]:
        found = self.finding
        return {"name": self.name, "verdict": found.verdict.value, "reason": found.reason, "remedy": found.remedy}


def good(reason: str) -> Finding:
    return Finding(Verdict.GOOD, reason)


def warning(reason: str, remedy: str) -> Finding:
    return Finding(Verdict.WARNING, reason, remedy, WARNED)


def failed(reason: str, remedy: str, error: type[SfdError] = BrokerRefusedError) -> Finding:
    return Finding(Verdict.FAILED, reason, remedy, error.exit_code)


def skipped(reason: str) -> Finding:
    return Finding(Verdict.SKIPPED, reason)


def examine(checks: Iterable[Check], patient: Patient) -> Iterator[Examined]:
    """Yields each check when it is done. An error in one check does not stop the others."""
    causes: dict[str, str] = {}  # by failed or skipped check: the check that failed
    for check in checks:
        cause = next((causes[name] for name in check.after if name in causes), None)
        found = _attempted(check, patient) if cause is None else skipped(f"not tried: {cause} failed")
        if cause is not None or found.verdict is Verdict.FAILED:
            causes[check.name] = cause or check.name
        yield Examined(check.name, found)


def exit_code(done: Iterable[Examined]) -> int:
    """The code of the first failure, which `run` would meet first; without failures 1 for warnings, else 0."""
    codes = [(each.finding.verdict, each.finding.exit_code) for each in done]
    failures = [code for verdict, code in codes if verdict is Verdict.FAILED]
    return failures[0] if failures else max((code for _, code in codes), default=0)


def _attempted(check: Check, patient: Patient) -> Finding:
    try:
        return check.attempt(patient)
    except SfdError as error:
        reason, _, remedy = str(error).rpartition("; ")
        return failed(reason or remedy, remedy if reason else check.remedy, type(error))
    except TimeoutError as error:
        return failed(str(error), check.remedy)
