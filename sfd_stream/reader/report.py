"""What was read, as plain values for people and machines: what `sfd-stream read --json` prints."""

from __future__ import annotations

from typing import Any

from sfd_stream.reader.merged import MergedSketch


def report(merged: MergedSketch, k: int, columns: int) -> dict[str, Any]:
    """Counters, bound, what is there and what is missing, and the k strongest directions by name."""
    return {
        "complete": merged.complete,
        "missing": list(merged.missing),
        "partitions": partitions_of(merged),
        **numbers_of(merged),
        "directions": directions_of(merged, k, columns),
    }


def numbers_of(merged: MergedSketch) -> dict[str, Any]:
    sketch = merged.sketch
    return {
        "rows": sketch.rows,
        "nnz": sketch.nnz,
        "squared_frobenius": sketch.squared_frobenius,
        "delta": sketch.delta,
        "delta_ratio": ratio_of(merged),
        "failure_probability": sketch.failure_probability,
        "ell": sketch.ell,
        "d": sketch.d,
        "columns": merged.columns,
    }


def ratio_of(merged: MergedSketch) -> float:
    """The bound as a share of ||A||F^2."""
    return merged.delta / merged.squared_frobenius if merged.squared_frobenius else 0.0


def partitions_of(merged: MergedSketch) -> list[dict[str, Any]]:
    ages = merged.ages_s
    return [
        {
            "partition": label,
            "group": part.id.group,
            "epoch": part.id.epoch,
            "number": part.id.number,
            "rows": part.rows,
            "next_offset": part.next_offset,
            "age_s": round(ages[label], 3),
        }
        for label, part in zip(ages, merged.parts, strict=True)
    ]


def directions_of(merged: MergedSketch, k: int, columns: int) -> list[dict[str, Any]]:
    """Each with its singular value, its share of ||A||F^2 at least and at most, and its strongest columns."""
    values = merged.singular_values(k)
    total, sketch = merged.squared_frobenius or 1.0, merged.sketch
    strongest = merged.to_table(k, top=columns)
    width = min(columns, merged.d)
    return [
        {
            "singular_value": float(value),
            "share": [
                max(float(value) ** 2 - sketch.rounding, 0.0) / total,
                min((float(value) ** 2 + sketch.delta) / total, 1.0),
            ],
            "columns": [
                {
                    "column": int(strongest["column"][at]),
                    "name": strongest["name"][at],
                    "weight": float(strongest["weight"][at]),
                }
                for at in range(number * width, (number + 1) * width)
            ],
        }
        for number, value in enumerate(values)
    ]
