"""`sfd-stream plot`: pictures of the newest sketch, and of its drift."""

# Annotations are evaluated: typer reads them.
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption
from sfd_stream.cli.snapshot_options import (
    BrokerOption,
    GroupOption,
    StoreOption,
    TopicOption,
    TopOption,
    reader_of,
    say_written,
    some_settings,
    warn_if_incomplete,
)


class PictureName(StrEnum):
    SPECTRUM = "spectrum"
    ENERGY = "energy"
    COMPONENTS = "components"
    DRIFT = "drift"


def plot(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write: .png or .svg.")],
    *,
    what: Annotated[
        list[PictureName] | None,
        typer.Option("--what", help="Picture to draw; may be repeated.", show_default="all but drift"),
    ] = None,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    group: GroupOption = None,
    top: TopOption = 10,
    store_url: StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the spectrum with its error band, the energy curve, the components, the drift over time.

    Drift is drawn over the snapshots that the topic still holds, at about a hundred moments since every partition had
    one, against the first of them.

    Example: [bold]sfd-stream plot sketch.svg --what spectrum --topic sketches --broker localhost:9092[/bold]
    """
    from sfd_stream.reader import plots

    wanted = what or [PictureName.SPECTRUM, PictureName.ENERGY, PictureName.COMPONENTS]
    figure = plots.new_figure(len(wanted))
    with reader_of(some_settings(config, overrides, broker), topic, group, store_url) as reader:
        merged = reader.merged()
        warn_if_incomplete(merged)
        plots.refuse_if_empty(merged)
        points = plots.drift_points(merged, reader.history(), top) if PictureName.DRIFT in wanted else []
    for axes, picture in zip(figure.subplots(len(wanted), squeeze=False)[:, 0], wanted, strict=True):
        if picture is PictureName.DRIFT:
            plots.drift(axes, merged, points, top)
        else:
            plots.PICTURES[picture](axes, merged, top)
    plots.save(figure, file)
    say_written(file, merged, list(wanted), as_json=as_json)
