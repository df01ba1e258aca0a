"""One closing line where Go is missing, as for every part that a machine may lack."""

from __future__ import annotations

from typing import Any

_REASON = "no Go to fetch"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    without = [report for report in terminalreporter.stats.get("skipped", []) if _REASON in str(report.longrepr)]
    if without:
        words = f"{len(without)} tests need Go, to fetch custom resource definitions, and were skipped: install Go"
        terminalreporter.write_line(words, yellow=True)
