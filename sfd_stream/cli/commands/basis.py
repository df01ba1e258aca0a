"""`sfd-stream basis pin|list|show`: pinned sketches that do not change, as the basis of scores."""

# Annotations are evaluated: typer reads them.
import time
from typing import TYPE_CHECKING, Annotated

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.cli.output import print_json, print_table, print_text
from sfd_stream.cli.partition_options import short_age

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.score.pinned import Pinned, PinnedBases

HELP = """\
Pin the newest sketch as a basis for scores, and list pinned bases. They are in the checkpoint store.

Example: [bold]sfd-stream basis pin --config settings.yaml[/bold]
"""

IdArgument = Annotated[str, typer.Argument(metavar="ID", help='The id of a pinned basis; "list" prints them.')]


def pin(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Store the newest merged sketch of snapshot.topic as a basis, and print its id.

    Example: [bold]sfd-stream basis pin --config settings.yaml[/bold]
    """
    import contextlib

    from sfd_stream.cli.commands.score import reader_of
    from sfd_stream.cli.snapshot_options import warn_if_incomplete
    from sfd_stream.errors import SettingsError

    settings = settings_from(config, overrides).settings
    if settings.snapshot.topic is None:
        raise SettingsError("snapshot.topic is required: the topic whose newest sketch is pinned")
    with reader_of(settings, contextlib.nullcontext) as reader:
        merged = reader.merged()
    warn_if_incomplete(merged)
    basis_id = pinned_bases_of(settings).pin(merged, time.time())
    if as_json:
        print_json({"id": basis_id, "rows": merged.rows, "complete": merged.complete})
    else:
        print_text(f"{basis_id}: {merged.rows:,} rows, {merged.d:,} columns")


def list_bases(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """List the pinned bases, the newest first.

    Example: [bold]sfd-stream basis list --config settings.yaml[/bold]
    """
    found = pinned_bases_of(settings_from(config, overrides).settings).all()
    if as_json:
        print_json({"bases": [_numbers(pinned) for pinned in found]})
    elif found:
        rows = [(p.id, p.merged.rows, p.merged.d, len(p.merged.parts), short_age(time.time() - p.at_s)) for p in found]
        print_table(("id", "rows", "columns", "partitions", "age"), rows)
    else:
        print_text('no basis is pinned; pin one by "sfd-stream basis pin"')


def show(
    basis_id: IdArgument, config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False
) -> None:
    """Print a pinned basis: its exact counts, its certified error, its strongest directions.

    Example: [bold]sfd-stream basis show 6b86b273ff34fce1 --config settings.yaml[/bold]
    """
    from sfd_stream.cli.commands.read import print_merged
    from sfd_stream.reader.report import report

    pinned = pinned_bases_of(settings_from(config, overrides).settings).load(basis_id)
    if as_json:
        print_json({**_numbers(pinned), **report(pinned.merged, 5, 8, centre=False)})
    else:
        print_merged(pinned.merged, 5, 8, centre=False)


def _numbers(pinned: "Pinned") -> dict[str, object]:
    merged = pinned.merged
    return {"id": pinned.id, "pinned_at_s": pinned.at_s, "rows": merged.rows, "d": merged.d, "ell": merged.ell}


def pinned_bases_of(settings: "Settings") -> "PinnedBases":
    from sfd_stream.cli.build import store_of
    from sfd_stream.score.pinned import PinnedBases

    limit = settings.snapshot.read_max_bytes
    return PinnedBases(store_of(settings), settings.group, settings.input.topic, limit)


COMMANDS = {"pin": pin, "list": list_bases, "show": show}
