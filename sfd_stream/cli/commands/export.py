"""`sfd-stream export`: writes the newest sketch to a file."""

# Annotations are evaluated: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from sfd_stream.cli import snapshot_options as snapshots
from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".npz (NumPy), .csv (a long table) or .mtx (B itself).")],
    *,
    topic: snapshots.TopicOption = None,
    broker: snapshots.BrokerOption = None,
    group: snapshots.GroupOption = None,
    top: Annotated[int | None, typer.Option("--top", "-k", min=1, help="Number of directions; default: all.")] = None,
    store_url: snapshots.StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the newest merged sketch to a file.

    Example: [bold]sfd-stream export sketch.npz --topic sketches --broker localhost:9092[/bold]
    """
    from sfd_stream.reader.export import export as write

    with snapshots.reader_of(snapshots.some_settings(config, overrides, broker), topic, group, store_url) as reader:
        merged = reader.merged()
    snapshots.warn_if_incomplete(merged)
    write(merged, file, top)
    snapshots.print_written(file, merged, as_json=as_json)
