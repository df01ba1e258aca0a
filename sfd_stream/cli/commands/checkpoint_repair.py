"""`sfd-stream checkpoint rollback|reset|prune`: changes the store. Each prints what it will do before it asks.

No manifest is rewritten. A repair is a further manifest with a higher epoch: a running owner is fenced and restores it.
"""

# Annotations are evaluated: typer reads them.
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.cli.output import print_json, print_table, print_text
from sfd_stream.cli.partition_options import PlaceArgument, place_of, places_of, store_session_of
from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.state.manifest import Manifest
    from sfd_stream.state.repair import ResetPoint
    from sfd_stream.tools.inspect import Place, Standing

BROKER_TIMEOUT_S = 15.0
_DECLINED = 130
"""The same exit code as Ctrl-C at the question."""

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def rollback(
    place: PlaceArgument,
    config: ConfigOption = None,
    overrides: SetOption = None,
    to: Annotated[
        int | None,
        typer.Option("--to", min=1, metavar="N", help="Number of the checkpoint; default: the newest valid older one."),
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Go back to an older checkpoint and read again from its offset. Nothing is deleted.

    Example: [bold]sfd-stream checkpoint rollback rows/3 --config settings.yaml[/bold]
    """
    from sfd_stream.tools.inspect import find, rows_in, stand

    settings = settings_from(config, overrides).settings
    session, where = store_session_of(settings), place_of(settings, place)
    target = session.rollback_target(where) if to is None else session.run(find(where, to))
    standing = session.run(stand(where))
    _confirm(
        f"{where} goes back {_from(standing)}to the state of checkpoint {target.number}: "
        f"{rows_in(target):,} rows, next offset {target.next_offset:,}. What came after is read again from the topic.",
        yes=yes,
    )
    _print_done(where, session.roll_back(where, target.number), as_json=as_json)


def reset(
    place: PlaceArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="earliest|latest|OFFSET", help="Where reading starts. An offset works without a broker."
        ),
    ],
    config: ConfigOption = None,
    overrides: SetOption = None,
    keep_sketch: Annotated[
        bool, typer.Option("--keep-sketch", help="Keep the sketch and its counts; change only the offset.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start again at an offset, with an empty sketch or with the present one. Nothing is deleted.

    Example: [bold]sfd-stream checkpoint reset rows/3 --to earliest --config settings.yaml[/bold]
    """
    from sfd_stream.tools.inspect import stand

    settings = settings_from(config, overrides).settings
    session, where = store_session_of(settings), place_of(settings, place)
    standing = session.run(stand(where))
    start = _start_of(settings, where, to, standing)
    _confirm(_reset_words(where, standing, start, keep_sketch=keep_sketch), yes=yes)
    _print_done(where, session.reset(where, start, keep_sketch=keep_sketch), as_json=as_json)


def prune(config: ConfigOption = None, overrides: SetOption = None, as_json: JsonOption = False) -> None:
    """Delete checkpoints beyond the newest checkpoint.keep, as a worker does after each checkpoint.

    Example: [bold]sfd-stream checkpoint prune --config settings.yaml --set checkpoint.keep=2[/bold]
    """
    from sfd_stream.storage.disk import DiskStore

    settings = settings_from(config, overrides).settings
    session = store_session_of(settings)
    removed = {where: session.prune(where, settings.checkpoint.keep) for where in places_of(settings, session.store)}
    stale = session.store.remove_stale() if isinstance(session.store, DiskStore) else 0
    if as_json:
        counts = {str(where.partition): vars(count) for where, count in removed.items()}
        print_json({"partitions": counts, "stale_files": stale})
        return
    print_table(
        ("partition", "manifests removed", "blobs removed"),
        [(str(where), count.manifests, count.blobs) for where, count in removed.items()],
    )
    if stale:
        print_text(f"{stale} temporary files of ended processes were removed")


# -- where a reset begins --------------------------------------------------------------------------------


def _start_of(settings: "Settings", place: "Place", to: str, standing: "Standing") -> "ResetPoint":
    """An offset is used as given. For `earliest` and `latest` the broker is asked, and the topic's id is recorded."""
    from sfd_stream.cli.build import shape_of
    from sfd_stream.state.manifest import Binding
    from sfd_stream.state.repair import ResetPoint

    if to.isascii() and to.isdigit():
        binding = Binding(None, None, place.group, place.topic, place.partition)  # the next claim adds the ids
        offset = int(to)
    elif to in {"earliest", "latest"}:
        binding, low, high = _ask_broker(settings, place)
        offset = low if to == "earliest" else high
    else:
        raise SettingsError(f"--to {to!r} is none of earliest, latest or an offset")
    parameters = shape_of(settings, place.partition).described()
    return ResetPoint(binding, offset, None, parameters, _output_epoch(settings, place, standing))


def _ask_broker(settings: "Settings", place: "Place") -> tuple[Any, int, int]:
    from sfd_stream.cli.build import admin_of
    from sfd_stream.errors import BrokerRefusedError
    from sfd_stream.state.manifest import Binding

    admin = admin_of(settings)
    try:
        count = admin.partition_count(place.topic, BROKER_TIMEOUT_S)
        if place.partition >= count:
            raise SettingsError(f"topic {place.topic} has partitions 0 to {count - 1}, not {place.partition}")
        low, high = admin.watermarks(place.topic, place.partition, BROKER_TIMEOUT_S)
        ids = admin.cluster_of(place.topic, BROKER_TIMEOUT_S), admin.topic_id(place.topic, BROKER_TIMEOUT_S)
    except TimeoutError as error:
        raise BrokerRefusedError(f"{error}; with --to OFFSET no broker is needed") from None
    return Binding(*ids, place.group, place.topic, place.partition), low, high


def _output_epoch(settings: "Settings", place: "Place", standing: "Standing") -> int | None:
    """The highest epoch on the output topic, if the store does not have it.

    A readable manifest bounds every epoch that was ever published. Without one, readers would ignore a state that
    starts again at epoch 1 as outdated [P].
    """
    from sfd_stream.cli.build import admin_of, output_epochs
    from sfd_stream.errors import BrokerRefusedError
    from sfd_stream.state.manifest import Manifest

    topic = settings.snapshot.topic
    if topic is None or isinstance(standing.newest, Manifest):
        return None
    try:
        if not admin_of(settings).topic_exists(topic, BROKER_TIMEOUT_S):
            return None
        source = settings.input.model_copy(update={"topic": place.topic})
        return output_epochs(settings.model_copy(update={"input": source})).get(place.partition)
    except TimeoutError as error:
        raise BrokerRefusedError(
            f"{error}; it is needed here: without a readable checkpoint of {place} only the topic {topic} has "
            "the epoch that its readers know"
        ) from None


# -- words -----------------------------------------------------------------------------------------------


def _reset_words(place: "Place", standing: "Standing", start: "ResetPoint", *, keep_sketch: bool) -> str:
    from sfd_stream.state.manifest import Manifest
    from sfd_stream.tools.inspect import rows_in

    newest, offset = standing.newest, start.next_offset
    begins = f"{place} starts again at offset {offset:,}"
    if not isinstance(newest, Manifest):
        found = (
            "there is no checkpoint yet" if newest is None else f"its checkpoint {standing.numbers[-1]} is unreadable"
        )
        return f"{begins} with an empty sketch ({found})."
    if not keep_sketch:
        return (
            f"{begins} with an empty sketch: the {rows_in(newest):,} rows of checkpoint {newest.number} no longer "
            f'count. Until it is pruned, "sfd-stream checkpoint rollback {place} --to {newest.number}" undoes this.'
        )
    kept = f"{place} keeps its sketch of {rows_in(newest):,} rows and continues at offset {offset:,} instead of "
    gap = offset - newest.next_offset
    if gap > 0:
        return f"{kept}{newest.next_offset:,}: the {gap:,} offsets in between are never counted."
    if gap < 0:
        return f"{kept}{newest.next_offset:,}: up to {-gap:,} records in between are COUNTED TWICE."
    return f"{kept}the same offset."


def _from(standing: "Standing") -> str:
    from sfd_stream.state.manifest import Manifest
    from sfd_stream.tools.inspect import rows_in

    newest = standing.newest
    if not isinstance(newest, Manifest):
        return f"from checkpoint {standing.numbers[-1]}, which can't be used, " if standing.numbers else ""
    return f"from checkpoint {newest.number} ({rows_in(newest):,} rows, next offset {newest.next_offset:,}) "


def _confirm(words: str, *, yes: bool) -> None:
    """Prints the question on standard error. Continues only after a yes."""
    sys.stderr.write(f"{words}\nA running worker is fenced and continues from there.\n")
    if yes:
        return
    if not sys.stdin.isatty():
        raise SettingsError("nothing was changed: add --yes, or run it on a terminal to confirm")
    if not typer.confirm("Do it?", err=True):
        sys.stderr.write("nothing was changed\n")
        raise typer.Exit(_DECLINED)


def _print_done(place: "Place", made: "Manifest", *, as_json: bool) -> None:
    from sfd_stream.tools.inspect import rows_in

    if as_json:
        print_json(
            {
                "topic": place.topic,
                "partition": place.partition,
                "number": made.number,
                "epoch": made.epoch,
                "kind": made.kind.value,
                "rows": rows_in(made),
                "next_offset": made.next_offset,
            }
        )
    else:
        print_text(
            f"{place}: checkpoint {made.number} (epoch {made.epoch}) is a {made.kind.value}: {rows_in(made):,} rows, "
            f"next offset {made.next_offset:,}"
        )
