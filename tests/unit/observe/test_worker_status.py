"""What the status says, against what happened; time is the test's."""

from __future__ import annotations

import numpy as np
import pytest

from sfd_stream.loop.jobs import STUCK_S
from sfd_stream.observe.facts import LoopState
from sfd_stream.observe.registry import exposition
from sfd_stream.observe.spectra import (
    COLUMNS,
    DIRECTIONS,
    NAME_CHARS,
    VALUES_MAX,
)
from sfd_stream.observe.status import as_json
from sfd_stream.observe.worker_status import MOMENTS, NEWEST_LETTERS
from sfd_stream.sketch.drift import mean_squared_sine
from sfd_stream.worker.report import SILENT_S
from tests.support.watched import Stage, settings_of


def test_the_age_is_that_of_the_oldest_row_not_durable_even_while_its_checkpoint_is_under_way() -> None:
    stage = Stage()
    stage.feed(0, 5)
    stage.tick(10.0)
    assert stage.watch.status.partitions[0].checkpoint_age_s == 10.0
    stage.owned(0).taken.unstored.begin(stage.clock.now)
    stage.tick(3.0)
    stage.feed(0, 5)
    stage.tick(2.0)
    assert stage.watch.status.partitions[0].checkpoint_age_s == 15.0
    stage.stored(0)
    stage.tick(1.0)
    assert stage.watch.status.partitions[0].checkpoint_age_s == 3.0


def test_an_idle_topic_is_not_old() -> None:
    stage = Stage()
    stage.feed(0, 5)
    stage.checkpoint(0)
    stage.tick(3600.0)
    assert stage.watch.status.partitions[0].checkpoint_age_s == 0.0


def test_a_partition_is_stuck_when_its_offset_is_flat_while_its_lag_grows_and_only_then() -> None:
    stage = Stage(partitions=3)
    stage.tick()
    for _ in range(int(STUCK_S)):
        stage.ends[0] += 10  # grows, and stands still
        stage.ends[1] += 10  # grows, and moves
        stage.feed(1, 1)
        stage.tick()
    stuck = [part.stuck_s for part in stage.watch.status.partitions]
    assert stuck[0] >= STUCK_S
    assert stuck[1:] == [0.0, 0.0]
    assert stage.watch.status.doing.startswith("stuck: partition 0 ")
    stage.feed(0, 1)
    stage.tick()
    assert stage.watch.status.partitions[0].stuck_s == 0.0


def test_a_partition_that_has_records_and_delivers_none_for_a_minute_is_stuck_also_when_its_lag_does_not_grow() -> None:
    stage = Stage(partitions=4)
    stage.ends.update({0: 10, 1: 10, 2: 10, 3: 0})  # 0 is silent, 1 delivers, 2 is paused by us, 3 has no records
    stage.tick()
    for second in range(1, int(SILENT_S) + 2):
        if second % 50 == 0:
            stage.feed(1, 1)
        stage.clock.now += 1
        stage.source.paused = {2}
        stage.show()
        stuck = [part.stuck_s for part in stage.watch.status.partitions]
        assert stuck[1:] == [0.0, 0.0, 0.0]
        assert (stuck[0] > 0) == (second >= SILENT_S)
    assert stage.watch.status.doing.startswith("stuck: partition 0 ")
    exported = exposition(stage.watch.meter, stage.watch.status, 0).decode().splitlines()
    values = [line.rsplit(" ", 1)[1] for line in exported if line.startswith("sfd_partition_stuck_seconds{")]
    assert [float(value) for value in values] == [SILENT_S + 1, 0.0, 0.0, 0.0]
    stage.feed(0, 1)
    stage.tick()
    assert stage.watch.status.partitions[0].stuck_s == 0.0


def test_a_partition_is_not_called_stuck_because_its_broker_is_unavailable() -> None:
    stage = Stage(partitions=1)
    stage.ends[0] = 10
    stage.around = stage.around._replace(broker_away_s=1.0)
    for _ in range(int(SILENT_S) + 5):
        stage.tick()
    stage.around = stage.around._replace(broker_away_s=None)
    for _ in range(int(SILENT_S) - 5):
        stage.tick()
        assert stage.watch.status.partitions[0].stuck_s == 0.0
    for _ in range(10):
        stage.tick()
    assert stage.watch.status.partitions[0].stuck_s >= SILENT_S


