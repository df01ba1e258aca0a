"""Samples of sketches: the sketch's own numbers, taken from its snapshot where there is one; no state changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfd_stream import FrequentDirections
from sfd_stream.observe.spectra import (
    COLUMNS,
    DRIFT_K,
    VALUES_MAX,
    SpectrumSampler,
    StateSample,
)
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.drift import mean_squared_sine
from sfd_stream.sketch.sketch import Sketch
from sfd_stream.state.partition import PartitionState, Shape
from sfd_stream.wire.columns import FixedColumns, HashedColumns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row
from tests.support.watched import AtOnce, Clock, Stage


def test_the_spectrum_holds_the_sketchs_own_numbers_and_names() -> None:
    stage = Stage(partitions=2)
    for partition in (0, 1):
        stage.feed(partition, 300)
    for _ in range(4):
        stage.tick(5.0)
    sketch = stage.states[0].sketch()
    part = stage.watch.status.partitions[0]
    assert part.spectrum is not None
    assert part.spectrum.singular_values == pytest.approx(sketch.singular_values()[:VALUES_MAX], rel=1e-5)
    assert part.delta_ratio == pytest.approx(sketch.delta / sketch.squared_frobenius, rel=1e-4)
    assert part.failure_probability == pytest.approx(sketch.failure_probability, rel=1e-5)
    strongest = part.spectrum.directions[0][0]
    assert strongest.column == int(np.argmax(np.abs(sketch.components(1)[0])))
    assert all(column.name == dict(enumerate(stage.words)).get(column.column) for column in part.spectrum.directions[0])
    merged = stage.watch.status.merged
    assert merged is not None
    assert merged.rows == 600
    assert merged.squared_frobenius == pytest.approx(
        sum(s.sketch().squared_frobenius for s in stage.states.values()), rel=1e-5
    )


def test_what_is_merged_is_what_is_assigned_also_after_one_has_gone() -> None:
    stage = Stage(partitions=3)
    for partition in stage.states:
        stage.feed(partition, 100 + partition)
    for _ in range(4):
        stage.tick(5.0)
    assert stage.watch.status.merged is not None
    assert stage.watch.status.merged.rows == 303
    stage.table.remove(stage.owned(1))
    stage.tick(5.0)
    stage.tick(5.0)
    assert stage.watch.status.merged.rows == 202


def test_a_look_changes_nothing() -> None:
    watched, alone = Stage(partitions=1), Stage(partitions=1)
    for _ in range(6):
        for stage in (watched, alone):
            stage.feed(0, 100)
        watched.tick(10.0)
    assert watched.watch.status.partitions[0].spectrum is not None
    assert watched.states[0].sketch() == alone.states[0].sketch()


def test_drift_of_two_looks_an_interval_apart_is_shown_and_remembered() -> None:
    stage = Stage(partitions=1)
    for _ in range(20):
        stage.feed(0, 30)
        stage.tick(5.0)
    shown = stage.watch.status.partitions[0].drift
    assert shown is not None
    assert 0 < shown < 1
    assert any(moment.drift is not None for moment in stage.watch.status.history)


def publishing(partitions: int) -> Stage:
    """Where snapshots bring their sketches, and drift is from one to the next."""
    stage = Stage(partitions=partitions)
    stage.sampler._drift_every_s = None
    return stage


def test_a_snapshot_s_sketch_is_shown_and_no_other_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = publishing(2)
    shots = []
    copy_state = stage.report._copy_state
    monkeypatch.setattr(stage.report, "_copy_state", lambda partition: shots.append(partition) or copy_state(partition))
    for partition, state in stage.states.items():
        stage.feed(partition, 200)
        stage.sampler.offer(partition, state.sketch(), state.columns)
    stage.tick(5.0)
    stage.tick(5.0)
    shown = [part.spectrum for part in stage.watch.status.partitions]
    assert [spectrum.rows for spectrum in shown if spectrum is not None] == [200, 200]
    assert stage.watch.status.merged is not None
    assert stage.watch.status.merged.rows == 400
    assert shots == []


@pytest.mark.parametrize("too_large", [False, True])
def test_drift_is_from_one_snapshot_to_the_next(monkeypatch: pytest.MonkeyPatch, *, too_large: bool) -> None:
    if too_large:
        monkeypatch.setattr("sfd_stream.observe.spectra.MERGE_BYTES_MAX", 1_000)
    stage = publishing(1)
    state = stage.states[0]
    tops = []
    for _ in range(3):
        stage.feed(0, 200)
        stage.sampler.offer(0, state.sketch(), state.columns)
        stage.tick(5.0)
        tops.append(state.sketch().components(DRIFT_K))
        stage.feed(0, 50)
        stage.tick(5.0)  # a look of its own, between snapshots, leaves drift alone
    assert stage.watch.status.partitions[0].drift == pytest.approx(mean_squared_sine(tops[1], tops[2]))


def test_a_snapshot_that_was_overtaken_by_a_look_is_not_shown() -> None:
    stage = publishing(1)
    stage.feed(0, 100)
    old = stage.states[0].sketch()
    stage.feed(0, 100)
    stage.tick(5.0)
    stage.sampler.offer(0, old, stage.states[0].columns)
    stage.tick(5.0)
    spectrum = stage.watch.status.partitions[0].spectrum
    assert spectrum is not None
    assert spectrum.rows == 200


def test_sketches_that_wait_to_be_looked_at_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = publishing(3)
    for partition in stage.states:
        stage.feed(partition, 200)
    sketch = stage.states[0].sketch()
    monkeypatch.setattr("sfd_stream.observe.spectra.MERGE_BYTES_MAX", 2 * sketch.matrix.nbytes)
    for partition in (0, 1, 2, 1):
        stage.sampler.offer(partition, sketch, stage.states[partition].columns)
    assert sorted(stage.sampler._given) == [0, 1]


BAGS = [
    {"given": 3, "god": 2, "others": 1, "power": 2},
    {"given": 1, "god": 1, "light": 4},
    {"power": 2, "others": 3, "given": 2},
    {"n" * 100: 2, "given": 1},  # its name is kept in part: of its sign nothing is known
]


def looked_at(seed: int) -> tuple[SpectrumSampler, Sketch]:
    """Hashed words, all of them counts, so that the data have no minus anywhere."""
    columns = HashedColumns(4096, seed)
    state = PartitionState(Shape(columns, Parameters(d=4096, ell=8)), 0)
    batch = decode([encode_row(list(bag), list(bag.values()), packed=False) for bag in BAGS], columns)
    state.apply(batch, len(BAGS), None, 0)
    sampler = SpectrumSampler(AtOnce().submit, Clock(), Clock())
    sampler.consider({0: len(BAGS)}, lambda _: AtOnce().submit(StateSample.of, state))
    assert isinstance(state.columns, HashedColumns)
    return sampler, replace(state.sketch(), features=state.columns.known())


@pytest.mark.parametrize("seed", range(6))
def test_hashed_columns_are_shown_with_the_signs_of_the_data(seed: int) -> None:
    sampler, sketch = looked_at(seed)
    directions = sampler.fields(0)["spectrum"].directions
    shown = [{c.name: c.weight for c in direction if abs(c.weight) > 1e-9} for direction in directions]
    read = [{name: w for name, w in direction if abs(w) > 1e-9} for direction in sketch.top(len(shown), COLUMNS)]
    for one, other in zip(shown, read, strict=True):
        assert one == pytest.approx(other, rel=1e-3)
    assert all(weight > 0 for name, weight in shown[0].items() if name and len(name) < 20)
    assert sampler.merged is not None
    assert sampler.merged.directions == directions, "the merge of one partition"


def test_a_snapshot_that_is_withdrawn_while_a_look_at_it_begins_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that makes snapshots takes the last one away before it gives the next."""
    sampler, sketch = looked_at(0)
    sampler._rest_until_s = 0.0
    sampler.offer(0, sketch, HashedColumns(4096, 0))
    monkeypatch.setattr(sampler, "_sampled_at", lambda partition: 0.0 if sampler._given.pop(partition) else 1.0)
    sampler.consider({0: len(BAGS)}, lambda _: pytest.fail("nothing has changed"))


