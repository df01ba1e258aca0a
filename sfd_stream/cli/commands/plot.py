"""`sfd-stream plot`: draws the newest sketch and its drift."""

# Annotations are evaluated: typer reads them.
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sfd_stream.cli import snapshot_options as snapshots
from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption


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
    topic: snapshots.TopicOption = None,
    broker: snapshots.BrokerOption = None,
    group: snapshots.GroupOption = None,
    top: snapshots.TopOption = 10,
    store_url: snapshots.StoreOption = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw the spectrum with its error band, the energy curve, the components, the drift over time.

    The picture of drift compares about a hundred states with the first one for which the topic still has a
    snapshot of every partition.

    Example: [bold]sfd-stream plot sketch.svg --what spectrum --topic sketches --broker localhost:9092[/bold]
    """
    from sfd_stream.reader import plots

    wanted = what or [PictureName.SPECTRUM, PictureName.ENERGY, PictureName.COMPONENTS]
    figure = plots.new_figure(len(wanted))
    with snapshots.reader_of(snapshots.some_settings(config, overrides, broker), topic, group, store_url) as reader:
        merged = reader.merged()
        snapshots.warn_if_incomplete(merged)
        plots.refuse_if_empty(merged)
        points = plots.drift_points(merged, reader.history(), top) if PictureName.DRIFT in wanted else []
    for axes, picture in zip(figure.subplots(len(wanted), squeeze=False)[:, 0], wanted, strict=True):
        if picture is PictureName.DRIFT:
            plots.drift(axes, merged, points, top)
        else:
            plots.PICTURES[picture](axes, merged, top)
    plots.save(figure, file)
    snapshots.print_written(file, merged, list(wanted), as_json=as_json)