@pytest.mark.parametrize("state", ["waiting", "claiming"])
def test_a_partition_that_is_not_read_yet_has_a_lag_and_is_stuck_when_it_grows(state: str) -> None:
    stage = Stage(partitions=1)
    stage.put(0, state)
    owned, memory = stage.owned(0), stage.report.memory(stage.owned(0))
    owned.sketched = owned.backlog = owned.chain.manifest = None
    stage.source.positions.clear()
    for second in range(int(STUCK_S) + 2):
        stage.clock.now += 1
        memory.begins_at, memory.end = 70, 100 + second
        stage.show()
    part = stage.watch.status.partitions[0]
    assert (part.applied, part.lag) == (70, 30 + STUCK_S + 1)
    assert part.stuck_s >= STUCK_S


def test_lag_is_end_minus_applied_and_control_records_leave_none() -> None:
    stage = Stage(partitions=1)
    stage.feed(0, 10)
    stage.ends[0] = 12
    stage.source.positions[0] = 12
    stage.tick()
    assert stage.watch.status.partitions[0].lag == 0
    stage.around = stage.around._replace(sketch_idle=False)
    stage.tick()
    assert stage.watch.status.partitions[0].lag == 2


@pytest.mark.parametrize(
    ("around", "modes", "ready", "doing"),
    [
        (LoopState(False, False, True, None, 0), [], False, "joining the group"),
        (LoopState(True, False, True, None, 0), [], True, "ready: no partition assigned"),
        (LoopState(True, False, True, None, 0), ["reading", "claiming"], False, "restoring partition 1"),
        (LoopState(True, False, True, None, 0), ["reading", "reading"], True, "idle: up to date"),
        (LoopState(True, False, True, None, 0), ["reading", "waiting"], False,
         "no room in memory for partition 1: not read until there is"),
        (LoopState(True, False, True, 12.0, 0), ["reading"], True, "waiting for the broker: no answer for 12 s"),
        (
            LoopState(True, False, True, None, 0, registry_outage="refused, for 3 s"),
            ["reading"],
            True,
            "waiting for the schema registry: refused, for 3 s",
        ),
        (LoopState(True, False, True, None, 0, 29.0), [], True, "ready: no partition assigned"),
        (LoopState(True, False, True, None, 0, 75.0), [], True, "stuck: outside the consumer group for 75 s"),
        (LoopState(True, False, True, None, 0), ["paused", "reading"], True,
         "waiting for the checkpoint store: partition 0 paused"),
        (LoopState(True, True, True, None, 0), ["reading", "reading"], True, "stopping: last checkpoints"),
    ],
)  # fmt: skip
def test_ready_means_all_that_is_assigned_is_restored(
    around: LoopState, modes: list[str], ready: bool, doing: str
) -> None:
    stage = Stage(partitions=len(modes))
    for partition, mode in enumerate(modes):
        stage.put(partition, mode)
    stage.around = around
    stage.tick()
    assert (stage.watch.status.ready, stage.watch.status.doing) == (ready, doing)


def test_the_loop_is_idle_since_it_last_turned() -> None:
    stage = Stage()
    stage.tick()
    stage.clock.now += 75
    assert stage.watch.idle_s == 75
    stage.watch.alive()
    assert stage.watch.idle_s == 0


def test_pace_is_of_the_last_seconds() -> None:
    stage = Stage()
    for _ in range(30):
        stage.feed(0, 20)
        stage.tick()
    assert stage.watch.status.rows_per_s == pytest.approx(20, rel=0.01)
    for _ in range(15):
        stage.tick()
    assert stage.watch.status.rows_per_s == 0


def test_replay_ends_where_the_log_ended_when_the_state_was_restored() -> None:
    stage = Stage(partitions=1)
    stage.ends[0] = 100
    stage.tick()
    stage.feed(0, 60)
    stage.tick()
    assert stage.watch.meter.registry.get_sample_value("sfd_replay_seconds_count") == 0
    stage.ends[0] = 500
    stage.feed(0, 60)
    stage.tick()
    value = stage.watch.meter.registry.get_sample_value
    assert (value("sfd_replay_seconds_count"), value("sfd_replayed_rows_total")) == (1, 120)
    stage.feed(0, 60)
    stage.tick()
    assert value("sfd_replayed_rows_total") == 120


