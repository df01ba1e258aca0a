"""A row is scored by the newest basis that has not counted it; a basis of other columns is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sfd_stream.errors import BrokerUnavailableError, NoSnapshotError, RefusedStateError
from sfd_stream.loop.runtime import Runtime
from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.score.bases import Bases, NewestBasis, ScoringBasis, basis_of, check_meaning, id_of
from sfd_stream.wire.columns import FixedColumns, GrowingColumns, HashedColumns
from sfd_stream.wire.features import FeatureMap
from tests.support.watched import Clock
from tests.system.fakes import Diary
from tests.unit.loop.test_jobs import Here
from tests.unit.reader.made import rows_of, sketch_of, snapshot
from tests.unit.worker.chains import driven


def merged_of(*seeds: int, d: int = 12, **changes: Any) -> MergedSketch:
    """One partition a seed."""
    return merge([snapshot(sketch_of(rows_of(s, d=d)), p, **changes) for p, s in enumerate(seeds)], 1_000.0)


def a_basis(number: int, **counted_to: int) -> ScoringBasis:
    found = basis_of(merged_of(0, number=number), "rows", 2, centred=True)
    return replace(found, counted_to={int(name.removeprefix("p")): offset for name, offset in counted_to.items()})


def bases_of(*answers: Any) -> tuple[Bases, Diary, Clock]:
    """A reader that answers in turn, asked once a turn."""
    waiting, clock, diary = list(answers), Clock(), Diary()

    def read() -> ScoringBasis | None:
        answer = waiting.pop(0) if waiting else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    runtime = Runtime(None, clock=clock, io=Here())  # type: ignore[arg-type]
    return Bases(read, runtime, diary), diary, clock


def test_nothing_is_scored_before_the_reference_of_drift_is_here() -> None:
    first, reference = a_basis(1, p0=10), a_basis(2, p0=5)
    answers: list[Any] = [NoSnapshotError("no basis x is pinned"), reference]

    def read_reference() -> ScoringBasis | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]

    clock, diary = Clock(), Diary()
    bases = Bases(lambda: first, Runtime(None, clock=clock, io=Here()), diary, read_reference)  # type: ignore[arg-type]
    assert bases.missing == "a basis to score rows by"
    turn(bases, clock)
    assert (bases.newest, bases.missing) == (first, "drift.reference")
    turn(bases, clock, 2)
    assert (bases.reference, bases.missing, answers) == (reference, None, [])


def turn(bases: Bases, clock: Clock, times: int = 1) -> None:
    for _ in range(times):
        bases.serve()
        clock.now += 1.0
        bases.serve()


def test_a_row_is_scored_by_the_newest_basis_that_has_not_counted_it() -> None:
    first, second = a_basis(1, p0=10), a_basis(2, p0=20)
    bases, _, clock = bases_of(first, second)
    turn(bases, clock, 3)
    assert bases.newest is second
    assert bases.for_rows_from(0, 25) is second
    assert bases.for_rows_from(0, 20) is second
    assert bases.for_rows_from(0, 19) is first
    assert bases.for_rows_from(0, 9) is second, "none is left that has not counted it"
    assert bases.for_rows_from(1, 0) is second, "it has counted nothing of that partition"
    assert [basis.has_counted(0, 9) for basis in (first, second)] == [True, True]


def test_before_a_first_snapshot_it_waits_and_logs_it_once_a_minute() -> None:
    bases, diary, clock = bases_of(*[NoSnapshotError("none yet")] * 90, a_basis(1))
    turn(bases, clock, 62)
    assert bases.newest is None
    assert [event for event, _ in diary.lines] == ["no basis yet: rows are scored once there is one"] * 2
    turn(bases, clock, 40)
    assert bases.newest is not None
    driven(bases.available())


def test_an_outage_leaves_the_last_basis_and_a_refusal_ends_the_scorer() -> None:
    first = a_basis(1)
    bases, diary, clock = bases_of(first, BrokerUnavailableError("no broker"), RefusedStateError("another d"))
    turn(bases, clock, 2)
    assert bases.newest is first
    assert diary.lines[-1][0] == "snapshots could not be read, will retry"
    with pytest.raises(RefusedStateError, match="another d"):
        turn(bases, clock, 2)


MAPPING = FeatureMap.from_settings({"exclude": ["id"]})
HASHED = {"columns": "hashed", "hash_seed": 5}


@pytest.mark.parametrize(
    ("changes", "columns", "says"),
    [
        ({}, FixedColumns(13), "sketch.d is 12 there and 13 here"),
        ({}, HashedColumns(12, 0), "input.columns is fixed there and hashed here"),
        (HASHED, HashedColumns(12, 6), "input.hash_seed is 5 there and 6 here"),
        (HASHED, HashedColumns(16, 5), "sketch.d is 12 there and 16 here"),
        (HASHED, HashedColumns(12, 5, mapping=MAPPING), "input.features is none"),
        ({**HASHED, "mapping": MAPPING}, HashedColumns(12, 5), "exclude"),
    ],
)
def test_snapshots_of_other_columns_are_refused(changes: dict[str, Any], columns: Any, says: str) -> None:
    with pytest.raises(RefusedStateError, match=says):
        check_meaning(merged_of(0, **changes), columns, "of topic sketches")


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        ({}, FixedColumns(12)),
        (HASHED, HashedColumns(12, 5)),
        ({**HASHED, "mapping": MAPPING}, HashedColumns(12, 5, mapping=MAPPING)),
        ({"columns": "growing"}, GrowingColumns(4, 1_000)),
    ],
)
def test_snapshots_of_the_same_columns_are_taken(changes: dict[str, Any], columns: Any) -> None:
    check_meaning(merged_of(0, **changes), columns, "of topic sketches")


def test_the_same_snapshots_have_the_same_id_in_any_order() -> None:
    one, other = (snapshot(sketch_of(rows_of(p)), p, partitions=2) for p in range(2))
    newer = snapshot(sketch_of(rows_of(1)), 1, partitions=2, number=2)
    assert id_of(merge([one, other], 1.0)) == id_of(merge([other, one], 2.0))
    assert id_of(merge([one, other], 1.0)) != id_of(merge([one, newer], 1.0))


def test_a_basis_knows_which_rows_of_the_topic_it_has_counted() -> None:
    mine = snapshot(sketch_of(rows_of(0)), 3, partitions=4, next_offset=17)
    other = snapshot(sketch_of(rows_of(1)), 0, topic="others", next_offset=99)
    basis = basis_of(merge([mine, other], 1.0), "rows", 2, centred=True)
    assert basis.counted_to == {3: 17}
    assert (basis.has_counted(3, 16), basis.has_counted(3, 17), basis.has_counted(0, 0)) == (True, False, False)


def test_coordinates_move_less_when_aligned_to_the_basis_before() -> None:
    """Directions of equal strength: any rotation of them is as good."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((400, 3)) @ np.eye(3, 12) + 0.01 * rng.standard_normal((400, 12)) for _ in range(2)]
    merged = [merge([snapshot(sketch_of(each, ell=8))], 1.0) for each in rows]
    before = basis_of(merged[0], "rows", 3, centred=True)
    after = basis_of(merged[1], "rows", 3, centred=True, before=before)
    x = rows[0][:50]
    y, plain = (x @ basis.frame.T for basis in (before, after)), x @ after.scorer.components.T
    old, new = y
    assert np.linalg.norm(new - old) < 0.05 * np.linalg.norm(old) < np.linalg.norm(plain - old)
    assert np.allclose(after.rotation @ after.rotation.T, np.eye(3))


