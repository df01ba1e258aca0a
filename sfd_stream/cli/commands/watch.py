"""`sfd-stream watch`: shows the live sketch in a terminal."""

# Annotations are evaluated: typer reads them.
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli import snapshot_options as snapshots
from sfd_stream.cli.options import ConfigOption, SetOption
from sfd_stream.cli.output import print_text
from sfd_stream.printable import printable

if TYPE_CHECKING:
    from sfd_stream.config import Some
    from sfd_stream.reader.merged import MergedSketch
    from sfd_stream.reader.reader import SnapshotReader
    from sfd_stream.sketch.drift import Drift
    from sfd_stream.wire.snapshots import Snapshot

_LAG_TIMEOUT_S = 2.0
_BAR = 30


def watch(
    topic: snapshots.TopicOption = None,
    broker: snapshots.BrokerOption = None,
    group: snapshots.GroupOption = None,
    *,
    top: snapshots.TopOption = 8,
    columns: snapshots.ColumnsOption = 6,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="Refresh after this many seconds.")] = 2.0,
    changes: Annotated[
        int | None, typer.Option(min=1, help="Exit after this many changes.", show_default="never")
    ] = None,
    store_url: snapshots.StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line on standard output, one for each change.")
    ] = False,
) -> None:
    """Show the sketch as it changes: rows, lag and error of every partition, the spectrum, the drift since the start.

    If the output is not a terminal, it prints one line per change. Ctrl-C ends it.

    Example: [bold]sfd-stream watch --topic sketches --broker localhost:9092[/bold]
    """
    some = snapshots.some_settings(config, overrides, broker)
    with snapshots.reader_of(some, topic, group, store_url) as reader:
        print_updates = _json_lines if as_json else _live if sys.stdout.isatty() else _lines
        print_updates(_updates(some, reader, top, every_s, changes), top, columns)


@dataclass(frozen=True)
class SketchUpdate:
    """One change: the merged sketch, its parts, the lag of each, and the drift since the first update."""

    merged: "MergedSketch"
    snapshots: "list[Snapshot]"
    lags: Mapping[str, int]
    drift: "Drift | None"
    changed: bool = True
    """If False, only ages and lags are new."""


def _updates(
    some: "Some", reader: "SnapshotReader", top: int, every_s: float, changes: int | None
) -> Iterator[SketchUpdate]:
    from sfd_stream.kafka.admin import Admin

    admin = Admin(snapshots.client_properties(some), snapshots.client_hooks(some))
    first, last, count = None, None, 0
    for merged in reader.watch(every_s=every_s, unchanged=True):
        first = first or merged
        changed = last is None or merged.matrix is not last.merged.matrix
        drift = _drift(merged, first, top) if changed or last is None else last.drift
        last = SketchUpdate(merged, reader.held(), _lags(admin, reader, merged), drift, changed)
        yield last
        count += changed
        if count == changes:
            return


def _lags(admin: Any, reader: "SnapshotReader", merged: "MergedSketch") -> dict[str, int]:
    """By partition: messages of the input topic that are not in the sketch, if that topic is on the same cluster."""
    parts = dict(zip(merged.ages_s, merged.parts, strict=True))
    near = {label: part for label, part in parts.items() if part.id.cluster in (None, reader.cluster_id)}
    places = {label: (part.id.topic, part.id.partition) for label, part in near.items()}
    found = admin.known_ends(set(places.values()), _LAG_TIMEOUT_S)
    return {label: max(found[place] - near[label].next_offset, 0) for label, place in places.items() if place in found}


def _drift(merged: "MergedSketch", first: "MergedSketch", top: int) -> "Drift | None":
    k = min(top, first.k_max, merged.k_max)
    try:
        return merged.drift(first, k)
    except ValueError:
        return None  # too few directions yet


