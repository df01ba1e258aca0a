"""Plots of a merged sketch: spectrum with its error band, energy, components, drift. Needs the extra `plot`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from sfd_stream.errors import NoSnapshotError, SettingsError
from sfd_stream.printable import printable
from sfd_stream.reader.merged import MergedSketch
from sfd_stream.sketch.drift import Drift
from sfd_stream.sketch.sketch import at_most

_DPI = 120
_BAND = "tab:blue"
_SUFFIXES = (".png", ".svg")


def new_figure(panels: int = 1) -> Any:
    """A figure without a window and without global state."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, wanted only for pictures
    except ImportError:
        raise SettingsError('pictures need matplotlib: pip install "sfd-stream[plot]"') from None
    return Figure(figsize=(7.0, 4.2 * panels), dpi=_DPI, layout="constrained")


def save(figure: Any, file: Path) -> None:
    if file.suffix not in _SUFFIXES:
        raise SettingsError(f"{file} must end in {' or '.join(_SUFFIXES)}")
    from matplotlib import rc_context  # noqa: PLC0415 - the figure has shown that it is there

    try:
        # No date and no random ids, so that the same sketch gives the same file. Text stays text.
        with rc_context({"svg.hashsalt": "sfd-stream", "svg.fonttype": "none"}):
            figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    except OSError as error:
        raise SettingsError(f"can't write {file}: {error.strerror}") from None


def spectrum(axes: Any, merged: MergedSketch, k: int) -> None:
    """The singular values of B, and the upper bounds for those of the rows."""
    values = merged.singular_values(at_most(k, merged))
    ranks = np.arange(1, len(values) + 1)
    low = np.sqrt(np.maximum(values**2 - merged.sketch.rounding, 0.0))
    _draw_band(axes, ranks, low, values, np.sqrt(values**2 + merged.delta), "of the sketch")
    axes.set(xlabel="direction", ylabel="singular value", title=f"Spectrum of {_rows(merged)}")


def energy(axes: Any, merged: MergedSketch, k: int) -> None:
    """The share of ||A||F^2 in the best subspace of each dimension, with its certified range."""
    k = min(k, max(merged.k_max, 1))
    found = [merged.explained(i) for i in range(1, k + 1)]
    ranks = np.arange(1, k + 1)
    lower, upper = [i.lower for i in found], [i.upper for i in found]
    _draw_band(axes, ranks, lower, lower, upper, "at least")
    axes.set(xlabel="directions", ylabel="share of the squares", ylim=(0, 1.02), title=f"Energy of {_rows(merged)}")


def components(axes: Any, merged: MergedSketch, k: int) -> None:
    """The strongest directions over their strongest columns."""
    found = merged.components_by_name(at_most(k, merged))
    weight = np.max(np.abs(found), axis=0)
    columns = np.sort(np.argsort(-weight, kind="stable")[:30])
    limit = float(np.max(np.abs(found))) or 1.0
    image = axes.imshow(found[:, columns], aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set(ylabel="direction", title=f"Strongest columns of {_rows(merged)}")
    axes.set_xticks(range(len(columns)), [_short(merged.name(int(c))) for c in columns], rotation=90, fontsize=7)
    axes.set_yticks(range(len(found)), range(1, len(found) + 1))
    axes.figure.colorbar(image, ax=axes)


class DriftPoint(NamedTuple):
    """One point of the drift plot, in hours and degrees."""

    hours: float
    angle: float
    lower: float
    upper: float


def drift_points(newest: MergedSketch, history: Iterable[MergedSketch], k: int) -> list[DriftPoint]:
    """The largest angle between each state and the first one. Only one state at a time is kept in memory.

    States with too few directions, as at the beginning of a stream, are left out. Raises NoSnapshotError if there is
    no earlier state to compare with.
    """
    refuse_if_empty(newest)
    k = min(k, _rank(newest))
    states = (merged for merged in history if _rank(merged) >= k)
    first, points, seen = None, [], set()
    for merged in itertools.chain(states, [newest]):
        first = first or merged
        seen.add(tuple((part.id, part.made_at_s) for part in merged.parts))
        found = merged.drift(first, k)
        degrees = np.degrees([found.angles[0], found.lower[0], found.upper[0]])
        points.append(DriftPoint((_made_at_s(merged) - _made_at_s(first)) / 3600, *map(float, degrees)))
    if len(seen) < 2:
        raise NoSnapshotError(
            "drift needs two snapshots of each partition, and the topic holds one (compaction removes older ones): "
            "try again after the next snapshot, or compare saved sketches by Sketch.drift"
        )
    return points


def drift(axes: Any, newest: MergedSketch, points: Sequence[DriftPoint], k: int) -> None:
    """The largest angle to the first state in degrees, with its error."""
    hours, angles, lower, upper = zip(*points, strict=True)
    _draw_band(axes, hours, lower, angles, upper, f"largest angle, k = {min(k, _rank(newest))}")
    title = f"Drift since the first snapshot{_incomplete(newest)}"
    axes.set(xlabel="hours since the first snapshot", ylabel="degrees", ylim=(0, 92), title=title)


def compared(figure: Any, found: Drift, moved: Sequence[tuple[str, float]]) -> None:
    """Two sketches: the angles between their directions with the certified band, and the columns that moved."""
    angles, columns = figure.subplots(2)
    ranks = np.arange(1, len(found.angles) + 1)
    lower, middle, upper = np.degrees([found.lower, found.angles, found.upper])
    _draw_band(angles, ranks, lower, middle, upper, "of the sketches")
    verdict = "differ" if found.differs else "do not differ"
    angles.set(xlabel="angle", ylabel="degrees", ylim=(0, 92), title=f"The rows {verdict} beyond the sketches' error")
    angles.set_xticks(ranks)
    names, shares = [_short(name) for name, _ in moved], [100 * share for _, share in moved]
    columns.barh(range(len(moved)), shares, color=_BAND)
    columns.set_yticks(range(len(moved)), names)
    columns.invert_yaxis()
    columns.set(xlabel="% of the turn", title="Columns that moved" if moved else "No column moved")


def _draw_band(axes: Any, x: Any, lower: Any, middle: Any, upper: Any, label: str) -> None:
    axes.fill_between(x, lower, upper, alpha=0.25, color=_BAND, label="certified band")
    axes.plot(x, middle, ".-", color=_BAND, label=label)
    axes.legend()


def refuse_if_empty(merged: MergedSketch) -> None:
    if not _rank(merged):
        raise NoSnapshotError("there is nothing to draw: the sketch has no rows yet, or only rows without a value")


Draw = Callable[[Any, MergedSketch, int], None]
PICTURES: MappingProxyType[str, Draw] = MappingProxyType(
    {"spectrum": spectrum, "energy": energy, "components": components}
)


def _rows(merged: MergedSketch) -> str:
    return f"{merged.rows:,} rows{_incomplete(merged)}"


def _incomplete(merged: MergedSketch) -> str:
    return "" if merged.complete else f" (INCOMPLETE: {len(merged.missing)} partitions missing)"


def _rank(merged: MergedSketch) -> int:
    return int(np.count_nonzero(merged.singular_values()))


def _made_at_s(merged: MergedSketch) -> float:
    return max(part.made_at_s for part in merged.parts)


def _short(name: str) -> str:
    name = printable(name)
    short = name if len(name) <= 18 else f"{name[:17]}…"
    return short.replace("$", r"\$")  # else matplotlib would parse it as a formula
