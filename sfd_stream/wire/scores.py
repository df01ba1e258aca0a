"""One row's scores as a message, in JSON or msgpack. docs/reference/formats.md has the schema."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgpack

from sfd_stream.sketch.intervals import Intervals
from sfd_stream.sketch.rows import Float, Int
from sfd_stream.sketch.scoring.causes import Cause, Explanation
from sfd_stream.sketch.scoring.score import Scores

SCHEMA, VERSION = "sfd-stream/score", 1
Form = Literal["json", "msgpack"]

_ENDS = ("lower", "estimate", "upper")
_JSON = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False, check_circular=False)


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

    def as_map(self) -> dict[str, Any]:
        return {**vars(self), "age_s": round(self.age_s, 3)}


@dataclass(frozen=True)
class PlainScores:
    """Scores of some rows as plain lists, converted at once. Bounds that do not exist are None."""

    coordinates: list[list[float]]
    residual: list[float]
    residual_share: list[float]
    residual_over_mean: list[dict[str, float | None]]
    t2: list[dict[str, float | None]]
    p_value: list[float] | list[None]

    @classmethod
    def of(cls, scores: Scores, coordinates: Float, rows: Int) -> PlainScores:
        return cls(
            coordinates=coordinates[rows].tolist(),
            residual=scores.residual[rows].tolist(),
            residual_share=scores.residual_share[rows].tolist(),
            residual_over_mean=_intervals(scores.residual_over_mean, rows),
            t2=_intervals(scores.t2, rows),
            p_value=[None] * len(rows) if scores.p_value is None else scores.p_value[rows].tolist(),
        )


def score_map(
    origin: Origin,
    scores: PlainScores,
    at: int,
    basis: Mapping[str, Any],
    *,
    counted: bool,
    earlier_rows: int,
    reported: Iterable[str] = (),
    causes: Explanation | None = None,
) -> dict[str, Any]:
    """The score of row `at` of `scores`, as plain values."""
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "row": origin.row,
        "basis": {**basis, "counted": counted},
        "coordinates": scores.coordinates[at],
        "residual": scores.residual[at],
        "residual_share": scores.residual_share[at],
        "residual_over_mean": scores.residual_over_mean[at],
        "t2": scores.t2[at],
        "p_value": scores.p_value[at],
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
        return _JSON.encode(score).encode()
    packed: bytes = msgpack.packb(score)
    return packed


def _intervals(found: Intervals, rows: Int) -> list[dict[str, float | None]]:
    ends = (_finite(each[rows]) for each in (found.lower, found.estimate, found.upper))
    return [dict(zip(_ENDS, values, strict=True)) for values in zip(*ends, strict=True)]


def _finite(values: Float) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _cause(cause: Cause) -> dict[str, Any]:
    found = {**cause._asdict(), "missing": cause.missing}
    if cause.z is None:
        del found["z"]
    return found
