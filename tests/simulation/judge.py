"""The laws. They are checked whenever something is written, when a worker exits, and at the end.

What is checked is what others can see: objects in the store, records and offsets at the broker, exit codes. So the laws
hold for any structure of the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.simulation.broker import LogRecord
from tests.simulation.content import Content, Counts
from tests.simulation.loader import Universe
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import ViolationError
from tests.simulation.world import World

INPUT, DEAD, OUTPUT, MERGED, GROUP = "rows", "dead", "sketches", "merged", "group"
UNANSWERED_S = 30.0
"""A worker that gets no answers waits up to 10 s for the topic's id, and then for its store."""

EXPLAINED_S = 15.0
"""An error that a worker met is reported within this time: its retries, its last checkpoints, its close."""


class Judge:
    """`reference` is the package without mutations: it reads what was written."""

    def __init__(self, world: World, scenario: Scenario, content: Content, reference: Universe, shape: Any) -> None:
        self.chains: list[list[Any]] = [[] for _ in range(scenario.partitions)]
        """By partition: every manifest that became the newest, in order."""
        self.letters: set[tuple[int, int]] = set()
        """Bad messages in the dead-letter topic: partition and offset."""
        self.published: list[list[tuple[int, int]]] = [[] for _ in range(scenario.partitions)]
        """By partition: the ids of the snapshots on the output topic, in order."""
        self.rows_of: dict[tuple[int, tuple[int, int]], int] = {}
        """By partition and id of a published snapshot: its rows."""
        self.on_merge: Callable[[LogRecord, str], None] = lambda *_: None
        self.refused: set[int] = set()
        """Partitions whose states do not fit the log any more. What they may hold is what it was before."""
        self.recreated = False
        """Whether the input topic was deleted and created again."""
        self.truncated: dict[int, tuple[int, set[str]]] = {}
        """By partition whose log lost records that no state held: from which offset on, and who was crashed by then."""
        self._foreign: set[tuple[int, tuple[int, int]]] = set()
        """By partition and id: states that may hold rows of the recreated topic."""
        self._written: list[set[bytes]] = [set() for _ in range(scenario.partitions)]
        self._world = world
        self._scenario = scenario
        self.content = content
        self._manifests = reference["state.manifest"]
        self._states = reference["state.partition"]
        self._snapshots = reference["wire.snapshots"]
        self._rows = reference["wire.rows.decode"]
        self._shape = shape
        world.objects.on_create = self._created
        world.objects.on_delete = self._deleted
        world.broker.on_append = self._appended
        world.on_commit = self._committed
        self._explained: dict[int, float] = {}
        """By exit code: until when it is what a worker should end with."""
        self._restored_at: dict[int, int] = {}
        """By partition: how many snapshots were published when a backup was restored last."""

    def add_partition(self) -> None:
        self.chains.append([])
        self.published.append([])
        self._written.append(set())

    def fail(self, law: str, details: str) -> None:
        self._world.history.note("judge", f"{law}: {details}")
        self._world.scheduler.fail(ViolationError(law, details))

    def explain(self, code: int, seconds: float) -> None:
        """A fault of this duration makes workers end with this exit code, also those that notice it later."""
        until = self._world.scheduler.now + seconds + EXPLAINED_S
        self._explained[code] = max(self._explained.get(code, 0.0), until)

    def restored(self, lengths: list[int]) -> None:
        """The store is what it was when the chains had these lengths. What was due then is published again."""
        for partition, length in enumerate(lengths):
            del self.chains[partition][length:]
            self._restored_at[partition] = len(self.published[partition])

    def refuse(self, partitions: Iterable[int]) -> None:
        """From now on the states of these partitions do not fit the log: none may hold anything of it."""
        self.refused |= set(partitions)
        self._explained[3] = float("inf")

    def newest(self, partition: int) -> Any:
        return self.chains[partition][-1] if self.chains[partition] else None

    @property
    def is_idempotent(self) -> bool:
        return self._scenario.delivery == "idempotent"

    def is_in_chain(self, partition: int, data: bytes) -> bool:
        """Whether a manifest with exactly these bytes was the newest one, now or earlier."""
        return data in self._written[partition]

    # The store

    def _created(self, key: str, data: bytes, who: str) -> None:
        if "/manifests/" not in key:
            return
        manifest = self._manifests.decode_manifest(data)
        partition = manifest.binding.partition
        where, before = f"manifest {manifest.number} of {INPUT}/{partition} by {who}", self.newest(partition)
        if before is not None and manifest.number <= before.number:
            self._world.history.note(who, f"revives slot {manifest.number} of partition {partition}")
            return  # a slot that was used and pruned: its writer must find out by its LIST
        if before is None:
            if manifest.number != 1 or manifest.kind is not self._manifests.Kind.GENESIS:
                self.fail("chain", f"{where} is the first, but no genesis")
        elif wrong := self._manifests.breaches(before, manifest):
            self.fail("chain", f"{where}: {'; '.join(wrong)}")
        self.chains[partition].append(manifest)
        self._written[partition].add(data)
        if before is None:
            self._check_start(manifest, partition, where)
        self._note_loss(manifest, partition, who)
        if self.recreated and self._world.network.was_silent(who, UNANSWERED_S):
            self._foreign.add((partition, _id(manifest.state_id)))  # an id that is not known in time is not compared
        else:
            self._check_counts(manifest, partition, where)
            self._check_letters(manifest, partition, where)
        for blob in manifest.references:
            if blob.key not in self._world.objects.data:
                self.fail("blobs", f"{where} refers to {blob.key}, which does not exist")

    def _check_start(self, manifest: Any, partition: int, where: str) -> None:
        """Reading begins where the log does, unless new records alone are asked for."""
        log = self._world.broker.topics[INPUT].logs[partition]
        if self._scenario.start == "earliest" and manifest.next_offset != log.start:
            self.fail("start", f"{where} begins at offset {manifest.next_offset}, the log at {log.start}")

    def _note_loss(self, manifest: Any, partition: int, who: str) -> None:
        """A create that a crashed worker had sent may land after the log has lost what it holds: it is refused then."""
        end, gone = self.truncated.get(partition, (0, set()))
        if who in gone and manifest.next_offset > end and partition not in self.refused:
            self._world.history.note(who, f"holds what partition {partition} has lost")
            self.content.untruncate(partition)
            self.refuse([partition])

    def expected(self, partition: int, next_offset: int) -> Counts:
        """What a state holds that was begun where the chain begins."""
        below, first = self.content.below[partition], self.chains[partition][0].next_offset
        return below[next_offset].minus(below[first])

    def _check_counts(self, manifest: Any, partition: int, where: str) -> None:
        offset = manifest.next_offset
        if not 0 <= offset < len(self.content.below[partition]):
            self.fail(
                "offset", f"{where} is at offset {offset}, the log ends at {len(self.content.below[partition]) - 1}"
            )
        if manifest.kind is self._manifests.Kind.GENESIS:
            return
        counters = manifest.counters
        found = Counts(*(int(counters.get(name, 0)) for name in ("rows", "nnz", "bad", "tombstones")))
        if found != (right := self.expected(partition, offset)):
            self.fail("exactly once", f"{where} at offset {offset} counts {found}, the log has {right}")

    def _check_letters(self, manifest: Any, partition: int, where: str) -> None:
        first = self.chains[partition][0].next_offset
        for offset in self.content.bad[partition]:
            if first <= offset < manifest.next_offset and (partition, offset) not in self.letters:
                self.fail("dead letters", f"{where} passes offset {offset}, which is not in the dead-letter topic")

    def _deleted(self, key: str, who: str) -> None:
        for partition, chain in enumerate(self.chains):
            if not chain or f"/{INPUT}/{partition}/" not in key:
                continue
            kept: dict[Any, Any] = {}
            for manifest in reversed(chain):
                kept.setdefault(manifest.state_id, manifest)
                if len(kept) >= self._scenario.keep:
                    break
            if any(key == blob.key for manifest in kept.values() for blob in manifest.references):
                self.fail("retention", f"{who} removes {key}, which a kept state needs")
            if key.endswith(f"/manifests/{chain[-1].number:020d}"):
                self.fail("retention", f"{who} removes the newest manifest {key}")

    # The broker

    def _committed(self, topic: str, partition: int, offset: int, metadata: str, who: str) -> None:
        self._world.history.note("broker", f"commit of {topic}/{partition} at {offset} by {who}")
        newest = self.newest(partition)
        durable = None if newest is None else newest.next_offset
        if durable is None or offset > durable:
            self.fail(
                "durable before committed", f"{who} commits {offset} of partition {partition}, durable is {durable}"
            )
        if self._scenario.delivery == "transactional":
            self._check_together(partition, metadata, who)

    def _check_together(self, partition: int, metadata: str, who: str) -> None:
        """In a transaction the offset of a published state is never visible without its snapshot."""
        words = metadata.split()
        is_published = len(words) == 3 and not words[2].startswith("0")
        if is_published and (int(words[1]), int(words[2])) not in self.published[partition]:
            self.fail("visible together", f"{who} commits {metadata!r} of partition {partition} without its snapshot")

    def _appended(self, topic: str, partition: int, record: LogRecord, who: str) -> None:
        headers = {name: value for name, value in record.headers if value is not None}
        if topic == DEAD:
            self.letters.add((int(headers["sfd-partition"]), int(headers["sfd-offset"])))
        elif topic == OUTPUT:
            self._snapshot(record, who)
        elif topic == MERGED:
            self.on_merge(record, who)

    def _snapshot(self, record: LogRecord, who: str) -> None:
        assert record.value is not None
        message = self._snapshots.decode_message(record.value)
        given, partition = (message.id.epoch, message.id.number), message.id.partition
        self._world.history.note("broker", f"snapshot {given} of partition {partition} by {who}")
        due = [each for each in self.chains[partition] if each.due is not None and _id(each.due.id) == given]
        if not due:
            self.fail("durable before published", f"{who} publishes {given} of partition {partition}, in no manifest")
        if (partition, given) in self._foreign:
            self.published[partition].append(given)
            self.rows_of[partition, given] = due[0].counters["rows"]
            return
        reference = due[0].due.blob
        if isinstance(message, self._snapshots.Snapshot):
            if not reference.matches(record.value):
                self.fail("snapshot bytes", f"{who} publishes other bytes for {given} of partition {partition}")
            self._check_snapshot(message, partition, who)
        elif message.key != reference.key:
            self.fail("snapshot bytes", f"{who} publishes a reference to {message.key} for {given}")
        before = self.published[partition][self._restored_at.get(partition, 0) :]
        if self._scenario.delivery == "transactional" and before and partition not in self.refused:
            last = before[-1]
            if given <= last:
                self.fail("published once", f"{who} publishes {given} of partition {partition} after {last}")
        self.published[partition].append(given)
        self.rows_of[partition, given] = self.expected(partition, self._offset_of(due[0].due.id, partition)).rows

    def newest_published(self) -> dict[int, tuple[int, int]]:
        return {partition: max(ids) for partition, ids in enumerate(self.published) if ids}

    def rows_published(self) -> int:
        """In the newest snapshots of all partitions together."""
        found = 0
        for partition, given in self.newest_published().items():
            added = self._scenario.until_end and partition >= self._scenario.partitions  # need not be done
            if (words := self.outdated(partition)) and not added:
                self.fail("readers", f"partition {partition}: {words}")
            found += self.rows_of[partition, given]
        return found

    def outdated(self, partition: int) -> str | None:
        """After a backup was restored: whether readers still keep a state that is not in the chain. None if not."""
        given = self.newest_published().get(partition)
        if given is None or any(m.due is not None and _id(m.due.id) == given for m in self.chains[partition]):
            return None
        return f"the newest snapshot {given} is in no manifest"

    def _check_snapshot(self, snapshot: Any, partition: int, who: str) -> None:
        right = self.expected(partition, snapshot.next_offset)
        found = (snapshot.sketch.rows, snapshot.sketch.nnz)
        if found != (right.rows, right.nnz):
            self.fail("exactly once", f"a snapshot by {who} of partition {partition} counts {found}, not {right}")

    # Workers

    def exited(self, who: str, code: int, words: str, ends: list[int] | None) -> None:
        """`ends`: for --until-end, where the partitions ended when the worker started."""
        if code != 0 and self._world.scheduler.now > self._explained.get(code, 0.0):
            self.fail(f"exit {code}", f"{who} ends with exit code {code}: {words}")
        for partition, end in enumerate(ends or ()) if code == 0 else ():
            if partition in self.refused or self.content.below[partition][end] == Counts():
                continue
            missing = self.missing(partition, end)
            if missing:
                self.fail("until end", f"{who} exits 0, but of partition {partition} (end {end}) {missing}")

    def missing(self, partition: int, end: int) -> str | None:
        """What is not done yet of a partition up to an end; None if nothing."""
        newest = self.newest(partition)
        if newest is None or newest.next_offset < end:
            return f"only offset {None if newest is None else newest.next_offset} is durable"
        committed = self._world.group(GROUP).offsets.get((INPUT, partition))
        if committed is None or committed.offset < end:
            return f"only offset {None if committed is None else committed.offset} is committed"
        if self._scenario.delivery == "none":
            return None
        shown = set(self.published[partition])
        states = [m for m in self.chains[partition] if m.due is not None and _id(m.due.id) in shown]
        reached = max((self._offset_of(m.due.id, partition) for m in states), default=None)
        return None if reached is not None and reached >= end else f"only offset {reached} is published"

    def _offset_of(self, state_id: Any, partition: int) -> int:
        return next(m.next_offset for m in self.chains[partition] if m.state_id == state_id)  # type: ignore[no-any-return]

    def data_end(self, partition: int) -> int:
        """After the last record that holds something."""
        below = self.content.below[partition]
        return next((offset for offset in range(len(below) - 1, 0, -1) if below[offset] != below[offset - 1]), 0)

    # The end

    def final(self) -> None:
        """Every state is bit for bit that of one run over the log; the committed offset is the newest one's.

        What readers keep, the highest id on the output topic, is a state of the chain.
        """
        self.rows_published()
        for partition, chain in enumerate(self.chains):
            if not chain or partition in self.refused:
                continue
            manifest, objects = chain[-1], self._world.objects.data
            sketch = None if manifest.sketch is None else objects[manifest.sketch.key]
            segments = tuple(objects[blob.key] for blob in manifest.buffer)
            state, _ = self._states.restore(self._shape(partition), manifest, sketch, segments)
            self._compare(partition, state.freeze(), self._replayed(partition, manifest.next_offset).freeze())
            committed = self._world.group(GROUP).offsets.get((INPUT, partition))
            if self._scenario.until_end:
                continue  # judged at each exit, up to the ends that the worker had to reach
            if committed is None or committed.offset != manifest.next_offset:
                at = None if committed is None else committed.offset
                self.fail(
                    "committed", f"partition {partition} ends committed at {at}, durable at {manifest.next_offset}"
                )

    def _replayed(self, partition: int, next_offset: int) -> Any:
        log, first = self._world.broker.topics[INPUT].logs[partition], self.chains[partition][0].next_offset
        state = self._states.PartitionState(self._shape(partition), first)
        for record in log.visible():
            if first <= record.offset < next_offset:
                values = [] if record.value is None else [record.value]
                decoded = self._rows.decode(values, state.columns)
                state.apply(decoded, record.offset + 1, None, int(record.value is None))
        return state

    def _compare(self, partition: int, found: Any, right: Any) -> None:
        joined = self._states.joined
        blocks = [joined(each.blocks, each.parameters["d"]) if each.blocks else None for each in (found, right)]
        pairs = [(found.arrays[name], right.arrays[name], name) for name in right.arrays]
        if blocks[0] is not None and blocks[1] is not None:
            pairs += [(getattr(blocks[0], n), getattr(blocks[1], n), n) for n in ("indptr", "indices", "values")]
        same = (blocks[0] is None) == (blocks[1] is None)
        for mine, theirs, name in pairs:
            if not same or mine.shape != theirs.shape or not np.array_equal(mine, theirs):
                self.fail("bit for bit", f"partition {partition} differs in {name} from one run over the log")
        if dict(found.numbers) != dict(right.numbers):
            self.fail("bit for bit", f"partition {partition} has {found.numbers}, one run has {right.numbers}")


def _id(state_id: Any) -> tuple[int, int]:
    return state_id.epoch, state_id.number
