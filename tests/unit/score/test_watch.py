"""The scorer's port: what is declared is exported, and what the code of the scorer may import."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sfd_stream.observe.metrics import OF_ANY_PROCESS, WORKER_LABELS, declared
from sfd_stream.score.scoring import ScoredBatch
from sfd_stream.score.watch import PartitionDrift, ScoreStatus, ScoreWatch
from sfd_stream.sketch.scoring.block_means import BlockMeans
from tests.support.watched import Clock
from tests.unit.score.test_scoring import basis_with, message_of, ordinary, scored
from tests.unit.worker.test_bars import FORBIDDEN, imported, tree_of

SOURCES = sorted(Path(__file__).parents[3].glob("sfd_stream/score/*.py"))


def watch_with_scores() -> ScoreWatch:
    watch = ScoreWatch("g", "rows", Clock(), Clock(2_000.0))
    watch.took(3, messages=30, rows=30, nnz=360, size=9, tombstones=0)
    watch.delivered(3, one_extreme())
    watch.status = ScoreStatus("scoring 1 of 1 partitions", True, {3: 17}, 1_940.0, 500, {3: changed()})
    return watch


def one_extreme() -> ScoredBatch:
    """Of 30 rows."""
    rows = ordinary(30)
    rows[4, 7] = 90
    return scored([message_of(row) for row in rows], basis_with(), when={"residual_over_mean_min": 100})


def changed(share: float = 0.5, degrees: float = 20.0) -> PartitionDrift:
    """40 blocks near a share of 0.2 and an angle of 5 degrees, then one at these."""
    shares, angles = np.random.default_rng(0).normal([0.2, 5.0], [0.01, 0.2], (40, 2)).T
    means = BlockMeans(1).plus(np.append(shares, share))
    roots = BlockMeans(1).plus(np.cbrt(np.sin(np.radians(np.append(angles, degrees))) ** 2))
    return PartitionDrift(means, means.significance(1e-4), roots, roots.significance(1e-4))


def test_drift_is_exported_with_its_bounds() -> None:
    found = {name: value for (name, labels), value in samples(watch_with_scores()).items() if "_drift_" in name}
    found = {name.removeprefix("sfd_score_drift_"): value for name, value in found.items()}
    assert (found["blocks"], found["significant"]) == (41, 1)
    assert found["baseline_ratio"] == pytest.approx(0.2, abs=0.01)
    assert found["outside_ratio"] == pytest.approx(0.5)
    assert 0 < found["change_lower_ratio"] < 0.3 < found["change_upper_ratio"]
    assert found["p_value"] < 1e-4


def test_angles_are_exported_in_degrees_with_their_bounds() -> None:
    found = {name: value for (name, labels), value in samples(watch_with_scores()).items() if "_angle_" in name}
    found = {name.removeprefix("sfd_score_drift_angle_"): value for name, value in found.items()}
    assert found["baseline_degrees"] == pytest.approx(5.0, abs=0.1)
    assert found["degrees"] == pytest.approx(20.0)
    assert found["baseline_degrees"] < found["lower_degrees"] < 20 < found["upper_degrees"]
    assert (found["significant"], found["p_value"] < 1e-4) == (1, True)


@pytest.mark.parametrize(("share", "degrees", "both"), [(0.5, 5, (1, 0)), (0.2, 20, (0, 1)), (0.2, 5, (0, 0))])
def test_the_page_names_a_partition_where_either_has_changed(
    share: float, degrees: float, both: tuple[int, int]
) -> None:
    watch = watch_with_scores()
    watch.status = replace(watch.status, drift={3: changed(share, degrees)})
    found, of_three = samples(watch), (("partition", "3"),)
    names = ("sfd_score_drift_significant", "sfd_score_drift_angle_significant")
    assert tuple(found[name, of_three] for name in names) == both
    assert json.loads(watch.status_json())["drift"] == {"3": any(both)}


def test_before_the_first_block_after_the_baseline_only_its_progress_is_exported() -> None:
    watch, shares = watch_with_scores(), BlockMeans(1).plus(np.zeros(7))
    watch.status = replace(watch.status, drift={3: PartitionDrift(shares, shares.significance(1e-4))})
    found = {name: value for (name, labels), value in samples(watch).items() if "_drift_" in name}
    assert found == {"sfd_score_drift_blocks": 7}


def samples(watch: ScoreWatch) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families: Any = text_string_to_metric_families(watch.exposition().decode())
    return {
        (sample.name, tuple(sorted((k, v) for k, v in sample.labels.items() if k not in WORKER_LABELS))): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_declared_metric_is_exported_with_its_labels_and_nothing_else_is() -> None:
    found = {(name, tuple(k for k, _ in labels if k != "le")) for name, labels in samples(watch_with_scores())}
    exported = (*declared("score"), *OF_ANY_PROCESS)
    assert found == {(name, tuple(sorted(metric.labels))) for metric in exported for name in metric.series}


def test_counts_are_of_what_was_delivered() -> None:
    watch = watch_with_scores()
    watch.delivery_failed()
    found, of_three = samples(watch), (("partition", "3"),)
    assert found["sfd_score_rows_total", of_three] == 30
    assert found["sfd_score_written_total", of_three] == 1
    assert found["sfd_score_reported_total", (("kind", "residual_over_mean"),)] == 1
    assert found["sfd_score_reported_total", (("kind", "t2"),)] == 0
    assert found["sfd_score_residual_over_mean_count", ()] == 30
    assert found["sfd_score_residual_over_mean_bucket", (("le", "100.0"),)] == 29
    assert found["sfd_score_delivery_failures_total", ()] == 1
    assert found["sfd_score_lag_messages", of_three] == 17
    assert found["sfd_score_basis_age_seconds", ()] == 60
    assert found["sfd_score_basis_rows", ()] == 500
    assert (watch.ready, watch.doing) == (True, "scoring 1 of 1 partitions")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_threads_clocks_and_randomness_come_in_as_arguments(path: Path) -> None:
    assert imported(tree_of(path)) & FORBIDDEN == set()


def test_the_page_gets_the_histogram_and_the_last_extreme_rows_first() -> None:
    watch = watch_with_scores()
    found = json.loads(watch.status_json())
    assert (found["rows"], found["written"], found["reported"]) == (30, 1, {"residual_over_mean": 1})
    assert (found["lag"], found["basis_rows"], found["drift"]) == (17, 500, {"3": True})
    assert sum(rows for _, rows in found["histogram"]) == 30
    lower, rows = found["histogram"][-1]
    assert (lower >= 64, rows) == (True, 1), "the extreme row"
    (extreme,) = found["extreme"]
    assert (extreme["partition"], extreme["offset"], extreme["row"]) == (0, 4, 0)
    assert extreme["reported"] == ["residual_over_mean"]
    assert extreme["causes"]["residual"][0]["name"] == "7"
    batch = one_extreme()
    watch.delivered(3, replace(batch, extreme=[{**batch.extreme[0], "offset": n} for n in range(50)]))
    assert [row["offset"] for row in json.loads(watch.status_json())["extreme"]] == list(range(49, 29, -1))


def test_values_of_rows_are_on_the_page_only_with_excerpts() -> None:
    watch = watch_with_scores()
    cause = json.loads(watch.status_json())["extreme"][0]["causes"]["residual"][0]
    assert set(cause) == {"name", "share", "missing"}
    watch.excerpts = True
    cause = json.loads(watch.status_json())["extreme"][0]["causes"]["residual"][0]
    assert cause["actual"] == 90


def test_scores_without_bounds_and_of_any_size_are_json() -> None:
    watch = ScoreWatch("g", "rows", Clock(), Clock(2_000.0))
    watch.delivered(0, replace(one_extreme(), over_mean=np.array([0.0, 1e-300, 1.0, 1e300, np.inf])))
    assert json.loads(watch.status_json())["histogram"] == [[2.0**-10, 2], [1.0, 1], [2.0**20, 2]]
