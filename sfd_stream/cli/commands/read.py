"""`sfd-stream read`: prints the newest snapshots, merged or one by one."""

# Annotations are evaluated: typer reads them.
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli import snapshot_options as snapshots
from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption
from sfd_stream.cli.output import print_json, print_table, print_text
from sfd_stream.errors import RefusedStateError

if TYPE_CHECKING:
    from sfd_stream.reader.merged import MergedSketch


def read(
    topic: snapshots.TopicOption = None,
    broker: snapshots.BrokerOption = None,
    group: snapshots.GroupOption = None,
    *,
    per_partition: Annotated[
        bool, typer.Option("--per-partition", help="Print the sketch of each partition instead of the merged one.")
    ] = False,
    centre: Annotated[
        bool, typer.Option("--centre", help="Print the directions around the mean (principal components).")
    ] = False,
    top: snapshots.TopOption = 10,
    columns: snapshots.ColumnsOption = 8,
    store_url: snapshots.StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the newest sketch: its exact counts, its certified error, its strongest directions by name.

    Example: [bold]sfd-stream read --topic sketches --broker localhost:9092[/bold]
    """
    import time

    from sfd_stream.reader.merged import merge

    with snapshots.reader_of(snapshots.some_settings(config, overrides, broker), topic, group, store_url) as reader:
        found = [merge([one], time.time()) for one in reader.latest()] if per_partition else [reader.merged()]
    if centre and any(merged.column_sums is None for merged in found):
        raise RefusedStateError(
            "the snapshots were published without column sums, which --centre needs; set snapshot.column_sums: true "
            "in the workers' settings"
        )
    if as_json:
        _print_json(found, top, columns, per_partition=per_partition, centre=centre)
        return
    for merged in found:
        if not per_partition:
            snapshots.warn_if_incomplete(merged)
        print_merged(merged, top, columns, centre=centre)


def _print_json(found: "list[MergedSketch]", top: int, columns: int, *, per_partition: bool, centre: bool) -> None:
    from sfd_stream.reader.report import report

    reports = [report(merged, top, columns, centre=centre) for merged in found]
    if not per_partition:
        print_json(reports[0])
        return
    for one in reports:  # a single partition has no missing ones
        del one["complete"], one["missing"]
    print_json({"snapshots": reports})


def print_merged(merged: "MergedSketch", top: int, columns: int, *, centre: bool) -> None:
    from sfd_stream.reader.report import centred_directions_of, directions_of, numbers_of, partitions_of

    numbers = numbers_of(merged)
    print_text(
        f"{numbers['rows']:,} rows, {numbers['nnz']:,} non-zeros, {numbers['d']:,} columns; ||A||F^2 = "
        f"{numbers['squared_frobenius']:,.6g}; error <= {numbers['delta_ratio']:.3%} of it, "
        f"except with probability {numbers['failure_probability']:.2g}"
    )
    header = ("partition", "rows", "next_offset", "epoch", "number", "age_s")
    print_table(header, [[part[name] for name in header] for part in partitions_of(merged)])
    key, title = ("explained_variance", "variance") if centre else ("singular_value", "singular value")
    found = (centred_directions_of if centre else directions_of)(merged, top, columns)
    rows = [_row(number, key, direction) for number, direction in enumerate(found, start=1)]
    print_table(("direction", title, "share", "strongest columns"), rows)


def _row(number: int, key: str, direction: dict[str, Any]) -> tuple[Any, ...]:
    low, high = direction["share"]
    words = " ".join(f"{'-' if column['weight'] < 0 else ''}{column['name']}" for column in direction["columns"])
    return number, f"{direction[key]:,.5g}", f"{low:.2%} to {high:.2%}", words