def _lines(updates: Iterator[SketchUpdate], _top: int, _columns: int) -> None:
    from sfd_stream.reader.report import ratio_of

    for update in updates:
        if not update.changed:
            continue
        drift = "" if update.drift is None else f", {_angle(update.drift)}"
        lag = f", lag {sum(update.lags.values()):,}" if update.lags else ""
        print_text(f"{update.merged!r}, error {ratio_of(update.merged):.3%}{lag}{drift}")
        sys.stdout.flush()


def _json_lines(updates: Iterator[SketchUpdate], top: int, columns: int) -> None:
    """Prints what `read --json` prints, with lags and the drift since the first line."""
    from sfd_stream.cli.output import print_json_line
    from sfd_stream.reader.report import report

    for update in updates:
        if update.changed:
            print_json_line({**report(update.merged, top, columns), "lag": update.lags, "drift": _plain(update.drift)})


def _plain(drift: "Drift | None") -> dict[str, Any] | None:
    """Angles in radians, the largest first."""
    return None if drift is None else {"angles": [float(angle) for angle in drift.angles], "error": float(drift.error)}


def _live(updates: Iterator[SketchUpdate], top: int, columns: int) -> None:
    from rich.live import Live

    with Live("waiting for a first snapshot", refresh_per_second=4) as live:
        for update in updates:
            live.update(view(update, top, columns), refresh=True)


def view(update: SketchUpdate, top: int, columns: int) -> Any:
    """The whole screen, as a rich renderable."""
    from rich.console import Group
    from rich.text import Text

    from sfd_stream.reader.report import ratio_of

    merged = update.merged
    whole = len(merged.parts) + len(merged.missing)
    state = f"all {whole} partitions" if merged.complete else f"INCOMPLETE: {len(merged.parts)} of {whole} partitions"
    head = Text(f"{merged.rows:,} rows, error <= {ratio_of(merged):.3%} of ||A||F^2, ")
    head.append(state, style="" if merged.complete else "bold red")
    if update.drift is not None:
        head.append(f"; {_angle(update.drift)}")
    return Group(head, _partitions(update), _spectrum(merged, top, columns))


def _angle(drift: "Drift") -> str:
    import math

    largest, error = math.degrees(drift.angles[0]), math.degrees(drift.error)
    return f"drift {largest:.1f}° ± {error:.1f}° (k = {len(drift.angles)})"


def _partitions(update: SketchUpdate) -> Any:
    from rich import box
    from rich.table import Table

    table = Table("partition", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("rows", "lag", "error", "age"):
        table.add_column(title, justify="right")
    own = {snapshot.id: snapshot.sketch for snapshot in update.snapshots}
    for label, part in zip(update.merged.ages_s, update.merged.parts, strict=True):
        sketch = own.get(part.id)  # none for the parts of a merge
        ratio = f"{sketch.delta / sketch.squared_frobenius:.3%}" if sketch and sketch.squared_frobenius else ""
        lag = f"{update.lags[label]:,}" if label in update.lags else "?"
        table.add_row(_safe(label), f"{part.rows:,}", lag, ratio, f"{update.merged.ages_s[label]:,.0f} s")
    for label in update.merged.missing:
        table.add_row(_safe(label), "missing", "", "", "", style="bold red")
    return table


def _spectrum(merged: "MergedSketch", top: int, columns: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from sfd_stream.sketch.sketch import at_most

    k = at_most(top, merged)
    values, names = merged.singular_values(k), merged.top(k, columns)
    table = Table("", "singular value", "", "strongest columns", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, (value, words) in enumerate(zip(values, names, strict=True), start=1):
        bar = "█" * max(round(_BAR * float(value / values[0])), 1)
        strongest = " ".join(f"{'-' if weight < 0 else ''}{name}" for name, weight in words)
        table.add_row(str(number), f"{value:,.5g}", Text(bar), _safe(strongest))
    return table


def _safe(text: str) -> Any:
    """The text without markup and control characters."""
    from rich.text import Text

    return Text(printable(text))
