"""`sfd-stream features`: previews the features that the settings make from the topic's records."""

# Annotations are evaluated: typer reads them.
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption, settings_from
from sfd_stream.errors import BrokerUnavailableError, SettingsError
from sfd_stream.printable import printable

if TYPE_CHECKING:
    from sfd_stream.config.model import Settings
    from sfd_stream.tools.preview import Preview
    from sfd_stream.wire.formats.records import Reader

SAMPLE = 200
_TIMEOUT_S = 30.0
_FEATURES_MAX = 12
"""Maximum number of features printed for a row."""


def features(
    *,
    sample: Annotated[int, typer.Option(min=1, help="Number of messages to read from the topic.")] = SAMPLE,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read records from this file instead: one JSON value a line.")
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which features the records of the topic become, and possible problems, before a worker runs.

    Prints the first rows, how many features there are, how many share a column, features that dominate, fields that
    look like ids, and what is ignored or bad. With sketch.column_squares also the features that dominate all rows in
    the checkpoints. Reads the topic without a group; commits nothing.

    Example: [bold]sfd-stream features --config settings.yaml --sample 200[/bold]
    """
    from sfd_stream.cli.output import print_json

    settings = settings_from(config, overrides).settings
    found = preview_of(settings, sample, file)
    warnings = found.warnings() + (_scaling_of(settings) if file is None and settings.sketch.column_squares else [])
    if as_json:
        print_json(found.as_map() | {"warnings": warnings})
    else:
        _print(found, warnings)


def _scaling_of(settings: "Settings") -> list[str]:
    """Columns that dominate all rows sketched so far, not only the sample."""
    from sfd_stream.cli.build import store_of
    from sfd_stream.tools.scaling import column_totals

    found = column_totals(store_of(settings), settings.group, settings.input.topic, _TIMEOUT_S)
    return [] if found is None else found.advice()


def preview_of(settings: "Settings", sample: int = SAMPLE, file: Path | None = None) -> "Preview":
    from sfd_stream.cli.build import columns_of
    from sfd_stream.cli.decoder import reader_of
    from sfd_stream.observe.logs import get_logger
    from sfd_stream.tools.preview import preview
    from sfd_stream.wire.columns import HashedColumns

    columns = columns_of(settings)
    if not isinstance(columns, HashedColumns) or columns.mapping is None:
        raise SettingsError("input.format is msgpack: its rows have their columns already; set json, avro or protobuf")
    limits = settings.input.limits
    if file is not None:
        from sfd_stream.wire.formats.from_json import read_json
        from sfd_stream.wire.formats.records import PlainReader

        return preview(islice(_lines(file), sample), PlainReader(read_json), columns, limits)
    reader = reader_of(settings, get_logger())
    try:
        messages = _sampled(settings, sample)
        _await_schemas(reader, messages)
        return preview(messages, reader, columns, limits)
    finally:
        reader.close()


def _lines(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as lines:
            yield from (line for line in lines if line.strip())
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}; give the path of a readable file") from None


def _sampled(settings: "Settings", sample: int) -> list[bytes]:
    """The first messages of the topic that are not null."""
    from sfd_stream.cli.build import hooks_of
    from sfd_stream.kafka.properties import for_consumer
    from sfd_stream.kafka.topic_reader import Tail

    tail = Tail(for_consumer(settings.kafka), settings.input.topic, hooks=hooks_of(settings))
    try:
        records = (record for batch in tail.catch_up(_TIMEOUT_S) for record in batch)
        return list(islice((record.value for record in records if record.value is not None), sample))
    finally:
        tail.close()


def _await_schemas(
    reader: "Reader", messages: list[bytes], clock: Callable[[], float] = time.monotonic, timeout_s: float = _TIMEOUT_S
) -> None:
    wanted, deadline = reader.missing(messages), clock() + timeout_s
    while reader.is_missing(wanted):
        if clock() > deadline:
            raise BrokerUnavailableError(
                f"the schema registry does not answer ({reader.outage or 'no reason known'}); check schema_registry"
            )
        time.sleep(0.02)


# -- for people ------------------------------------------------------------------------------------------


def _print(found: "Preview", warnings: list[str]) -> None:
    from sfd_stream.cli.output import print_table

    for number, row in enumerate(found.first_rows, start=1):
        typer.echo(_bold(f"row {number}: {len(row)} feature{'' if len(row) == 1 else 's'}"))
        printed = [(each["feature"], each["column"], each["value"]) for each in row[:_FEATURES_MAX]]
        print_table(("feature", "column", "value"), printed)
    typer.echo(_bold(f"{found.rows} rows of {found.messages} messages"))
    typer.echo(
        f"features            {found.features:,} in the sample; at least {found.features_estimated:,} in the topic"
    )
    typer.echo(f"sharing a column    {found.sharing:,} of them at sketch.d = {found.d:,}; {_expected(found)}")
    for path, reason in found.ignored.items():
        typer.echo(f"{'ignored':<20}{printable(path)} ({reason})")
    for each in found.bad:
        typer.echo(
            typer.style(f"{'bad':<20}{_messages(each)}, {each['reason']}: ", fg="red") + printable(each["words"])
        )
    for line in warnings:
        typer.echo(typer.style(f"{'check':<20}", fg="yellow") + printable(line))


def _messages(each: dict[str, Any]) -> str:
    place = each["first"] + 1
    return f"message {place}" if each["messages"] == 1 else f"{each['messages']} messages from message {place} on"


def _expected(found: "Preview") -> str:
    return f"{found.sharing_estimated:.1%} expected; recommended d = {found.d_recommended:,}"


def _bold(text: str) -> Any:
    return typer.style(text, bold=True)
