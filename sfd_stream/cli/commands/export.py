"""`sfd-stream export`: the newest sketch as a file."""

# Annotations are evaluated: typer reads them.
from pathlib import Path
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption
from sfd_stream.cli.snapshot_options import (
    BrokerOption,
    GroupOption,
    StoreOption,
    TopicOption,
    reader_of,
    say_written,
    some_settings,
    warn_if_incomplete,
)


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=".npz (NumPy), .csv (a long table) or .mtx (B itself).")],
    *,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    top: Annotated[int | None, typer.Option("--top", "-k", min=1, help="Number of directions; default: all.")] = None,
    store_url: StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the newest merged sketch to a file.

    Example: [bold]sfd-stream export sketch.npz --topic sketches --broker localhost:9092[/bold]
    """
    from sfd_stream.reader.export import export as write

    with reader_of(some_settings(config, overrides, broker), topic, group, store_url) as reader:
        merged = reader.merged()
    warn_if_incomplete(merged)
    write(merged, file, top)
    say_written(file, merged, as_json=as_json)
