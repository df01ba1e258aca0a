"""A merged sketch as plain values: the output of `sfd-stream read --json`."""

from __future__ import annotations

from typing import Any

from sfd_stream.reader.merged import MergedSketch
from sfd_stream.sketch.rows import Float
from sfd_stream.sketch.sketch import at_most
from sfd_stream.sketch.tables import strongest


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
    """The error bound as a share of ||A||F^2."""
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
    """Directions with their singular values, shares of ||A||F^2 (lower and upper bound), and strongest columns."""
    found = at_most(k, merged)
    values = merged.singular_values(found).tolist()
    shares = _shares([value**2 for value in values], merged.rounding, merged.delta, merged.squared_frobenius)
    names = _strongest(merged, merged.components_by_name(found), columns)
    return [
        {"singular_value": value, "share": share, "columns": best}
        for value, share, best in zip(values, shares, names, strict=True)
    ]


def centred_directions_of(merged: MergedSketch, k: int, columns: int) -> list[dict[str, Any]]:
    """Directions around the mean, with their variances, certified shares of all variance, and strongest columns."""
    if not merged.k_max:
        return []
    pca = merged.pca(min(k, merged.k_max))
    values = pca.explained_variance.tolist()
    shares = _shares(values, pca.error, pca.error, merged.total_variance)
    names = _strongest(merged, merged.by_name(pca.components), columns)
    return [
        {"explained_variance": value, "share": share, "columns": best}
        for value, share, best in zip(values, shares, names, strict=True)
    ]


def _shares(energies: list[float], below: float, above: float, total: float) -> list[list[float]]:
    """The lower and the upper bound of each share of the total."""
    total = total or 1.0
    return [[max(energy - below, 0.0) / total, min((energy + above) / total, 1.0)] for energy in energies]


def _strongest(merged: MergedSketch, directions: Float, columns: int) -> list[list[dict[str, Any]]]:
    """The strongest columns of each direction, the strongest first."""
    return [
        [{"column": c, "name": merged.name(c), "weight": float(direction[c])} for c in best]
        for direction, best in zip(directions, strongest(directions, columns).tolist(), strict=True)
    ]
