"""What was read, as plain values for people and machines: what `sfd-stream read --json` prints."""

from __future__ import annotations

from typing import Any

from sfd_stream.reader.merged import MergedSketch
from sfd_stream.sketch.sketch import at_most
from sfd_stream.sketch.tables import long_table


def report(merged: MergedSketch, k: int, columns: int, *, centre: bool = False) -> dict[str, Any]:
    """Counters, bound, present and missing partitions, and the k strongest directions by name."""
    found = centred_directions_of if centre else directions_of
    return {
        "complete": merged.complete,
        "missing": list(merged.missing),
        "partitions": partitions_of(merged),
        **numbers_of(merged),
        **({"centred": True, "total_variance": merged.total_variance} if centre else {}),
        "directions": found(merged, k, columns),
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
    found = at_most(k, merged)
    values = merged.singular_values(found)
    total, sketch = merged.squared_frobenius or 1.0, merged.sketch
    names = _strongest(merged.to_table(found, top=columns), len(values))
    return [
        {
            "singular_value": float(value),
            "share": [
                max(float(value) ** 2 - sketch.rounding, 0.0) / total,
                min((float(value) ** 2 + sketch.delta) / total, 1.0),
            ],
            "columns": best,
        }
        for value, best in zip(values, names, strict=True)
    ]


def centred_directions_of(merged: MergedSketch, k: int, columns: int) -> list[dict[str, Any]]:
    """Around the mean: each with its variance, its certified share of all variance, and its strongest columns."""
    if not merged.k_max:
        return []
    pca = merged.pca(min(k, merged.k_max))
    total = merged.total_variance or 1.0
    table = long_table(merged.sketch.by_name(pca.components), merged.name, columns)
    return [
        {
            "explained_variance": float(value),
            "share": [max(float(value) - pca.error, 0.0) / total, min((float(value) + pca.error) / total, 1.0)],
            "columns": best,
        }
        for value, best in zip(pca.explained_variance, _strongest(table, len(pca.components)), strict=True)
    ]


def _strongest(table: dict[str, Any], directions: int) -> list[list[dict[str, Any]]]:
    """The rows of a long table, by direction."""
    rows = [
        {"column": int(column), "name": name, "weight": float(weight)}
        for column, name, weight in zip(table["column"], table["name"], table["weight"], strict=True)
    ]
    width = len(rows) // max(directions, 1)
    return [rows[at * width : (at + 1) * width] for at in range(directions)]