class FakeReader:
    """Snapshots that were given, as a reader holds them."""

    topic, max_total_bytes = "sketches", 10**9

    def __init__(self) -> None:
        self.snapshots: list[Any] = []
        self.changed = False

    def refresh(self) -> bool:
        changed, self.changed = self.changed, False
        return changed

    def held(self) -> list[Any]:
        if not self.snapshots:
            raise NoSnapshotError("no snapshot")
        return self.snapshots

    def give(self, *snapshots: Any) -> None:
        self.snapshots, self.changed = list(snapshots), True


def newest_on(reader: Any, k: int | None = None) -> NewestBasis:
    runtime = Runtime(None)  # type: ignore[arg-type]
    return NewestBasis(reader, "rows", FixedColumns(12), k, True, runtime.computing, lambda: 1_000.0)


def test_a_changed_snapshot_makes_a_new_basis_and_an_unchanged_one_does_not() -> None:
    reader = FakeReader()
    newest = newest_on(reader)
    with pytest.raises(NoSnapshotError):
        newest.read()
    reader.give(snapshot(sketch_of(rows_of(0))))
    first = newest.read()
    assert first is not None
    assert newest.read() is None
    reader.give(snapshot(sketch_of(rows_of(1)), number=2))
    second = newest.read()
    assert second is not None
    assert second.id != first.id


def test_a_sketch_with_too_few_directions_is_waited_for() -> None:
    reader = FakeReader()
    newest = newest_on(reader, k=2)
    reader.give(snapshot(sketch_of(rows_of(0)[:1])))
    with pytest.raises(NoSnapshotError, match="can't score rows yet"):
        newest.read()
    assert newest.read() is None
    reader.give(snapshot(sketch_of(rows_of(0)), number=2))
    assert newest.read() is not None
