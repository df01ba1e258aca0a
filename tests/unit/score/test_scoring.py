"""Batches to scores: who is scored, what is written about it, and which rows later ones are compared with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest
import scipy.sparse as sp
from confluent_kafka import Message

from sfd_stream import FixedColumns, HashedColumns, SparseFrequentDirections
from sfd_stream.config.model import ScoreSettings
from sfd_stream.kafka.records import PartitionBatch
from sfd_stream.reader.merged import merge
from sfd_stream.score.bases import ScoringBasis, basis_of
from sfd_stream.score.scoring import BatchScorer, ScoredBatch
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.scoring.block_angles import BlockAngles
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row
from sfd_stream.wire.score_states import RECENT_ROWS, ScoreState
from tests.unit.reader.made import snapshot

D = 12
NOTHING = ScoreState(0, "")
rng = np.random.default_rng(0)


def ordinary(n: int) -> Any:
    return (rng.standard_normal((n, 2)) * [5, 3]) @ np.eye(2, D) + 0.1 * rng.standard_normal((n, D))


def basis_with(counted_to: int = 0) -> ScoringBasis:
    sketch = SparseFrequentDirections(ell=8).fit(ordinary(500)).sketch()
    return basis_of(merge([snapshot(sketch, next_offset=counted_to)], 1_000.0), "rows", 2, centred=True)


def message_of(rows: Any) -> bytes:
    """One message of one or more rows."""
    rows = np.atleast_2d(rows)
    if len(rows) == 1:
        return encode_row(np.arange(D), rows[0])
    return msgpack.packb({"rows": [{"i": list(range(D)), "v": row.tolist()} for row in rows]})


def batch_of(values: list[bytes | None], first: int = 0) -> PartitionBatch:
    return PartitionBatch(
        0,
        [
            Message(topic="rows", partition=0, offset=first + n, value=value, key=b"k%d" % n, timestamp=(1, 5_000 + n))
            for n, value in enumerate(values)
        ],
    )


def scored(
    values: list[bytes | None],
    basis: ScoringBasis,
    state: ScoreState = NOTHING,
    *,
    first: int = 0,
    columns: Any = None,
    reference: ScoringBasis | None = None,
    **settings: Any,
) -> ScoredBatch:
    batch = batch_of(values, first)
    decoded = decode([value for value in values if value is not None], columns or FixedColumns(D))
    scorer = BatchScorer("rows", ScoreSettings(topic="scores", **settings), block_rows=10)
    return scorer.score(batch, decoded, basis, state, 1_060.0, reference)


def maps_of(found: ScoredBatch) -> list[dict[str, Any]]:
    return [json.loads(message.value) for message in found.messages]


def test_each_row_has_the_key_timestamp_and_place_of_its_record() -> None:
    rows = ordinary(4)
    values = [message_of(rows[0]), None, b"no rows", message_of(rows[1]), message_of(rows[2])]
    found = scored(values, basis_with(), first=7)
    assert [(each["offset"], each["row"]) for each in maps_of(found)] == [(7, 0), (10, 0), (11, 0)]
    assert [(message.key, message.timestamp_ms) for message in found.messages] == [
        (b"k0", 5_000),
        (b"k3", 5_003),
        (b"k4", 5_004),
    ]
    assert (found.next_offset, found.rows, found.state.next_offset) == (12, 3, 12)


def test_the_scores_are_those_of_the_library() -> None:
    rows, basis = ordinary(30), basis_with()
    written = maps_of(scored([message_of(row) for row in rows], basis))
    scores = basis.scorer.score(rows)
    assert np.allclose([each["residual"] for each in written], scores.residual)
    assert np.allclose([each["residual_share"] for each in written], scores.residual_share)
    assert np.allclose([each["coordinates"] for each in written], scores.coordinates)
    for name in ("lower", "estimate", "upper"):
        assert np.allclose([each["t2"][name] for each in written], getattr(scores.t2, name))
        over = [each["residual_over_mean"][name] for each in written]
        assert np.allclose(over, getattr(scores.residual_over_mean, name))
    assert {key: written[0]["basis"][key] for key in ("id", "rows", "k", "centred", "age_s")} == {
        "id": basis.id,
        "rows": 500,
        "k": 2,
        "centred": True,
        "age_s": 60.0,
    }


def test_rows_that_the_basis_has_counted_say_so_and_are_not_compared_with() -> None:
    found = scored([message_of(row) for row in ordinary(10)], basis_with(counted_to=4))
    assert [each["basis"]["counted"] for each in maps_of(found)] == [True] * 4 + [False] * 6
    assert found.state.histogram.rows == 6


def test_rows_that_are_scored_again_are_counted_once() -> None:
    values, basis = [message_of(row) for row in ordinary(10)], basis_with()
    once = scored(values, basis)
    again = scored(values, basis, once.state)
    assert again.state == once.state
    more = scored(values, basis, once.state, first=5)
    assert (more.state.histogram.rows, more.state.next_offset) == (15, 15)


def test_a_p_value_is_by_earlier_rows_alone() -> None:
    basis = basis_with()
    first = scored([message_of(row) for row in ordinary(299)], basis)
    assert {each["p_value"] for each in maps_of(first)} == {1.0}
    strange = np.zeros(D)
    strange[7] = 50
    (written,) = maps_of(scored([message_of(strange)], basis, first.state, first=299))
    assert written["p_value"] == pytest.approx(3 / 300)
    assert written["earlier_rows"] == 299


def test_only_extreme_rows_are_written_with_their_causes() -> None:
    rows = ordinary(50)
    rows[20, 7] = 50
    found = scored([message_of(row) for row in rows], basis_with(), when={"residual_over_mean_min": 100})
    (written,) = maps_of(found)
    assert written["offset"] == 20
    assert written["reported"] == ["residual_over_mean"]
    assert written["residual_over_mean"]["lower"] >= 100
    assert written["causes"]["residual"][0]["column"] == 7
    assert written["causes"]["residual"][0]["actual"] == 50
    assert len(written["causes"]["residual"]) <= 5
    assert found.reported == {"residual_over_mean": 1}
    assert (found.rows, found.state.histogram.rows) == (50, 50), "all are scored and counted"


def test_an_extreme_row_names_every_score_that_it_is_reported_for() -> None:
    far = 100 * np.eye(1, D)[0]
    far[9] = 100
    when = {"residual_over_mean_min": 50, "t2_min": 50, "p_max": 1e-9}
    (written,) = maps_of(scored([message_of(far)], basis_with(), when=when))
    assert written["reported"] == ["residual_over_mean", "t2"]


def test_a_name_that_the_basis_has_never_seen_is_named_as_the_cause() -> None:
    columns = HashedColumns(256)
    model = SparseFrequentDirections(ell=8, features=columns)
    sketch = model.fit([{"rice": 1, "salt": 1}, {"rice": 2, "salt": 1}, {"tea": 1, "milk": 2}] * 20).sketch()
    made = snapshot(sketch, columns="hashed", hash_seed=0, names=sketch.features.names)
    basis = basis_of(merge([made], 1.0), "rows", 2, centred=True)
    value = msgpack.packb({"i": ["rice", "salt", "antifreeze"], "v": [1, 1, 9]})
    found = scored([value], basis, columns=columns, when={"residual_over_mean_min": 2})
    cause = maps_of(found)[0]["causes"]["residual"][0]
    assert (cause["name"], cause["actual"]) == ("antifreeze", 9.0)


def test_scores_of_another_basis_line_begin_a_new_histogram() -> None:
    basis = basis_with()
    state = scored([message_of(row) for row in ordinary(5)], basis).state
    assert state.of_basis(basis.line) is state
    assert state.of_basis("another").histogram.rows == 0
    assert state.of_basis("another").next_offset == 5


def test_old_rows_are_forgotten() -> None:
    basis = basis_with()
    scores = basis.scorer.score(ordinary(RECENT_ROWS // 2))
    state, sizes = NOTHING.of_basis(basis.line), []
    for n in range(1, 7):
        state = state.plus(scores, n)
        sizes.append(state.histogram.rows / RECENT_ROWS)
    assert sizes == [0.5, 1.0, 1.5, 1.0, 1.5, 1.0]


def test_messages_are_json_or_msgpack_with_the_same_content() -> None:
    row, basis = ordinary(1), basis_with()
    (as_json,) = scored([message_of(row)], basis).messages
    (packed,) = scored([message_of(row)], basis, format="msgpack").messages
    assert msgpack.unpackb(packed.value) == json.loads(as_json.value)


def test_block_means_are_of_the_shares_outside_the_reference_of_rows_that_it_has_not_counted() -> None:
    rows, basis, reference = ordinary(25), basis_with(), replace(basis_with(counted_to=3), pinned=True)
    found = scored([message_of(row) for row in rows], basis, reference=reference)
    shares = reference.scorer.score(rows[3:]).residual_share
    assert found.state.reference == reference.line
    assert found.state.shares is not None
    assert np.allclose(found.state.shares.baseline, [shares[:10].mean(), shares[10:20].mean()])
    assert found.state.shares.rows == 2
    again = scored([message_of(row) for row in rows], basis, found.state, reference=reference)
    assert again.state == found.state, "rows that are scored again are counted once"


def test_angles_are_of_the_rows_that_the_reference_has_not_counted() -> None:
    rows, reference = ordinary(25), replace(basis_with(counted_to=3), pinned=True)
    values, scores = [message_of(row) for row in rows], reference.scorer.score(rows[3:])
    wanted = reference.folded.rows(RowBlock.from_csr(sp.csr_array(rows[3:])), scores.coordinates, scores.residual)
    for basis in (basis_with(), reference):
        angles = scored(values, basis, reference=reference).state.angles
        assert angles is not None
        assert np.allclose(angles.roots.baseline, BlockAngles.of(10, 2).plus(wanted).roots.baseline)
        assert (len(angles.roots.baseline), angles.rows) == (2, 2)


def test_a_state_without_angles_keeps_its_means_and_begins_them() -> None:
    reference = replace(basis_with(), pinned=True)
    before = scored([message_of(row) for row in ordinary(25)], basis_with(), reference=reference).state
    found = scored(
        [message_of(row) for row in ordinary(10)],
        basis_with(),
        replace(before, angles=None),
        first=25,
        reference=reference,
    ).state
    assert (found.shares and found.shares.blocks, found.angles and found.angles.roots.blocks) == (3, 1)


def test_a_new_basis_keeps_the_blocks_and_a_new_reference_begins_them_again() -> None:
    values, reference = [message_of(row) for row in ordinary(10)], replace(basis_with(), pinned=True)
    before = scored(values, basis_with(), reference=reference).state
    kept = scored(values, replace(basis_with(), pinned=True, id="other"), before, first=10, reference=reference).state
    assert (kept.histogram.rows, kept.shares and kept.shares.blocks) == (10, 2)
    assert (kept.angles and kept.angles.roots.blocks) == 2
    begun = scored(values, basis_with(), before, first=10, reference=replace(reference, id="another")).state
    assert (begun.histogram.rows, begun.shares and begun.shares.blocks) == (20, 1)
    assert (begun.angles and begun.angles.roots.blocks) == 1


def test_a_basis_that_is_the_reference_scores_rows_once() -> None:
    rows, basis = ordinary(10), replace(basis_with(), pinned=True)
    unused = replace(basis.scorer, components=np.roll(basis.scorer.components, 1, axis=1))
    found = scored([message_of(row) for row in rows], basis, reference=replace(basis, scorer=unused))
    assert found.state.shares is not None
    assert found.state.shares.baseline == pytest.approx((basis.scorer.score(rows).residual_share.mean(),))