def test_drift_comes_in_degrees_with_the_sketchs_error_as_watch_has_it() -> None:
    stage = Stage(partitions=1, ell=40)
    before = None
    for _ in range(3):
        stage.feed(0, 400)
        sketch = stage.states[0].sketch()
        stage.sampler.offer(0, sketch, stage.states[0].columns)
        stage.tick(60.0)
        if before is not None:
            wanted = sketch.drift(before, DRIFT_K)
            (part,) = stage.watch.status.partitions
            assert part.drift_degrees == pytest.approx(np.degrees(wanted.angles[0]), rel=1e-3)
            assert part.drift_error_degrees == pytest.approx(np.degrees(wanted.error), rel=1e-3)
            assert part.drift is not None
            stage.tick(1.0)
            moment = stage.watch.status.history[-1]
            assert (moment.drift_degrees, moment.drift_error_degrees) == (part.drift_degrees, part.drift_error_degrees)
        before = sketch


@pytest.mark.parametrize("room", [2**26, 0])
def test_the_angle_is_that_of_the_sketches_whether_or_not_there_is_room_to_keep_them(
    room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sfd_stream.observe.spectra.MERGE_BYTES_MAX", room)
    rng, sampler = np.random.default_rng(3), SpectrumSampler(AtOnce().submit, Clock(), Clock())
    strong = np.diag([9.0, 8.0, 7.0, 6.0, 5.0, *[0.2] * 25])
    sketches = [FrequentDirections(12).partial_fit(rng.normal(size=(300, 30)) @ strong).sketch() for _ in range(2)]
    for sketch in sketches:
        sampler.offer(0, sketch, FixedColumns(30))
        if room:
            sampler._rest_until_s = 0.0
            sampler.consider({0: sketch.rows}, lambda _: AtOnce().submit(lambda: None))
    wanted = sketches[1].drift(sketches[0], DRIFT_K)
    assert wanted.error < np.pi / 4
    found = sampler.fields(0)
    degrees, error_degrees = np.degrees([wanted.angles[0], wanted.error])
    assert found["drift_degrees"] == pytest.approx(degrees, rel=1e-3)
    assert found["drift_error_degrees"] == pytest.approx(error_degrees, rel=1e-3)
