"""One campaign: start the parts, follow the plan of faults under load, let everything drain, check, report."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from sfd_stream.errors import NoSnapshotError
from sfd_stream.reader.reader import SnapshotReader
from tests.system.runs import PROTOCOLS, Run
from tests.torture.checks import Finding, behind, check_everything
from tests.torture.faults import FAULTS, SESSION_S, Parts, plan
from tests.torture.hanging import abort, hanging_transactions
from tests.torture.load import Load
from tests.torture.parts import Brokers, Clock, DiskStore, NetworkStore, copy_logs
from tests.torture.programs import Keeper, Program, service
from tests.torture.truth import end_offsets, unended

WORKERS = ("worker-0", "worker-1", "worker-2")
SCORERS = ("scorer-0", "scorer-1")
PROGRAMS = (*WORKERS, "extra", "merge", "reader", *SCORERS)
PARTITIONS = 4
DRAINS_WITHIN_S = 180.0
AT_ONCE_MAX = 6
"""Faults that are in progress at the same time."""

SHORT = {"transaction.timeout.ms": 5_000}
"""A transaction that a killed program left open blocks readers of committed messages until it times out."""


@dataclass(frozen=True)
class Shape:
    """What a campaign runs on. The seed chooses what is not given."""

    seed: int
    delivery: str
    protocol: str
    store: str
    brokers: int
    references: bool
    """Snapshots are references to the store instead of messages."""
    score_delivery: str
    """Of the scorers."""
    fencing: bool = False
    """Pauses of a second fence the only broker."""

    @classmethod
    def of(cls, seed: int, *, brokers: int = 1, fencing: bool = False, **given: str | None) -> Shape:
        rng = random.Random(seed)
        chosen = {
            "delivery": rng.choice(("idempotent", "transactional")),
            "protocol": rng.choice(sorted(PROTOCOLS)),
            "store": rng.choice(("disk", "s3")),
        }
        references = rng.random() < 0.3
        chosen["score_delivery"] = rng.choice(("at-least-once", "transactional"))
        chosen |= {name: value for name, value in given.items() if value is not None}
        return cls(seed, brokers=brokers, references=references, fencing=fencing, **chosen)

    def __str__(self) -> str:
        brokers = "1 broker" if self.brokers == 1 else f"{self.brokers} brokers"
        brokers += ", pauses fence" if self.fencing else ""
        by = "by reference" if self.references else "in messages"
        return (
            f"{self.delivery} delivery, {self.score_delivery} scores, {self.protocol} groups, store on {self.store},"
            f" {brokers}, snapshots {by}"
        )

    @property
    def has_transactions(self) -> bool:
        return "transactional" in (self.delivery, self.score_delivery)


@dataclass
class Campaign:
    shape: Shape
    minutes: float
    folder: Path
    every_s: float = 3.0
    """Average time between two faults."""
    on_progress: Callable[[Campaign], None] = lambda _: None
    progress_every_s: float = 600.0
    done: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """Faults of the campaign itself, such as a broker that did not start again."""
    began_at_s: float = field(default_factory=time.monotonic)
    started: bool = False

    def run(self) -> bool:
        """Whether every check passed. The folder then holds nothing that is worth keeping."""
        self.folder.mkdir(parents=True)
        with contextlib.ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE_MAX))  # entered first: processes die with its threads
            pool.submit(time.sleep, 0).result()
            self._start(stack)
            try:
                self._disturb(pool)
                self._drain()
                self._check()
            finally:
                copy_logs(self.parts.brokers, self.parts.store, self.folder)
                self._write_usage()
                self.keeper.stop()
        return not self.trouble and not any(finding.violations for finding in self.findings)

    def _write_usage(self) -> None:
        lines = [f"{u.at_s:.1f},{u.program},{u.pid},{u.rss_bytes},{u.threads},{u.files}\n" for u in self.keeper.usage]
        (self.folder / "usage.csv").write_text("".join(["seconds,program,pid,rss_bytes,threads,files\n", *lines]))

    # Start

    def _start(self, stack: contextlib.ExitStack) -> None:
        shape = self.shape
        self._log(f"seed {shape.seed}: {shape}; logs in {self.folder}")
        brokers = Brokers.start(shape.brokers, PROGRAMS, stack, fencing=shape.fencing)
        store = (
            DiskStore.start(self.folder, stack)
            if shape.store == "disk"
            else NetworkStore.start(shape.store, self.folder, PROGRAMS, stack)
        )
        self._log("brokers and store have started")
        self.topic, self.letters, self.snapshots, self.merged = "rows", "bad", "snapshots", "merged"
        self.scores, self.score_letters = "scores", "score-bad"
        brokers.create_topic(self.topic, PARTITIONS)
        for topic in (self.letters, self.score_letters):
            brokers.create_topic(topic, 1)
        for topic in (
            self.snapshots,
            self.merged,
        ):  # compacted, but not within the campaign: the checks read everything
            brokers.create_topic(topic, 2, cleanup_policy="compact", min_compaction_lag_ms=str(30 * 86_400_000))
        self.run_settings = self._settings(brokers, store)
        clock = Clock.of(self.folder)
        workers = [
            service(
                name,
                "run",
                self._config(brokers, store, name),
                self.folder,
                clock.environment if name == WORKERS[-1] else {},
            )
            for name in (*WORKERS, "extra")
        ]
        scorers = [service(name, "score", self._scorer(brokers, store, name), self.folder) for name in SCORERS]
        merging = service("merge", "merge", self._config(brokers, store, "merge"), self.folder)
        load = Load(brokers.direct, self.topic, PARTITIONS, shape.seed)
        self.reader = self._reader(brokers, store)
        self.parts = Parts(
            brokers, store, workers[:-1], workers[-1], scorers, merging, load, clock, self.topic, random.Random(0)
        )
        self.programs: list[Program] = [*workers[:-1], *scorers, merging, self.reader]
        if shape.protocol == "kip-848":
            for group in (self.run_settings.group, self.score_group):
                brokers.first.set_group(group, {"consumer.session.timeout.ms": f"{1000 * SESSION_S:.0f}"})
        load.start()
        stack.callback(load.stop)
        for program in self.programs:
            stack.callback(program.kill)
            program.start()
        stack.callback(workers[-1].kill)
        self.keeper = Keeper([*self.programs])
        self.keeper.start()
        stack.callback(self.keeper.end)
        self._wait(self._all_read, 120, "the live reader reads both topics")
        self._wait(lambda: any(end_offsets(brokers.direct, self.scores).values()), 120, "rows are scored")
        self.started = True

    def _settings(self, brokers: Brokers, store: NetworkStore | DiskStore) -> Run:
        snapshot: dict[str, Any] = {"topic": self.snapshots, "every_s": 1.0, "delivery": self.shape.delivery}
        if self.shape.references:
            snapshot["inline_max_bytes"] = 1_000
        changes = {
            "checkpoint": {"give_up_s": 1800},
            "snapshot": {**snapshot, "republish_s": 20.0},
            "dead_letters": {"topic": self.letters},
            "merge": {"topic": self.merged, "every_s": 1.0},
            "log": {"level": "info", "format": "json"},
            "kafka": SHORT if self.shape.delivery == "transactional" else {},
        }
        return Run(
            brokers.first, self.topic, self.folder, store.url, store.options(), "campaign", self.shape.protocol, changes
        )

    @property
    def score_group(self) -> str:
        return self.run_settings.settings().score_group

    def _scorer(self, brokers: Brokers, store: NetworkStore | DiskStore, name: str) -> Path:
        """Distances are from zero: the checks then find a score that is of another row, by the row's energy."""
        return self._config(
            brokers,
            store,
            name,
            kafka={"compression.type": "lz4", **(SHORT if self.shape.score_delivery == "transactional" else {})},
            score={"topic": self.scores, "delivery": self.shape.score_delivery, "centred": False},
            dead_letters={"topic": self.score_letters},
        )

    def _config(
        self, brokers: Brokers, store: NetworkStore | DiskStore, program: str, **changes: Mapping[str, Any]
    ) -> Path:
        options = store.options(program)
        kafka = {**changes.pop("kafka", {}), "bootstrap.servers": brokers.through_links(program)}
        settings = self.run_settings.settings(kafka=kafka, checkpoint={"options": options}, **changes)
        given = settings.model_dump(exclude_unset=True)
        given["checkpoint"]["options"] = options  # a dump hides secrets
        path = self.folder / f"{program}.json"
        path.write_text(json.dumps(given))
        return path

    def _reader(self, brokers: Brokers, store: NetworkStore | DiskStore) -> Program:
        self.seen = {topic: self.folder / f"seen.{topic}.jsonl" for topic in (self.snapshots, self.merged)}
        settings = {
            "bootstrap": brokers.through_links("reader"),
            "topics": list(self.seen),
            "url": store.url,
            "options": store.options("reader"),
        }
        path = self.folder / "reader.json"
        path.write_text(json.dumps(settings))
        command = ["-X", "faulthandler", "-m", "tests.torture.watch", str(path), str(self.folder / "seen")]
        return Program("reader", command, self.folder)

    def _all_read(self) -> bool:
        return all(path.exists() and path.stat().st_size for path in self.seen.values())

    # Faults

    def _disturb(self, pool: ThreadPoolExecutor) -> None:
        steps = plan(self.parts, self.shape.seed, 60 * self.minutes, self.every_s)
        self._log(f"{len(steps)} faults in {self.minutes:g} minutes")
        began, running, told_at = time.monotonic(), [], time.monotonic()
        with (self.folder / "faults.log").open("w", buffering=1) as log:
            for step in steps:
                time.sleep(max(0.0, began + step.at_s - time.monotonic()))
                while len(running := [one for one in running if not one.done()]) >= AT_ONCE_MAX:
                    time.sleep(0.1)
                if time.monotonic() - began > 60 * self.minutes:
                    break
                log.write(f"{time.strftime('%H:%M:%S')} {step}\n")
                running.append(self._submit(pool, step))
                if time.monotonic() - told_at > self.progress_every_s:
                    told_at = time.monotonic()
                    self.on_progress(self)
            for one in running:
                one.result()

    def _submit(self, pool: ThreadPoolExecutor, step: Any) -> Future[None]:
        def act() -> None:
            try:
                FAULTS[step.kind].act(self.parts, step)
            except Exception as error:  # noqa: BLE001 - the campaign goes on, and fails at its end
                self.trouble.append(f"{step}: {error!r:.500}")
            else:
                self.done[step.kind] += 1

        return pool.submit(act)

    # Drain

    def _drain(self) -> None:
        """No more load, no more faults: everything becomes durable, committed, published, merged and scored."""
        self._log(f"{self.done.total()} faults done, draining")
        self.parts.load.stop()
        self.ends = end_offsets(self.parts.brokers.direct, self.topic)
        drained = Finding("drains: durable, committed, published, merged, scored")
        self.findings.append(drained)
        left = self._wait_for_drain()
        if left and self.shape.has_transactions and self._end_hanging_transactions():
            left = self._wait_for_drain()
        drained.violations += [f"after {DRAINS_WITHIN_S:.0f} s: {one}" for one in left]
        self._log("stopping the programs")
        self.keeper.stop()
        for program in self.programs:
            program.restart_if_ended()
        stopping = [threading.Thread(target=program.terminate) for program in self.programs]
        for one in stopping:
            one.start()
        for one in stopping:
            one.join()

    def _wait_for_drain(self) -> list[str]:
        """What is left after `DRAINS_WITHIN_S`: nothing in a campaign that passes."""
        deadline, left = time.monotonic() + DRAINS_WITHIN_S, ["?"]
        told_at_s = time.monotonic()
        while left and time.monotonic() < deadline:
            time.sleep(0.5)
            left = self._left()
            if time.monotonic() > told_at_s + 30:
                told_at_s = time.monotonic()
                self._log(f"waiting for: {'; '.join(left[:3])}")
        return left

    def _end_hanging_transactions(self) -> bool:
        """Whether Kafka's own tool found any: a fault of the broker, which the campaign ends as a person would."""
        direct = self.parts.brokers.direct
        try:
            found = hanging_transactions(direct, range(1, len(self.parts.brokers.nodes) + 1))
            for one in found:
                abort(direct, one)
        except subprocess.SubprocessError as error:
            self.trouble.append(f"kafka-transactions: {error!r:.500}")
            return False
        self._log(f"{len(found)} hanging transactions")
        if found:
            what = f"{len(found)} found by kafka-transactions and aborted: {', '.join(map(str, found))}"
            self.findings.append(Finding("broker fault: hanging transaction", what))
        return bool(found)

    def _left(self) -> list[str]:
        """What has not arrived yet. The first stage that is incomplete is enough."""
        direct = self.parts.brokers.direct
        stages: list[Callable[[], list[str]]] = [
            lambda: behind("durable", {p: self.run_settings.durable_offset(p) for p in self.ends}, self.ends),
            lambda: behind("committed", self._committed(self.run_settings.group), self.ends),
            *(lambda topic=topic: behind(topic, self.published(topic), self.ends) for topic in self.seen),
            lambda: behind("scored", self._committed(self.score_group), self.ends),
            lambda: [f"{self.scores}: a transaction is open in partition {p}" for p in unended(direct, self.scores)],
        ]
        return next((late for stage in stages if (late := stage())), [])

    def _committed(self, group: str) -> dict[int, int]:
        """Empty while a transaction on these offsets is open: then the broker does not answer."""
        consumer = Consumer({"bootstrap.servers": self.parts.brokers.direct, "group.id": group, "log_level": 0})
        try:
            found = consumer.committed([TopicPartition(self.topic, p) for p in self.ends], 30)
        except KafkaException as error:
            self._log(f"offsets of group {group}: {error}")
            return {}
        finally:
            consumer.close()
        return {one.partition: one.offset for one in found}

    def published(self, topic: str) -> dict[int, int]:
        """The offset of the newest snapshot by partition, as a cold reader gets it."""
        return {part.id.partition: part.next_offset for one in self.snapshots_on(topic) for part in one.parts}

    def snapshots_on(self, topic: str) -> list[Any]:
        store = self.parts.store
        given = {"store_url": store.url, "store_options": store.options()}
        with SnapshotReader(self.parts.brokers.direct, topic, log_level=0, **given) as reader:
            try:
                return reader.latest()
            except NoSnapshotError:
                return []

    def _check(self) -> None:
        self._log("checking")
        self.findings += check_everything(self)

    # Report

    @property
    def ends_unexpected(self) -> list[str]:
        return [str(end) for program in [*self.programs, self.parts.extra] for end in program.unexpected]

    def table(self) -> str:
        """As Markdown, for docs/reliability.md."""
        shape, minutes = self.shape, (time.monotonic() - self.began_at_s) / 60
        lines = [
            f"Seed {shape.seed}: {shape}; {minutes:.0f} minutes, {self.done.total()} faults"
            + (f", {len(self.parts.load.acknowledged):,} messages." if self.started else "."),
            "",
            "| fault | times |",
            "|---|---|",
            *(f"| {kind} | {self.done[kind]} |" for kind in FAULTS if self.done[kind]),
            "",
            "| check | result |",
            "|---|---|",
            *(f"| {finding.check} | {finding} |" for finding in self.findings),
        ]
        if self.started and not self.findings:
            lines.append(f"| still running; programs that ended unexpectedly | {len(self.ends_unexpected)} |")
        lines += [f"\nThe campaign itself failed: {one}" for one in self.trouble]
        lines += [f"\n{finding.check}: {one}" for finding in self.findings for one in finding.violations[:20]]
        return "\n".join(lines) + "\n"

    def _wait(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {within_s:.0f} s: {what}; see {self.folder}")
            time.sleep(0.1)

    def _log(self, text: str) -> None:
        print(f"[torture {time.monotonic() - self.began_at_s:6.1f} s] {text}", file=sys.stderr, flush=True)


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
