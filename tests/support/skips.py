"""Where CI=true a machine promises to have everything: there every skip is a failure.

Only what is right to skip on any machine is named here.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

RIGHT_ANYWHERE = (
    "SCIPY_ARRAY_API is not set",  # scikit-learn's own check of arrays that are not NumPy's, which we do not promise
    "a broker that is given is not ours to end",
)


def judge(report: Any) -> None:
    """A skip becomes a failure with the same words; what is expected to fail is no skip."""
    if not report.skipped or hasattr(report, "wasxfail") or os.environ.get("CI", "").lower() != "true":
        return
    words = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if not any(right in words for right in RIGHT_ANYWHERE):
        report.outcome, report.longrepr = "failed", f"with CI=true nothing is skipped: {words}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    judge(report)
    return report
