"""`sfd-stream checkpoint ls|show|verify`: reads the store without a broker. Repairs are in `checkpoint_repair`."""

# Annotations are evaluated: typer reads them.
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.commands.checkpoint_repair import prune, reset, rollback
from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.cli.output import print_json, print_table, print_text
from sfd_stream.cli.partition_options import PlaceArgument, place_of, places_of, short_age, store_session_of
from sfd_stream.errors import RefusedStateError

if TYPE_CHECKING:
    from sfd_stream.tools.inspect import Place, Standing, Verification

HELP = """\
List, verify and repair checkpoints. T/P is topic/partition, or only the partition of input.topic.

Example: [bold]sfd-stream checkpoint ls --config settings.yaml[/bold]
"""


def ls(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """List the partitions that have a checkpoint, each with its newest.

    Example: [bold]sfd-stream checkpoint ls --config settings.yaml[/bold]
    """
    from sfd_stream.tools.inspect import stand

    settings = settings_from(config, overrides).settings
    session = store_session_of(settings)
    now_s = session.wall_clock()
    lines = [_line(place, session.run(stand(place)), now_s) for place in places_of(settings, session.store)]
    if as_json:
        print_json({"partitions": {str(line["partition"]): line for line in lines}})
    elif lines:
        names = ("number", "epoch", "state", "rows", "next_offset", "bytes", "age")
        header = ("partition", *(name.replace("_", " ") for name in names))
        print_table(header, [(f"{settings.input.topic}/{line['partition']}", *_cells(line, names)) for line in lines])
    else:
        print_text(f"there is no checkpoint of {settings.input.topic} for group {settings.group} in the store")


def _cells(line: dict[str, Any], names: Sequence[str]) -> list[Any]:
    """The values in the order of `names`; those that are not known are empty."""
    known = {name: value for name, value in line.items() if value is not None}
    if "age_s" in known:
        known["age"] = short_age(known["age_s"])
    return [known.get(name, "") for name in names]


def _line(place: "Place", standing: "Standing", now_s: float) -> dict[str, Any]:
    from sfd_stream.state.manifest import Manifest
    from sfd_stream.tools.inspect import rows_in, state_words, stored_bytes

    newest = standing.newest
    number = standing.numbers[-1] if standing.numbers else 0
    line: dict[str, Any] = {"partition": place.partition, "number": number, "manifests": len(standing.numbers)}
    if not isinstance(newest, Manifest):
        unknown = dict.fromkeys(("epoch", "rows", "next_offset", "bytes", "written_at_s", "age_s"))
        state = "no manifest, only blobs" if newest is None else f"{newest.why}; {newest.remedy}"
        return {**line, "state": state, **unknown}
    return {
        **line,
        "state": state_words(newest),
        "epoch": newest.epoch,
        "rows": rows_in(newest),
        "next_offset": newest.next_offset,
        "bytes": stored_bytes(newest),
        "written_at_s": newest.written_at_s,
        "age_s": max(now_s - newest.written_at_s, 0.0),
    }


def show(
    place: PlaceArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    number: Annotated[
        int | None, typer.Option("--number", min=1, help="Number of the checkpoint; default: the newest.")
    ] = (None),
    as_json: JsonOption = False,
) -> None:
    """Print one checkpoint's manifest in full, with its blobs.

    Example: [bold]sfd-stream checkpoint show rows/3 --number 41 --config settings.yaml[/bold]
    """
    from sfd_stream.tools.inspect import described, find

    settings = settings_from(config, overrides).settings
    found = described(store_session_of(settings).run(find(place_of(settings, place), number)))
    if as_json:
        print_json(found)
        return
    blobs = found.pop("blobs")
    found["written_at_s"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found["written_at_s"]))
    print_table(("of the manifest", ""), list(_flat(found)))
    if blobs:
        print_table(tuple(blobs[0]), [tuple(blob.values()) for blob in blobs])


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines = []
    for name, value in values.items():
        if isinstance(value, dict):
            lines += _flat(value, f"{prefix}{name}.")
        else:
            lines.append((f"{prefix}{name}", "-" if value is None else str(value)))
    return lines


def verify(
    place: Annotated[str | None, typer.Argument(metavar="[T/P]", help="One partition; default: all.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read all checkpoints: check every checksum and load every sketch; exit 3 if something is wrong.

    Example: [bold]sfd-stream checkpoint verify --config settings.yaml[/bold]
    """
    from sfd_stream.tools.inspect import verify as verify_steps

    settings = settings_from(config, overrides).settings
    session = store_session_of(settings)
    places = places_of(settings, session.store) if place is None else [place_of(settings, place)]
    verdicts = {each: session.run(verify_steps(each)) for each in places}
    if place is not None and not verdicts[places[0]].manifests:
        raise RefusedStateError(f'there is no checkpoint of {places[0]}; "sfd-stream checkpoint ls" lists what exists')
    if as_json:
        print_json({"partitions": {str(each): _verdict(verdict) for each, verdict in verdicts.items()}})
    else:
        _print_verdicts(verdicts)
    if any(verdict.problems for verdict in verdicts.values()):
        raise typer.Exit(RefusedStateError.exit_code)


def _verdict(verdict: "Verification") -> dict[str, Any]:
    return {
        "ok": not verdict.problems,
        "manifests": verdict.manifests,
        "blobs": verdict.blobs,
        "bytes": verdict.stored_bytes,
        "problems": [{"what": problem.why, "remedy": problem.remedy} for problem in verdict.problems],
    }


def _print_verdicts(verdicts: "dict[Place, Verification]") -> None:
    for place, verdict in verdicts.items():
        words = "good" if not verdict.problems else "NOT GOOD"
        print_text(
            f"{place}: {words} ({verdict.manifests} manifests, {verdict.blobs} blobs, {verdict.stored_bytes:,} bytes)"
        )
        for problem in verdict.problems:
            print_text(f"  {problem.why}; {problem.remedy}")
    if not verdicts:
        print_text("there is nothing to verify")


COMMANDS = {"ls": ls, "show": show, "verify": verify, "rollback": rollback, "reset": reset, "prune": prune}
