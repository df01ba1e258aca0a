"""Checks run in order: one that depends on a failure is skipped, an error of one does not stop the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sfd_stream.doctor.check import (
    Check,
    Examined,
    Finding,
    Verdict,
    examine,
    exit_code,
    failed,
    good,
    skipped,
    warning,
)
from sfd_stream.errors import SettingsError, StoreUnavailableError
from tests.unit.doctor.patients import patient


def raising(error: Exception) -> Callable[[Any], Finding]:
    def attempt(_: Any) -> Finding:
        raise error

    return attempt


def test_what_depends_on_a_failure_is_skipped_and_names_it() -> None:
    checks = [
        Check("connection", lambda _: failed("no answer", "start the broker"), ""),
        Check("topic", lambda _: pytest.fail("not tried"), "", after=("connection",)),
        Check("partitions", lambda _: pytest.fail("not tried"), "", after=("topic",)),
        Check("store", lambda _: good("writable"), ""),
    ]
    found = [(each.name, each.finding.verdict, each.finding.reason) for each in examine(checks, patient())]
    assert found[1:] == [
        ("topic", Verdict.SKIPPED, "not tried: connection failed"),
        ("partitions", Verdict.SKIPPED, "not tried: connection failed"),
        ("store", Verdict.GOOD, "writable"),
    ]


def test_an_error_is_a_failure_with_its_own_remedy_or_that_of_the_check() -> None:
    checks = [
        Check("a", raising(StoreUnavailableError("no route to s3://b; check the endpoint")), "of the check"),
        Check("b", raising(StoreUnavailableError("no route to s3://b")), "of the check"),
        Check("c", raising(TimeoutError("no answer within 5 s")), "of the check"),
    ]
    found = [each.finding for each in examine(checks, patient())]
    assert [(each.verdict, each.reason, each.remedy) for each in found] == [
        (Verdict.FAILED, "no route to s3://b", "check the endpoint"),
        (Verdict.FAILED, "no route to s3://b", "of the check"),
        (Verdict.FAILED, "no answer within 5 s", "of the check"),
    ]


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ([good("")], 0),
        ([good(""), warning("", "")], 1),
        ([warning("", ""), failed("", "", SettingsError), failed("", "", StoreUnavailableError), skipped("")], 2),
        ([], 0),
    ],
)
def test_the_exit_code_is_that_of_the_failure_that_run_would_meet_first(findings: list[Finding], code: int) -> None:
    assert exit_code(Examined("check", finding) for finding in findings) == code
