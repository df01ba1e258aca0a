"""`make test` runs a smoke of every law, `make test-all` the law in full: see the marker `slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def smoke_first(cases: Iterable[Any], smoke: int = 1) -> list[Any]:
    """Parameters of which the first `smoke` run always, the others only in `make test-all`."""
    return [case if place < smoke else _slow(case) for place, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    values, marks = (case.values, case.marks) if hasattr(case, "marks") else (case, ())
    values = values if isinstance(values, tuple) else (values,)
    return pytest.param(*values, marks=[*marks, pytest.mark.slow], id=getattr(case, "id", None))
