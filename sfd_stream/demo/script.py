"""The steps of the demo in order, with their text. Every claim is checked; a claim that fails ends the demo."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from sfd_stream.config.model import Settings
from sfd_stream.demo import checks as claims
from sfd_stream.demo.anomalies import P_MAX, ScoredRows, find
from sfd_stream.demo.picture import Picture
from sfd_stream.demo.stage import PARTITIONS, DemoSetup, Feed, Workers
from sfd_stream.demo.view import DemoOutput, StreamView
from sfd_stream.kafka.properties import for_consumer
from sfd_stream.reader.reader import SnapshotReader

if TYPE_CHECKING:
    from sfd_stream.reader.merged import MergedSketch

FEED_S = 6.0
"""Rows are sent over this time, so that a worker can be killed in the middle."""

STAY_ROWS_PER_S = 20.0
_STAY_LINE_S = 10.0
_DIRECTIONS, _WORDS = 6, 9
_VALUES = 40


def rows(output: DemoOutput, *, as_json: bool = False) -> claims.Truth:
    output.chapter("Rows")
    truth = claims.truth_of_events() if as_json else claims.truth()
    output.sentence(f"{truth.rows:,} docstrings of Python's standard library, one Kafka message each.")
    if as_json:
        output.sentence(f"The first one: {truth.messages[0].value.decode():.70}...")
    output.sentence(
        f"A row is a docstring's words, {truth.block.nnz / truth.rows:.0f} on average, hashed to"
        f" {claims.COLUMNS:,} columns."
    )
    return truth


@dataclass
class Story:
    setup: DemoSetup
    settings: Settings
    workers: Workers
    output: DemoOutput
    truth: claims.Truth
    feed: Feed
    rows_in_store: Callable[[], int]

    def __post_init__(self) -> None:
        self.shares: dict[int, list[int]] = {}

    def run(self, picture: Path) -> None:
        self.stream()
        with self.output.watching(self.view):
            self.start_workers()
            self.accident()
            merged = self.count()
        self.error(merged)
        self.topics(merged)
        self.draw(merged, self.scores(merged), picture)

    def view(self) -> StreamView:
        held = {number: worker.partitions() for number, worker in list(self.workers.all.items())}
        return StreamView(self.feed.sent, self.truth.rows, held)

    def stream(self) -> None:
        self.output.chapter("Stream")
        setup = self.setup
        owner = "yours; its topics are deleted at the end" if setup.given else "built in: no Java, no Docker"
        self.output.sentence(f"A Kafka broker on {setup.bootstrap} ({owner}).")
        self.output.sentence(f"Topic {setup.topic}, {PARTITIONS} partitions.")

    def start_workers(self) -> None:
        self.output.chapter("Workers")
        self.output.sentence(f"Two processes, one consumer group; checkpoints go to {self.setup.checkpoints}.")
        started = [self.workers.start(number) for number in (1, 2)]
        self.workers.wait_for(self._is_shared, "the two sharing the partitions")
        for worker in started:
            share = _partitions(self.shares[worker.number])
            self.output.sentence(f"Worker {worker.number} reads {share}; its live page is {worker.page()}")
        self.output.sentence("(The pages live as long as the demo; --stay keeps it.)")

    def _is_shared(self) -> bool:
        """Whether each worker reads a partition, and every partition is read."""
        self.shares = {worker.number: worker.reads() for worker in self.workers.all.values()}
        return all(self.shares.values()) and sum(map(len, self.shares.values())) == PARTITIONS

    def accident(self) -> None:
        self.output.chapter("Accident")
        messages, half, pace = self.truth.messages, self.truth.rows // 2, self.truth.rows / FEED_S
        self.output.sentence(f"Rows flow, {pace:,.0f} a second: slowly, so that a worker can be killed midway.")
        began = time.monotonic()
        self.feed.send(messages[:half], pace)
        self.workers.wait_for(lambda: self.rows_in_store() > 0, "a first checkpoint")
        orphans = self.workers.all[1].reads() or self.shares[1]
        self.workers.kill(1)
        killed = time.monotonic()
        safe = self.rows_in_store()
        self.output.sentence(
            f"kill -9 of worker 1: {half:,} rows were sent, {safe:,} are in checkpoints,"
            " the other rows it had were only in its memory."
        )
        self.feed.send(messages[half:], pace)
        self.workers.wait_for(lambda: len(self.workers.all[2].reads()) == PARTITIONS, "worker 2 taking over")
        self.output.sentence(
            f"Worker 2 took over {_partitions(orphans)} from the checkpoints and read on from there,"
            f" within {time.monotonic() - killed:.0f} s."
        )
        self.workers.wait_for(lambda: self.rows_in_store() >= self.truth.rows, "all rows being in checkpoints")
        self.output.sentence(
            f"All {self.truth.rows:,} rows are in, {time.monotonic() - began:.0f} s after the first was sent."
        )

    def count(self) -> MergedSketch:
        self.output.chapter("Count")
        setup = self.setup
        self.output.sentence(
            f'Read as any client can: SnapshotReader("{setup.bootstrap}", "{setup.snapshots}").merged()'
        )
        with self._reader() as reader:
            self.workers.wait_for(lambda: _read_of(reader) >= self.feed.sent, "all rows being in snapshots")
            merged = reader.merged()
        for claim in claims.check_counters(self.truth, merged.sketch):
            self.output.check(f"{claim.name:<22}  {claim.fed:>7,.0f} fed in, {claim.found:>7,.0f} in the sketch")
        self.output.sentence("Not one row was lost, not one counted twice.")
        return merged

    def _reader(self) -> SnapshotReader:
        kafka = {key: value for key, value in for_consumer(self.settings.kafka).items() if not key.startswith("group.")}
        kafka = {**kafka, "log_level": 2}
        bootstrap = str(kafka.pop("bootstrap.servers"))
        return SnapshotReader(bootstrap, self.setup.snapshots, group=self.setup.group, **kafka)

    def error(self, merged: MergedSketch) -> None:
        self.output.chapter("Error")
        errors = claims.check_error(self.truth, merged.sketch)
        self.output.sentence(f"The sketch has {len(merged.sketch.matrix)} rows where the stream had {merged.rows:,}.")
        self.output.check(
            f"certified: off by at most {errors.certified:.2%} of ||A||F² in any direction; in truth {errors.true:.2%}"
        )
        speed = claims.speed(self.truth, time.process_time)
        self.output.sentence(f"One core of this machine decodes and sketches {speed:,.0f} such rows a second.")

    def topics(self, merged: MergedSketch) -> None:
        self.output.chapter("Topics")
        self.output.sentence("The strongest directions around the mean, by the words that come together in them:")
        spread = merged.pca(_DIRECTIONS).explained_variance
        words = [" ".join(found) for found in self._directions(merged)]
        self.output.bars(list(zip(map(float, spread), words, strict=True)))

    def _directions(self, merged: MergedSketch) -> list[list[str]]:
        return claims.directions(merged.sketch, merged.names, _DIRECTIONS, _WORDS)

    def scores(self, merged: MergedSketch) -> ScoredRows:
        self.output.chapter("Scores")
        topic = [word.rpartition("=")[2] for word in self._directions(merged)[0]]
        found = find(self.truth, merged, topic, _DIRECTIONS)
        self.output.sentence(
            f"{found.usual + found.ordinary} docstrings were not sent. {found.usual} show which scores are usual;"
            f" the other {found.ordinary} are scored with {len(found.rows)} planted rows:"
        )
        for row in found.rows:
            self.output.check(f"found with p = {row.p_value:.3f}: {row.name}")
            self.output.sentence(f"  {row.reason}; {row.why}")
        self.output.sentence(
            f"Rows with p up to {P_MAX} are reported; of the {found.ordinary} ordinary ones {found.false_alarms} were."
        )
        return found

    def draw(self, merged: MergedSketch, found: ScoredRows, file: Path) -> None:
        self.output.chapter("Picture")
        values = merged.singular_values()[:_VALUES]
        true = claims.check_spectrum(self.truth, merged.sketch, len(values))
        picture = Picture(
            title=f"The spectrum of {merged.rows:,} docstrings, from a sketch of {len(merged.sketch.matrix)} rows",
            subtitle=f"{claims.COLUMNS:,} columns, {merged.nnz:,} non-zeros, two workers, one of them killed midway",
            singular_values=values,
            true=true,
            delta=merged.delta,
            directions=self._directions(merged),
            scored=found,
        )
        file.write_text(picture.svg(), encoding="utf-8")
        self.output.check(f"all {len(values)} true singular values lie in the certified band")
        self.output.sentence(f"See it in a browser: {file.absolute()}")

    def stay(self) -> None:
        """Keeps both workers running and sends rows until the user stops the demo."""
        self.output.chapter("It goes on")
        self.workers.start(1)
        self.workers.wait_for(lambda: self.workers.all[1].page() is not None, "worker 1 coming back")
        for worker in self.workers.all.values():
            self.output.sentence(f"Worker {worker.number}: {worker.page()}")
        self.output.sentence(
            f"In another terminal: {program()} watch --broker {self.setup.bootstrap} --topic {self.setup.snapshots}"
        )
        self.output.sentence(f"{STAY_ROWS_PER_S:.0f} rows a second until Ctrl-C.")
        rows = cycle(self.truth.messages)
        with self.output.watching(self.view):
            while True:
                self.feed.send(list(islice(rows, round(STAY_ROWS_PER_S * _STAY_LINE_S))), STAY_ROWS_PER_S)
                self.workers.check_alive("Ctrl-C")
                if not self.output.live:
                    view = self.view()
                    self.output.sentence(f"{view.rows:,} rows in the sketch of {view.sent:,} sent")


def program() -> str:
    """The command that runs this program from the current folder."""
    if shutil.which("sfd-stream"):
        return "sfd-stream"
    return sys.argv[0] if Path(sys.argv[0]).name == "sfd-stream" else "python -m sfd_stream.cli"


def _read_of(reader: SnapshotReader) -> int:
    """The number of messages that the snapshots include, by offset: rows counted twice must not end the wait early."""
    reader.refresh()
    return sum(snapshot.next_offset for snapshot in reader.held()) if len(reader.ids) else 0


def _partitions(numbers: list[int]) -> str:
    """The partitions in words."""
    names = ", ".join(map(str, numbers))
    return f"partition {names}" if len(numbers) == 1 else f"partitions {names}"