def test_replay_passes_control_records_at_the_end_as_the_lag_does() -> None:
    stage = Stage(partitions=1)
    stage.ends[0] = 11  # ten rows and the mark of their transaction
    stage.tick()
    stage.feed(0, 10)
    for position, ended in ((10, 0), (11, 1)):
        stage.source.positions[0] = position
        stage.tick()
        value = stage.watch.meter.registry.get_sample_value
        assert (value("sfd_replay_seconds_count"), value("sfd_replayed_rows_total")) == (ended, 10 * ended)


def test_drift_is_zero_for_the_same_space_and_one_for_an_orthogonal_one() -> None:
    eye = np.eye(6)
    turned = np.array([[np.cos(0.3), np.sin(0.3)], [-np.sin(0.3), np.cos(0.3)]]) @ eye[:2]
    assert mean_squared_sine(eye[:2], turned) == pytest.approx(0)
    assert mean_squared_sine(eye[:2], eye[2:4]) == 1
    assert mean_squared_sine(eye[:2, :4], np.pad(eye[:2, :4], ((0, 0), (0, 3)))) == 0
    assert mean_squared_sine(eye[:0], eye[:0]) == 0


def test_rows_that_no_snapshot_shows_grow_old_until_one_is_acknowledged() -> None:
    stage = Stage(partitions=1)
    taken = stage.owned(0).taken
    taken.unpublished.since_s = stage.clock.now
    stage.tick(10.0)
    assert stage.watch.status.partitions[0].snapshot_age_s == 10
    taken.unpublished.begin(stage.clock.now)
    stage.tick(5.0)
    assert stage.watch.status.partitions[0].snapshot_age_s == 15, "it is on its way"
    stage.watch.snapshot_failed("unavailable")
    taken.unpublished.begin(stage.clock.now)
    stage.tick(5.0)
    assert stage.watch.status.partitions[0].snapshot_age_s == 20, "the next one has to show the same rows"
    stage.publish(0, 1_000)
    stage.tick(500.0)
    assert stage.watch.status.partitions[0].snapshot_age_s == 0, "an idle topic is not old"


def test_memory_and_the_answer_are_bounded_whatever_happens() -> None:
    stage = Stage(partitions=1, words=("n" * 5_000,) * 256, ell=80)
    for step in range(600):
        if step % 100 == 0:
            stage.feed(0, 200)
        stage.watch.dead_letter(0, step, "malformed", "w" * 5_000, b"v" * 5_000)
        stage.tick(60.0 if step < 500 else 1.0)
    status = stage.watch.status
    assert len(status.newest_dead_letters) == NEWEST_LETTERS
    assert len(status.history) == MOMENTS
    assert status.dead_letters == {"malformed": 600}
    spectrum = status.partitions[0].spectrum
    assert spectrum is not None
    assert len(spectrum.singular_values) <= VALUES_MAX
    assert len(spectrum.directions) <= DIRECTIONS
    assert all(len(direction) <= COLUMNS for direction in spectrum.directions)
    assert all(len(column.name or "") <= NAME_CHARS for direction in spectrum.directions for column in direction)
    assert len(as_json(status, 0.0, 1)) < 100_000


def test_rows_that_wait_long_for_a_checkpoint_are_not_keeping_up() -> None:
    """With checkpoint.every_s of 5 s a row that is 47 s old is late; at 30 s it is on its way."""
    stage = Stage()
    for every_s, late in ((5.0, True), (30.0, False)):
        stage.watch.settings = settings_of(f"checkpoint.every_s={every_s}")
        stage.owned(0).taken.unstored.since_s = stage.clock.now - 46.0
        stage.feed(0, 5)
        stage.tick(1.0)
        said = "checkpoints are late: a row has waited for 47 s, and checkpoint.every_s is 5 s"
        assert (stage.watch.status.doing == said) is late
