"""`sfd-stream demo`: what it is for, in a minute."""

# Annotations are evaluated: typer reads them.
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sfd_stream.service.summary import Loaded


def demo(
    broker: Annotated[
        str | None, typer.Option("--broker", metavar="HOST:PORT", help="A real Kafka instead of the built-in one.")
    ] = None,
) -> None:
    """See what it is for: text through a broker, a worker killed, nothing lost, topics found as directions.

    Needs no broker: one is built in. Ends by itself in about a minute and cleans up behind itself.

    Example: sfd-stream demo
    """
    with tempfile.TemporaryDirectory(prefix="sfd-demo-") as folder, _broker(broker) as bootstrap:
        _story(Path(folder), bootstrap)


@contextmanager
def _broker(given: str | None) -> Iterator[str]:
    from sfd_stream.service.demo import built_in_broker

    if given is not None:
        yield given
        return
    with built_in_broker() as bootstrap:
        _say(f"a Kafka broker, built in, on {bootstrap}")
        yield bootstrap


def _story(folder: Path, bootstrap: str) -> None:
    from sfd_stream.service import demo as play

    truth = play.truth()
    rows = truth.block.rows
    _say(
        f"{rows:,} docstrings of Python's standard library; each is a row, its words hashed to {play.COLUMNS:,} columns"
    )
    settings = play.write_settings(folder, bootstrap, (folder / "checkpoints").as_uri())
    producer = play.make_topic(bootstrap)
    began = time.monotonic()
    with play.workers(settings, folder, 2) as (first, second):
        _say("two workers, one consumer group, checkpoints on disk")
        killed: list[float] = []

        def watch(confirmed: int) -> None:
            if not killed and confirmed > rows // 2 and _rows_in(settings) > rows // 10:
                play.kill(first)
                killed.append(time.monotonic())
                _say(f"kill -9 of worker 1, with {_rows_in(settings):,} rows in checkpoints")

        play.feed(producer, truth, watch)
        if not killed:
            play.wait_for(lambda: _rows_in(settings) > 0, "a first checkpoint")
            play.kill(first)
            _say("kill -9 of worker 1")
        play.wait_for(lambda: _rows_in(settings) >= rows, "the other worker taking over")
        _say(
            f"worker 2 took over from the checkpoints; all rows are in {time.monotonic() - began:.0f} s after the start"
        )
        if second.poll() is not None:
            raise play.DemoError(f"worker 2 ended with exit code {second.returncode}")
    sketch, names = play.merged(_states(settings))
    play.check_counters(truth, sketch)
    counts = f"rows {sketch.rows:,}, non-zeros {sketch.nnz:,}, ||A||F^2 {sketch.squared_frobenius:,.0f}"
    _say(f"{counts}: equal to the input's, exactly")
    true, certified = play.errors(truth, sketch)
    _say(f"a sketch of {len(sketch.matrix)} rows: certified error {certified:.2%} of ||A||F^2, true error {true:.2%}")
    _say("the strongest directions, as words:")
    for number, words in enumerate(play.directions(sketch, names, 6, 8), start=1):
        typer.echo(f"      {number}  {' '.join(words)}")


def _states(settings: Path) -> "list[Loaded]":
    from sfd_stream.cli.wiring import shape_of, store_of
    from sfd_stream.config import load
    from sfd_stream.service.summary import load_all

    found = load(settings, environ={}).settings
    return load_all(store_of(found), found.group, found.input.topic, lambda p: shape_of(found, p))


def _rows_in(settings: Path) -> int:
    return sum(loaded.state.rows for loaded in _states(settings))


def _say(text: str) -> None:
    typer.echo(f"  ·  {text}")
