"""Pictures of what was read: spectrum with its error band, energy, components, drift. Needs the extra `plot`."""

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
from sfd_stream.sketch.sketch import at_most

_DPI = 120
_BAND = "tab:blue"
_SUFFIXES = (".png", ".svg")


def new_figure(panels: int = 1) -> Any:
    """A figure of our own: no window, no global state."""
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
        # No date and no random ids: the same sketch is the same picture. Text stays text.
        with rc_context({"svg.hashsalt": "sfd-stream", "svg.fonttype": "none"}):
            figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    except OSError as error:
        raise SettingsError(f"can't write {file}: {error.strerror}") from None


def spectrum(axes: Any, merged: MergedSketch, k: int) -> None:
    """Singular values of B, and how much more those of the rows may be."""
    values = merged.singular_values(at_most(k, merged))
    ranks = np.arange(1, len(values) + 1)
    low = np.sqrt(np.maximum(values**2 - merged.sketch.rounding, 0.0))
    axes.fill_between(ranks, low, np.sqrt(values**2 + merged.delta), alpha=0.25, color=_BAND, label="certified band")
    axes.plot(ranks, values, ".-", color=_BAND, label="of the sketch")
    axes.set(xlabel="direction", ylabel="singular value", title=f"Spectrum of {_rows(merged)}")
    axes.legend()


def energy(axes: Any, merged: MergedSketch, k: int) -> None:
    """The share of ||A||F^2 in the best subspace of each dimension, between its certified ends."""
    k = min(k, max(merged.k_max, 1))
    found = [merged.explained(i) for i in range(1, k + 1)]
    ranks = np.arange(1, k + 1)
    lower, upper = [i.lower for i in found], [i.upper for i in found]
    axes.fill_between(ranks, lower, upper, alpha=0.25, color=_BAND, label="certified band")
    axes.plot(ranks, lower, ".-", color=_BAND, label="at least")
    axes.set(xlabel="directions", ylabel="share of the squares", ylim=(0, 1.02), title=f"Energy of {_rows(merged)}")
    axes.legend()


def components(axes: Any, merged: MergedSketch, k: int) -> None:
    """The strongest directions over the columns that matter most to them."""
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
    """All that the picture needs of one state, in hours and degrees."""

    hours: float
    angle: float
    lower: float
    upper: float


def drift_points(newest: MergedSketch, history: Iterable[MergedSketch], k: int) -> list[DriftPoint]:
    """The largest angle of each state to the first; a state is kept no longer than that takes.

    States with fewer directions than are compared, as at a stream's beginning, are left out. Raises NoSnapshotError
    where there is no earlier state to compare with.
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
    """The largest angle to the first state, in degrees, with how much of it may be sketch error."""
    hours, angles, lower, upper = zip(*points, strict=True)
    label = f"largest angle, k = {min(k, _rank(newest))}"
    axes.fill_between(hours, lower, upper, alpha=0.25, color=_BAND, label="certified band")
    axes.plot(hours, angles, ".-", color=_BAND, label=label)
    title = f"Drift since the first snapshot{_incomplete(newest)}"
    axes.set(xlabel="hours since the first snapshot", ylabel="degrees", ylim=(0, 92), title=title)
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
    shown = name if len(name) <= 18 else f"{name[:17]}…"
    return shown.replace("$", r"\$")  # else matplotlib would take it for a formula
