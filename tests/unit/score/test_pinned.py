"""Pinned bases: what was pinned comes back the same, and rows are scored by it whatever is published later."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import yaml

from sfd_stream.cli import main
from sfd_stream.cli.commands.basis import pinned_bases_of
from sfd_stream.cli.commands.score import reader_of
from sfd_stream.errors import FormatError, NoSnapshotError, RefusedStateError
from sfd_stream.loop.runtime import Runtime
from sfd_stream.score.bases import ScoringBasis, id_of
from sfd_stream.score.pinned import PinnedBases, PinnedBasis
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.wire.columns import FixedColumns
from tests.support.kafka import Broker
from tests.system.conftest import MakeRun
from tests.system.runs import Rows, wait_until
from tests.unit.reader.made import rows_of
from tests.unit.score.scored import Scoring
from tests.unit.score.test_bases import merged_of


def bases_on(store: MemoryStore, group: str = "g", topic: str = "rows") -> PinnedBases:
    return PinnedBases(store, group, topic, 2**30)


def reading(bases: PinnedBases, basis_id: str | None = None, d: int = 12, k: int = 2) -> PinnedBasis:
    computing = Runtime(None).computing  # type: ignore[arg-type]
    return PinnedBasis(bases, basis_id, FixedColumns(d), k, True, computing)


def basis_in(bases: PinnedBases, basis_id: str | None = None) -> ScoringBasis:
    found = reading(bases, basis_id).read()
    assert found is not None
    return found


def test_what_was_pinned_comes_back_under_its_id() -> None:
    bases, merged = bases_on(MemoryStore("pinned")), merged_of(0, 1, partitions=2, next_offset=17)
    basis_id = bases.pin(merged, 5_000.0)
    found = bases.load(basis_id)
    assert (found.id, found.at_s, id_of(found.merged)) == (id_of(merged), 5_000.0, basis_id)
    assert np.array_equal(found.merged.matrix, merged.matrix)
    assert found.merged.parts == merged.parts
    basis = basis_in(bases)
    assert (basis.id, basis.counted_to, basis.pinned) == (basis_id, {0: 17, 1: 17}, True)
    x = rows_of(9).toarray()
    assert np.allclose(basis.scorer.score(x).residual, merged.scorer(2).score(x).residual)


def test_pinning_again_changes_nothing() -> None:
    bases, merged = bases_on(MemoryStore("pinned")), merged_of(0)
    assert bases.pin(merged, 1.0) == bases.pin(merged, 2.0)
    assert [pinned.at_s for pinned in bases.all()] == [1.0]


def test_the_one_pinned_last_is_taken_unless_another_is_named() -> None:
    bases = bases_on(MemoryStore("pinned"))
    ids = [bases.pin(merged_of(seed, number=seed), 100.0 - seed) for seed in (1, 2, 3)]
    assert [pinned.id for pinned in bases.all()] == ids
    assert basis_in(bases).id == ids[0]
    assert basis_in(bases, ids[2]).id == ids[2]


def test_it_is_read_once() -> None:
    bases = bases_on(MemoryStore("pinned"))
    bases.pin(merged_of(0), 1.0)
    once = reading(bases)
    assert once.read() is not None
    bases.pin(merged_of(1, number=2), 2.0)
    assert once.read() is None


def test_one_that_does_not_exist_is_waited_for() -> None:
    bases = bases_on(MemoryStore("pinned"))
    with pytest.raises(NoSnapshotError, match="sfd-stream basis pin"):
        reading(bases).read()
    with pytest.raises(NoSnapshotError, match="no basis abc is pinned"):
        reading(bases, "abc").read()


def test_groups_and_topics_have_bases_of_their_own() -> None:
    store = MemoryStore("pinned")
    bases_on(store).pin(merged_of(0), 1.0)
    assert bases_on(store, topic="others").ids() == []
    assert bases_on(store, group="others").ids() == []


def test_a_basis_of_other_columns_is_refused_and_a_damaged_one_too() -> None:
    store = MemoryStore("pinned")
    bases = bases_on(store)
    basis_id = bases.pin(merged_of(0), 1.0)
    with pytest.raises(RefusedStateError, match=f"of the pinned basis {basis_id} have other columns"):
        reading(bases, d=13).read()
    (key,) = store.list("bases")
    store.put(key, store.get(key)[:-1])
    with pytest.raises(FormatError):
        bases.load(basis_id)


def test_a_basis_with_too_few_directions_is_refused_because_it_will_not_change() -> None:
    bases = bases_on(MemoryStore("pinned"))
    basis_id = bases.pin(merged_of(0), 1.0)
    with pytest.raises(RefusedStateError, match=f"the pinned basis {basis_id} can't score rows: k = 50"):
        reading(bases, k=50).read()


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """The JSON behind the log lines of the scorer."""
    out = capsys.readouterr().out
    return json.loads(out[out.index("{\n") :])


def test_scores_by_a_pinned_basis_do_not_follow_the_snapshots(
    kafka: Broker, make_run: MakeRun, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    topic, rows = kafka.create_topic(), Rows.random(600)
    messages = rows.messages(0)
    scoring = Scoring.of(make_run(kafka, topic), basis="pinned")
    kafka.produce(topic, messages[:10])
    scoring.sketch()
    scorer = scoring.begin()
    wait_until(lambda: scorer.consumer.watch.doing == "waiting for a basis to score rows by", "the status")
    path = tmp_path / "settings.yaml"
    path.write_text(yaml.safe_dump(scoring.settings().model_dump(exclude_unset=True)))
    config = ["--config", str(path), "--json"]
    capsys.readouterr()
    assert main(["basis", "pin", *config]) == 0
    basis_id = printed(capsys)["id"]
    kafka.produce(topic, messages[10:20])
    scoring.until_scored({0: 20})
    scoring.sketch()
    kafka.produce(topic, messages[20:])
    scoring.until_scored({0: 30})
    scorer.stop()
    scores = scoring.all_scores(600)
    assert {score["basis"]["id"] for score in scores} == {basis_id}
    assert all(score["basis"]["counted"] == (score["offset"] < 10) for score in scores)
    capsys.readouterr()
    assert main(["basis", "list", *config]) == 0
    assert [found["id"] for found in printed(capsys)["bases"]] == [basis_id]
    assert main(["basis", "show", basis_id, *config]) == 0
    assert printed(capsys)["rows"] == 200


def test_rows_that_change_after_the_reference_was_pinned_are_significant_also_after_a_restart(
    kafka: Broker, make_run: MakeRun
) -> None:
    topic, messages = kafka.create_topic(), Rows.random(1_200).messages(0)
    scoring = Scoring.of(make_run(kafka, topic))
    kafka.produce(topic, messages[:20])
    scoring.sketch()
    with reader_of(scoring.settings(), nullcontext) as reader:
        reference = pinned_bases_of(scoring.settings()).pin(reader.merged(), 1.0)
    drift = {"reference": reference, "block_rows": 10}
    kafka.produce(topic, messages[20:])
    scoring.inside(drift=drift)
    scorer = scoring.begin(drift=drift)

    def status() -> Any:
        return scorer.consumer.watch.status.drift.get(0)

    wait_until(lambda: status() is not None and status().shares.blocks == 80, "the blocks of the scorer before")
    assert status().roots.blocks == 80
    assert (status().change, status().turn) == (None, None)
    kafka.produce(topic, Rows.random(200, seed=1).messages(0))
    wait_until(lambda: status().found.significant, "a change")
    scorer.stop()
    assert status().found.change > 0
