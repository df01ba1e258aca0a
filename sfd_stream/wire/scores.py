"""One row's scores as a message, in JSON or msgpack. docs/reference/formats.md has the schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgpack
import numpy as np

from sfd_stream.sketch.intervals import Intervals
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.scoring.causes import Cause, Explanation
from sfd_stream.sketch.scoring.score import Scores

SCHEMA, VERSION = "sfd-stream/score", 1
Form = Literal["json", "msgpack"]


class Origin(NamedTuple):
    """Where a row came from. `row`: its number in its message, from 0."""

    topic: str
    partition: int
    offset: int
    row: int


@dataclass(frozen=True)
class BasisNote:
    """What a score says about its basis."""

    id: str
    rows: int
    """Rows of the basis's sketch."""
    k: int
    centred: bool
    age_s: float
    """Time from the creation of the basis's oldest part to the scoring."""


def score_map(
    origin: Origin,
    scores: Scores,
    at: int,
    coordinates: Float,
    basis: BasisNote,
    *,
    counted: bool,
    earlier_rows: int,
    reported: Iterable[str] = (),
    causes: Explanation | None = None,
) -> dict[str, Any]:
    """The score of row `at`, as plain values. Bounds that do not exist are null."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        **origin._asdict(),
        "basis": {
            "id": basis.id,
            "rows": basis.rows,
            "k": basis.k,
            "centred": basis.centred,
            "age_s": round(basis.age_s, 3),
            "counted": counted,
        },
        "coordinates": coordinates[at].tolist(),
        "residual": float(scores.residual[at]),
        "residual_share": float(scores.residual_share[at]),
        "residual_over_mean": _interval(scores.residual_over_mean, at),
        "t2": _interval(scores.t2, at),
        "p_value": None if scores.p_value is None else float(scores.p_value[at]),
        "earlier_rows": earlier_rows,
        "reported": list(reported),
    }
    if causes is not None:
        found["causes"] = {
            "residual": [_cause(cause) for cause in causes.residual],
            "missing_share": causes.missing_share,
            "t2": [_cause(cause) for cause in causes.t2],
        }
    return found


def encode(score: dict[str, Any], form: Form) -> bytes:
    if form == "json":
        return json.dumps(score, allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()
    packed: bytes = msgpack.packb(score)
    return packed


def _interval(found: Intervals, at: int) -> dict[str, float | None]:
    return {name: _finite(getattr(found, name)[at]) for name in ("lower", "estimate", "upper")}


def _finite(value: np.float64) -> float | None:
    return float(value) if math.isfinite(value) else None


def _cause(cause: Cause) -> dict[str, Any]:
    return {**cause._asdict(), "missing": cause.missing}
