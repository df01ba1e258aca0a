"""What happens in the demo, in order, and the words for it. Every claim is checked; one that fails ends it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

from sfd_stream.config.model import Settings
from sfd_stream.demo import checks as claims
from sfd_stream.demo.anomalies import P_MAX, ScoredRows, find
from sfd_stream.demo.picture import Picture
from sfd_stream.demo.stage import PARTITIONS, Feed, Ground, Workers
from sfd_stream.demo.view import StreamView, Teller
from sfd_stream.kafka.properties import for_consumer
from sfd_stream.reader.reader import SnapshotReader

if TYPE_CHECKING:
    from sfd_stream.reader.merged import MergedSketch

FEED_S = 6.0
"""Rows are fed over this time, so that there is a middle to kill a worker in."""

STAY_ROWS_PER_S = 20.0
_STAY_LINE_S = 10.0
_DIRECTIONS, _WORDS = 6, 9
_VALUES = 40


def rows(teller: Teller, *, as_json: bool = False) -> claims.Truth:
    teller.chapter("Rows")
    truth = claims.truth_of_events() if as_json else claims.truth()
    teller.say(f"{truth.rows:,} docstrings of Python's standard library, one Kafka message each.")
    if as_json:
        teller.say(f"The first one: {truth.messages[0].value.decode():.70}...")
    teller.say(
        f"A row is a docstring's words, {truth.block.nnz / truth.rows:.0f} on average, hashed to"
        f" {claims.COLUMNS:,} columns."
    )
    return truth


@dataclass
class Story:
    ground: Ground
    settings: Settings
    workers: Workers
    teller: Teller
    truth: claims.Truth
    rows_in_store: Callable[[], int]
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.feed: Feed | None = None
        self.shares: dict[int, list[int]] = {}

    def tell(self, picture: Path) -> None:
        self.stream()
        with self.teller.watching(self.look):
            self.start_workers()
            self.accident()
            merged = self.count()
        self.error(merged)
        self.topics(merged)
        self.draw(merged, self.scores(merged), picture)

    def look(self) -> StreamView:
        held = {number: worker.partitions() for number, worker in list(self.workers.all.items())}
        sent = 0 if self.feed is None else self.feed.sent
        return StreamView(sent, self.truth.rows, held)

    def stream(self) -> None:
        self.teller.chapter("Stream")
        ground = self.ground
        self.feed = Feed(self.settings.kafka, ground.topic, PARTITIONS)
        whose = "yours; its topics are deleted at the end" if ground.given else "built in: no Java, no Docker"
        self.teller.say(f"A Kafka broker on {ground.bootstrap} ({whose}).")
        self.teller.say(f"Topic {ground.topic}, {PARTITIONS} partitions.")

    def start_workers(self) -> None:
        self.teller.chapter("Workers")
        self.teller.say(f"Two processes, one consumer group; checkpoints go to {self.ground.checkpoints}.")
        started = [self.workers.start(number) for number in (1, 2)]
        self.workers.wait_for(self._is_shared, "the two sharing the partitions")
        for worker in started:
            share = _partitions(self.shares[worker.number])
            self.teller.say(f"Worker {worker.number} reads {share}; its live page is {worker.page()}")
        self.teller.say("(The pages live as long as the demo; --stay keeps it.)")

    def _is_shared(self) -> bool:
        """Each has something to read, and no partition is left over."""
        self.shares = {worker.number: worker.reads() for worker in self.workers.all.values()}
        return all(self.shares.values()) and sum(map(len, self.shares.values())) == PARTITIONS

    def accident(self) -> None:
        self.teller.chapter("Accident")
        assert self.feed is not None, "there is a stream"
        messages, half, pace = self.truth.messages, self.truth.rows // 2, self.truth.rows / FEED_S
        self.teller.say(f"Rows flow, {pace:,.0f} a second: slowly, so that there is a middle to kill a worker in.")
        began = self.clock()
        self.feed.send(messages[:half], pace)
        self.workers.wait_for(lambda: self.rows_in_store() > 0, "a first checkpoint")
        orphans = self.workers.all[1].reads() or self.shares[1]
        self.workers.kill(1)
        killed = self.clock()
        safe = self.rows_in_store()
        self.teller.say(
            f"kill -9 of worker 1: {half:,} rows were sent, {safe:,} are in checkpoints, the rest it had is gone."
        )
        self.feed.send(messages[half:], pace)
        self.workers.wait_for(lambda: len(self.workers.all[2].reads()) == PARTITIONS, "worker 2 taking over")
        self.teller.say(
            f"Worker 2 took over {_partitions(orphans)} from the checkpoints and read on from there,"
            f" within {self.clock() - killed:.0f} s."
        )
        self.workers.wait_for(lambda: self.rows_in_store() >= self.truth.rows, "all rows being in checkpoints")
        self.teller.say(f"All {self.truth.rows:,} rows are in, {self.clock() - began:.0f} s after the first was sent.")

    def count(self) -> MergedSketch:
        self.teller.chapter("Count")
        ground = self.ground
        self.teller.say(f'Read as anybody would: SnapshotReader("{ground.bootstrap}", "{ground.snapshots}").merged()')
        sent = 0 if self.feed is None else self.feed.sent
        with self._reader() as reader:
            self.workers.wait_for(lambda: _read_of(reader) >= sent, "all rows being in snapshots")
            merged = reader.merged()
        for claim in claims.check_counters(self.truth, merged.sketch):
            self.teller.check(f"{claim.name:<22}  {claim.fed:>7,.0f} fed in, {claim.found:>7,.0f} in the sketch")
        self.teller.say("Not one row was lost, not one counted twice.")
        return merged

    @contextmanager
    def _reader(self) -> Iterator[SnapshotReader]:
        kafka = {key: value for key, value in for_consumer(self.settings.kafka).items() if not key.startswith("group.")}
        kafka = {**kafka, "log_level": 2}
        bootstrap = str(kafka.pop("bootstrap.servers"))
        with SnapshotReader(bootstrap, self.ground.snapshots, group=self.ground.group, **kafka) as reader:
            yield reader

    def error(self, merged: MergedSketch) -> None:
        self.teller.chapter("Error")
        errors = claims.check_error(self.truth, merged.sketch)
        self.teller.say(f"The sketch has {len(merged.sketch.matrix)} rows where the stream had {merged.rows:,}.")
        self.teller.check(
            f"certified: off by at most {errors.certified:.2%} of ||A||F² in any direction; in truth {errors.true:.2%}"
        )
        speed = claims.speed(self.truth, time.process_time)
        self.teller.say(f"One core of this machine decodes and sketches {speed:,.0f} such rows a second.")

    def topics(self, merged: MergedSketch) -> None:
        self.teller.chapter("Topics")
        self.teller.say("The strongest directions around the mean, by the words that come together in them:")
        spread = merged.pca(_DIRECTIONS).explained_variance
        words = [" ".join(found) for found in self._directions(merged)]
        self.teller.bars(list(zip(map(float, spread), words, strict=True)))

    def _directions(self, merged: MergedSketch) -> list[list[str]]:
        return claims.directions(merged.sketch, merged.names, _DIRECTIONS, _WORDS)

    def scores(self, merged: MergedSketch) -> ScoredRows:
        self.teller.chapter("Scores")
        topic = [word.rpartition("=")[2] for word in self._directions(merged)[0]]
        found = find(self.truth, merged, topic, _DIRECTIONS)
        self.teller.say(
            f"{found.usual + found.ordinary} docstrings were kept back. {found.usual} of them say what is usual;"
            f" the other {found.ordinary} are scored with {len(found.rows)} planted rows:"
        )
        for row in found.rows:
            self.teller.check(f"found with p = {row.p_value:.3f}: {row.name}")
            self.teller.say(f"  {row.reason}; {row.why}")
        self.teller.say(
            f"Rows with p up to {P_MAX} are reported; of the {found.ordinary} ordinary ones {found.false_alarms} were."
        )
        return found

    def draw(self, merged: MergedSketch, found: ScoredRows, file: Path) -> None:
        self.teller.chapter("Picture")
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
        self.teller.check(f"all {len(values)} true singular values lie in the certified band")
        self.teller.say(f"See it in a browser: {file.absolute()}")

    def stay(self) -> None:
        """Both workers, and rows without end, until somebody has seen enough."""
        self.teller.chapter("It goes on")
        self.workers.start(1)
        self.workers.wait_for(lambda: self.workers.all[1].page() is not None, "worker 1 coming back")
        assert self.feed is not None, "there is a stream"
        for worker in self.workers.all.values():
            self.teller.say(f"Worker {worker.number}: {worker.page()}")
        self.teller.say(
            f"In another terminal: {program()} watch --broker {self.ground.bootstrap} --topic {self.ground.snapshots}"
        )
        self.teller.say(f"{STAY_ROWS_PER_S:.0f} rows a second until Ctrl-C.")
        rows = cycle(self.truth.messages)
        with self.teller.watching(self.look):
            while True:
                self.feed.send(list(islice(rows, round(STAY_ROWS_PER_S * _STAY_LINE_S))), STAY_ROWS_PER_S)
                self.workers.check_alive("Ctrl-C")
                if not self.teller.live:
                    look = self.look()
                    self.teller.say(f"{look.rows:,} rows in the sketch of {look.sent:,} sent")


def program() -> str:
    """What to type to run us again, from here."""
    if shutil.which("sfd-stream"):
        return "sfd-stream"
    return sys.argv[0] if Path(sys.argv[0]).name == "sfd-stream" else "python -m sfd_stream.cli"


def _read_of(reader: SnapshotReader) -> int:
    """Messages that are behind the snapshots, by their offsets: rows counted twice must not end the wait early."""
    reader.refresh()
    return sum(snapshot.next_offset for snapshot in reader.held()) if len(reader.ids) else 0


def _partitions(numbers: list[int]) -> str:
    """Of a topic, in words."""
    names = ", ".join(map(str, numbers))
    return f"partition {names}" if len(numbers) == 1 else f"partitions {names}"
