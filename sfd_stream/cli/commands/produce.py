"""`sfd-stream produce`: fills a topic with rows from a file or from the paper's generator."""

# Annotations are evaluated: typer reads them.
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from sfd_stream.cli.options import ConfigOption, JsonOption, SetOption
from sfd_stream.cli.output import print_json, print_table
from sfd_stream.cli.snapshot_options import BrokerOption, some_settings
from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from sfd_stream.config import Some
    from sfd_stream.tools.produce import RowMessage
    from sfd_stream.wire.features import FeatureMap

_QUEUE_KBYTES = 65_536
_PLAIN_EVERY_S = 5.0


# Repeated from sfd_stream.tools, whose imports would slow down every command.
Form = Literal["list", "packed", "blocks"]
Keys = Literal["round-robin", "hash"]
FileKind = Literal["npz", "mtx", "svmlight", "csv", "text", "jsonl", "table", "parquet"]


def produce(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Rows: .npz (scipy CSR), .mtx (MatrixMarket), .svm (svmlight, indices from 1), .csv"
            " (row,column,value), .txt (a line a row, its words as features for hashed columns); or records for"
            " input.format json: .jsonl (one a line, sent as it is), .csv (with a heading of names) or .parquet.",
        ),
    ] = None,
    *,
    synthetic: Annotated[
        str | None,
        typer.Option(metavar="N,D,Z", help="N rows of the paper's generator: Z of D columns each."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The generator's seed.")] = 0,
    kind: Annotated[
        FileKind | None, typer.Option("--as", help="Format of FILE, if its name does not end in one of these.")
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Topic to write to.", show_default="input.topic")] = None,
    broker: BrokerOption = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="Encoding of the rows.", show_default="packed; list for text"),
    ] = None,
    rows_per_message: Annotated[int, typer.Option(min=1, help="Rows per message, for blocks.")] = 100,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Maximum number of rows per second.")] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Create the topic with this many partitions if it does not exist.")
    ] = None,
    keys: Annotated[
        Keys, typer.Option(help="Assign messages to partitions in turn, or by a hash of their number.")
    ] = "round-robin",
    config: ConfigOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write rows to a topic; the command fails unless the broker acknowledges every message.

    Example: [bold]sfd-stream produce --synthetic 10000,1000,100 --topic rows --broker localhost:9092[/bold]
    """

    def mapping() -> "FeatureMap":
        return _mapping(some_settings(config, overrides, broker))

    messages, total = _messages(file, synthetic, seed, kind, mapping, form=form, rows_per_message=rows_per_message)
    some, topic = _target(config, overrides, broker, topic)
    started = time.monotonic()
    summary = _fill(some, topic, partitions, messages, total, keys=keys, rate=rate)
    seconds = time.monotonic() - started
    summary["total"]["seconds"] = round(seconds, 3)
    if as_json:
        print_json(summary)
        return
    names = ("rows", "nnz", "messages", "bytes", "squared_frobenius")
    lines = [(number, *(counts[name] for name in names)) for number, counts in summary["partitions"].items()]
    lines.append(("total", *(summary["total"][name] for name in names)))
    print_table(("partition", *names), lines)


def _messages(
    file: Path | None,
    synthetic: str | None,
    seed: int,
    kind: FileKind | None,
    mapping: Callable[[], "FeatureMap"],
    *,
    form: Form | None,
    rows_per_message: int,
) -> tuple["Iterator[RowMessage]", int | None]:
    """The messages to send, and their number of rows if it is known."""
    from sfd_stream.sketch.synthetic import paper_synthetic_blocks
    from sfd_stream.tools import matrix_files
    from sfd_stream.tools import produce as messages

    if (file is None) == (synthetic is None):
        raise SettingsError("give either a FILE or --synthetic N,D,Z")
    if file is None:
        n, d, z = _shape(cast("str", synthetic))
        blocks, total = paper_synthetic_blocks(n, d, z, seed), n
    else:
        what = kind or matrix_files.kind_of(file)
        if what == "text" and form not in (None, "list"):
            raise SettingsError(f"words are text, which {form} can't hold; leave out --format")
        if what in matrix_files.RECORDS and form is not None:
            raise SettingsError("records are sent as they are; leave out --format")
        if not file.exists():
            raise SettingsError(f"there is no file {file}; give the path of one that can be read")
        if what == "text":
            return messages.bag_messages(matrix_files.read_bags(file)), None
        if what in matrix_files.RECORDS:
            return messages.json_messages(matrix_files.read_records(file, what), mapping()), None
        blocks, total = matrix_files.read_matrix(file, what), None
    return messages.matrix_messages(blocks, form=form or "packed", rows_per_message=rows_per_message), total


def _shape(text: str) -> tuple[int, int, int]:
    try:
        n, d, z = (int(part) for part in text.split(","))
    except ValueError:
        raise SettingsError("--synthetic takes three whole numbers, like 10000,1000,100") from None
    if n < 0 or d < 1 or not 0 <= z <= d:
        raise SettingsError("--synthetic N,D,Z needs N >= 0, D >= 1 and 0 <= Z <= D")
    return n, d, z


def _mapping(some: "Some") -> "FeatureMap":
    """The mapping of a worker with the same settings: from input.features and input.path, if given."""
    from dataclasses import replace

    from sfd_stream.config.types import parse_features

    try:
        return replace(parse_features(some.given.get("input.features")), path=some.given.get("input.path"))
    except ValueError as error:
        raise SettingsError(f"input.features {error}") from None


def _target(
    config: Path | None, overrides: list[str] | None, broker: str | None, topic: str | None
) -> tuple["Some", str]:
    from sfd_stream.config.types import check_topic

    some = some_settings(config, overrides, broker)
    name = topic or some.given.get("input.topic")
    if name is None:
        raise SettingsError("which topic? Give --topic NAME, or --config FILE with input.topic")
    try:
        return some, check_topic(str(name))
    except ValueError as error:
        raise SettingsError(f"the topic {error}") from None


def _fill(
    some: "Some",
    topic: str,
    partitions: int | None,
    messages: "Iterator[RowMessage]",
    total: int | None,
    *,
    keys: Keys,
    rate: float | None,
) -> dict[str, Any]:
    import logging

    from confluent_kafka import Producer

    from sfd_stream.cli.logins import hooks_for
    from sfd_stream.config.secrets import secret_values
    from sfd_stream.kafka.admin import CRITICAL, Admin
    from sfd_stream.kafka.outage import Outage
    from sfd_stream.kafka.properties import for_producer
    from sfd_stream.kafka.topics import ensure_topic
    from sfd_stream.observe import logs
    from sfd_stream.tools.produce import Filler

    properties = dict(some.kafka)
    log = logs.configure(secrets=secret_values("kafka", properties))
    login = hooks_for(some.given.get("kafka_oauth_callback"), properties)
    login = replace(login, logger=logging.getLogger("librdkafka"))
    hooks, admin = login.as_properties(properties), Admin(properties, login)
    found = ensure_topic(admin, topic, partitions, sleep=time.sleep)
    tuned = {
        "linger.ms": 20,
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
        # With more requests in flight, a new topic was observed to acknowledge a message that is not in its log.
        "max.in.flight.requests.per.connection": 1,
        **for_producer(properties),
    }
    outage = Outage(properties, login.logger)
    tuned = {"log_level": CRITICAL, "error_cb": outage.note, **tuned}
    producer = Producer({**tuned, **hooks, "enable.idempotence": True})
    filler = Filler(producer, topic, found, keys=keys, rate=rate, clock=time.monotonic, outage=outage)
    with _progress(topic, total) as progress:
        filler.fill(messages, progress)
    log.flush()
    return filler.summary()


@contextmanager
def _progress(topic: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, a plain line every few seconds otherwise; both on standard error."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(f"rows to {topic}", total=total)
            yield lambda rows: bar.update(task, completed=rows)
    else:
        printed_s = time.monotonic()

        def print_rows(rows: int) -> None:
            nonlocal printed_s
            if time.monotonic() - printed_s >= _PLAIN_EVERY_S:
                printed_s = time.monotonic()
                sys.stderr.write(f"{rows:,} rows to {topic}\n")

        yield print_rows
