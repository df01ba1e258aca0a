"""`sfd-stream drift`: compares the rows of two sketches, and names the columns that moved."""

# Annotations are evaluated: typer reads them.
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.cli.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.reader.merged import MergedSketch
    from sfd_stream.sketch.drift import Drift

_NOTE = "This is about these rows alone: two samples of one process differ, too (docs/guides/scoring.md)."


def drift(
    reference_id: Annotated[str, typer.Option("--from", metavar="ID", help="The pinned basis that is the reference.")],
    to_id: Annotated[
        str | None,
        typer.Option("--to", metavar="ID", help="The pinned basis to compare.", show_default="the newest snapshots"),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Number of directions to compare.", show_default="ell / 4")
    ] = None,
    columns: Annotated[int, typer.Option("--columns", min=1, help="Number of columns to print.")] = 10,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it into this .png or .svg.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare two sketches of a topic: whether their rows differ beyond the sketches' error, and which columns moved.

    [bold]--plot FILE[/bold] draws the angles between the directions and the columns that moved.
    Pin bases by [bold]sfd-stream basis pin[/bold].

    Example: [bold]sfd-stream drift --from 6b86b273ff34fce1 --config settings.yaml[/bold]
    """
    from sfd_stream.cli.commands.basis import pinned_bases_of

    settings = settings_from(config, overrides).settings
    pinned = pinned_bases_of(settings)
    reference = pinned.load(reference_id).merged
    later = _newest(settings) if to_id is None else pinned.load(to_id).merged
    k = k or max(min(reference.ell, later.ell) // 4, 1)
    k = min(k, reference.k_max, later.k_max)
    found, moved = later.drift(reference, k), _moved(later, reference, k, columns)
    if picture is not None:
        _draw(found, moved, picture)
    if as_json:
        print_json({"from": reference_id, "to": to_id, **_numbers(found), "columns": moved})
    else:
        _print(found, moved, reference_id)


def _newest(settings: "Settings") -> "MergedSketch":
    from sfd_stream.cli.commands.score import reader_of
    from sfd_stream.cli.snapshot_options import warn_if_incomplete
    from sfd_stream.errors import SettingsError

    if settings.snapshot.topic is None:
        raise SettingsError("snapshot.topic is required where --to is not given")
    with reader_of(settings, contextlib.nullcontext) as reader:
        merged: MergedSketch = reader.merged()
    warn_if_incomplete(merged)
    return merged


def _moved(later: "MergedSketch", reference: "MergedSketch", k: int, top: int) -> list[dict[str, Any]]:
    import numpy as np

    from sfd_stream.sketch.drift import moved_columns

    d = max(later.d, reference.d)
    V, W = (np.pad(each.components(k), ((0, 0), (0, d - each.d))) for each in (later, reference))
    shares = moved_columns(V, W)
    names = later if later.d == d else reference
    order = [column for column in np.argsort(-shares, kind="stable")[:top].tolist() if shares[column] > 0]
    return [{"column": column, "name": names.name(column), "share": float(shares[column])} for column in order]


def _numbers(found: "Drift") -> dict[str, Any]:
    import numpy as np

    return {
        "k": len(found.angles),
        "differs": found.differs,
        "outside": found.outside._asdict(),
        "reference_outside": found.reference_outside._asdict(),
        "largest_angle_degrees": float(np.degrees(found.angles[0])),
        "angle_error_degrees": float(np.degrees(found.error)),
        "failure_probability": found.failure_probability,
    }


def _draw(found: "Drift", moved: list[dict[str, Any]], file: Path) -> None:
    from sfd_stream.reader import plots

    figure = plots.new_figure(2)
    plots.compared(figure, found, [(each["name"], each["share"]) for each in moved])
    plots.save(figure, file)


def _print(found: "Drift", moved: list[dict[str, Any]], reference_id: str) -> None:
    numbers = _numbers(found)
    shares = [f"{each.lower:.2%} to {each.upper:.2%}" for each in (found.outside, found.reference_outside)]
    verdict = "differ beyond" if found.differs else "do not differ beyond"
    print_text(
        f"outside the {numbers['k']} directions of {reference_id}: {shares[0]} of the energy of these rows,"
        f" {shares[1]} of that of its own rows: they {verdict} the error of both sketches\n"
        f"largest angle between the directions: {numbers['largest_angle_degrees']:.2f} degrees,"
        f" +- {numbers['angle_error_degrees']:.2f}\n{_NOTE}"
    )
    if moved:
        print_table(("column", "share of the turn"), [(each["name"], f"{each['share']:.1%}") for each in moved])
