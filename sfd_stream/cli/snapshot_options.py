"""Options of the commands that read snapshots, and the reader built from them."""

# Annotations are evaluated: typer reads them.
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.errors import SettingsError
from sfd_stream.printable import printable

if TYPE_CHECKING:
    from sfd_stream.config import Some
    from sfd_stream.kafka.errors import Hooks
    from sfd_stream.reader.merged import MergedSketch
    from sfd_stream.reader.reader import SnapshotReader

BrokerOption = Annotated[
    str | None, typer.Option("--broker", metavar="HOST:PORT", help="Short for --set kafka.bootstrap.servers=HOST:PORT.")
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="The topic of snapshots.", show_default="snapshot.topic")
]
GroupOption = Annotated[
    str | None, typer.Option("--group", help="Consumer group whose sketches to read, if the topic holds several.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store-url",
        metavar="URL",
        help="The checkpoint store to fetch large snapshots from.",
        show_default="checkpoint.url, snapshot.trusted_stores",
    ),
]
TopOption = Annotated[int, typer.Option("--top", "-k", min=1, help="Number of directions.")]
ColumnsOption = Annotated[int, typer.Option("--columns", min=1, help="Number of columns to show for each direction.")]


def some_settings(
    config: Path | None, overrides: list[str] | None, broker: str | None, sections: tuple[str, ...] = ()
) -> "Some":
    from sfd_stream.config import load_some

    short = [f"kafka.bootstrap.servers={broker}"] if broker else []
    judged = ("snapshot", *sections)
    found = load_some(config, environ=os.environ, overrides=[*(overrides or ()), *short], sections=judged)
    if not found.kafka.get("bootstrap.servers"):
        raise SettingsError("which broker? Give --broker HOST:PORT, --config FILE or SFD_KAFKA__BOOTSTRAP_SERVERS")
    return found


def reader_of(
    some: "Some", topic: str | None, group: str | None, store_url: str | None = None, **more: Any
) -> "SnapshotReader":
    """A reader of `topic`, or of snapshot.topic, with the brokers and stores of the settings."""
    from sfd_stream.config.container_limits import own_quota
    from sfd_stream.reader.reader import SnapshotReader

    topic = topic or some.given.get("snapshot.topic")
    if topic is None:
        raise SettingsError("which topic? Give --topic NAME, or --config FILE with snapshot.topic")
    properties = client_properties(some)
    prefix = "checkpoint.options."
    options = {key.removeprefix(prefix): str(value) for key, value in some.given.items() if key.startswith(prefix)}
    bootstrap = str(properties.pop("bootstrap.servers"))
    snapshot, own_store, memory_bytes = (
        some.sections["snapshot"],
        some.given.get("checkpoint.url"),
        own_quota().memory_bytes,
    )
    return SnapshotReader(
        bootstrap,
        str(topic),
        group=group,
        store_url=store_url,
        store_options=options,
        trusted_stores=(*(snapshot.trusted_stores or ()), *([str(own_store)] if own_store else [])),
        max_snapshot_bytes=snapshot.read_max_bytes,
        max_total_bytes=None if memory_bytes is None else memory_bytes // 2,
        hooks=client_hooks(some),
        **more,
        **properties,
    )


def client_properties(some: "Some") -> dict[str, Any]:
    """Properties of the clients of a reading command. Client logs are reduced: the command reports errors itself."""
    return {"log_level": 2, **{key: value for key, value in some.kafka.items() if "." in key or key == "log_level"}}


def client_hooks(some: "Some") -> "Hooks":
    """The login hooks of the clients."""
    from sfd_stream.cli.logins import hooks_for

    return hooks_for(some.given.get("kafka_oauth_callback"), some.kafka)


def warn_if_incomplete(merged: "MergedSketch") -> None:
    if not merged.complete:
        held, missing = len(merged.parts), len(merged.missing)
        some = ", ".join(merged.missing[:8]) + (", ..." if missing > 8 else "")
        typer.echo(f"INCOMPLETE: {held} of {held + missing} partitions, no snapshot of {printable(some)}", err=True)


def print_written(file: Path, merged: "MergedSketch", pictures: Sequence[str] = (), *, as_json: bool) -> None:
    """Prints what was written to the file. `pictures` are the names of the drawn pictures."""
    from sfd_stream.cli.output import print_json, print_text
    from sfd_stream.reader.report import numbers_of

    if not as_json:
        drawn = f"{', '.join(pictures)} of " if pictures else ""
        print_text(f"{file}: {drawn}{merged!r}")
        return
    found: dict[str, Any] = {"file": str(file), "complete": merged.complete, "missing": list(merged.missing)}
    if pictures:
        found["pictures"] = list(pictures)
    print_json({**found, **numbers_of(merged)})
