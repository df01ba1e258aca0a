"""Directions as a long table that data-frame libraries accept. None of these libraries is required."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from sfd_stream.sketch.rows import Float, whole


def long_table(components: Float, name: Callable[[int], str], top: int | None = None) -> dict[str, Any]:
    """`component` (from 1), `column`, `name`, `weight` of the `top` strongest columns of each, the largest first."""
    best = strongest(components, components.shape[1] if top is None else whole("top", top, 1))
    columns = best.ravel()
    return {
        "component": np.repeat(np.arange(1, len(components) + 1), best.shape[1]),
        "column": columns,
        "name": np.array([name(int(column)) for column in columns], dtype=object),
        "weight": np.take_along_axis(components, best, axis=1).ravel(),
    }


def strongest(components: Float, columns: int) -> Any:
    """For each direction the columns of the largest weights, the largest first."""
    return np.argsort(-np.abs(components), axis=1, kind="stable")[:, :columns]


def frame_of(table: dict[str, Any]) -> Any:
    """The table as a pandas.DataFrame."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise ImportError("to_frame needs pandas: pip install pandas; to_table gives the same as arrays") from None
    return pandas.DataFrame(table)
