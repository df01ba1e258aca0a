"""What `make test` runs of these tests, and one closing line if Go is missing, as for every part a machine may lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

_REASON = "no Go to fetch"

SMOKE = ("test_audit", "test_chart", "test_document", "test_lock", "test_shipped")
"""The modules of which `make test` runs each test, with its first case. The others judge files, not code."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the others as slow: `make test-chart` and `make test-all` run them."""
    begun = set[str]()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            name = item.nodeid.partition("[")[0]
            if item.path.stem not in SMOKE or name in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(name)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    without = [report for report in terminalreporter.stats.get("skipped", []) if _REASON in str(report.longrepr)]
    if without:
        words = f"{len(without)} tests need Go, to fetch custom resource definitions, and were skipped: install Go"
        terminalreporter.write_line(words, yellow=True)
