"""Pictures of what was read: spectrum with its error band, energy, components, drift. Needs the extra `plot`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sfd_stream.errors import SettingsError
from sfd_stream.reader.merged import MergedSketch

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
    values = merged.singular_values(k)
    ranks = np.arange(1, len(values) + 1)
    low = np.sqrt(np.maximum(values**2 - merged.sketch.rounding, 0.0))
    axes.fill_between(ranks, low, np.sqrt(values**2 + merged.delta), alpha=0.25, color=_BAND, label="certified band")
    axes.plot(ranks, values, ".-", color=_BAND, label="of the sketch")
    axes.set(xlabel="direction", ylabel="singular value", title=f"Spectrum of {_rows(merged)}")
    axes.legend()


def energy(axes: Any, merged: MergedSketch, k: int) -> None:
    """The share of ||A||F^2 in the best subspace of each dimension, between its certified ends."""
    k = min(k, max(len(merged.sketch.matrix), 1))
    found = [merged.explained(i) for i in range(1, k + 1)]
    ranks = np.arange(1, k + 1)
    lower, upper = [i.lower for i in found], [i.upper for i in found]
    axes.fill_between(ranks, lower, upper, alpha=0.25, color=_BAND, label="certified band")
    axes.plot(ranks, lower, ".-", color=_BAND, label="at least")
    axes.set(xlabel="directions", ylabel="share of the squares", ylim=(0, 1.02), title=f"Energy of {_rows(merged)}")
    axes.legend()


def components(axes: Any, merged: MergedSketch, k: int) -> None:
    """The strongest directions over the columns that matter most to them."""
    found = merged.components_by_name(k)
    weight = np.max(np.abs(found), axis=0)
    columns = np.sort(np.argsort(-weight, kind="stable")[:30])
    limit = float(np.max(np.abs(found))) or 1.0
    image = axes.imshow(found[:, columns], aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit)
    axes.set(ylabel="direction", title=f"Strongest columns of {_rows(merged)}")
    axes.set_xticks(range(len(columns)), [_short(merged.name(int(c))) for c in columns], rotation=90, fontsize=7)
    axes.set_yticks(range(len(found)), range(1, len(found) + 1))
    axes.figure.colorbar(image, ax=axes)


def drift(axes: Any, history: Sequence[MergedSketch], k: int) -> None:
    """The largest angle to the first state, in degrees, with how much of it may be sketch error."""
    first = history[0]
    rank = min(int(np.count_nonzero(merged.singular_values())) for merged in history)
    if rank == 0:
        raise SettingsError("a sketch without rows has no directions that could drift")
    k = min(k, rank)
    found = [merged.drift(first, k) for merged in history]
    times = np.array([max(part.made_at_s for part in merged.parts) for merged in history])
    hours = (times - times[0]) / 3600
    angles = np.degrees([one.angles[0] for one in found])
    band = [np.degrees([getattr(one, side)[0] for one in found]) for side in ("lower", "upper")]
    axes.fill_between(hours, *band, alpha=0.25, color=_BAND, label="certified band")
    axes.plot(hours, angles, ".-", color=_BAND, label=f"largest angle, k = {k}")
    axes.set(
        xlabel="hours since the first snapshot", ylabel="degrees", ylim=(0, 92), title="Drift since the first snapshot"
    )
    axes.legend()


Draw = Callable[[Any, MergedSketch, int], None]
PICTURES: MappingProxyType[str, Draw] = MappingProxyType(
    {"spectrum": spectrum, "energy": energy, "components": components}
)


def _rows(merged: MergedSketch) -> str:
    some = "" if merged.complete else f" (INCOMPLETE: {len(merged.missing)} partitions missing)"
    return f"{merged.rows:,} rows{some}"


def _short(name: str) -> str:
    shown = name if len(name) <= 18 else f"{name[:17]}…"
    return shown.replace("$", r"\$")  # else matplotlib would take it for a formula
