"""The checks of a campaign can fail: each is given what it must refuse, without any real part."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sfd_stream import FixedColumns, RowDecodeError, SparseFrequentDirections
from sfd_stream.wire.rows.decode import decode, decode_one
from tests.torture import checks, truth
from tests.torture.load import BAD, GOOD, KIND, ROWS, TOMBSTONE, Acknowledged, D, rows_message, spoiled
from tests.torture.programs import Usage
from tests.torture.truth import Expected, Message


def message(offset: int, value: bytes | None, kind: bytes = GOOD) -> Message:
    return Message(0, offset, None, value, {KIND: kind})


def expected(*messages: Message) -> Expected:
    found = Expected()
    for one in messages:
        found.add(one)
    return found


def counted(rows: int) -> tuple[Expected, SimpleNamespace]:
    """What is expected of some messages, and a sketch that agrees with it."""
    rng = np.random.default_rng(1)
    wanted = expected(*(message(offset, rows_message(rng)) for offset in range(rows)))
    sketch = SimpleNamespace(
        rows=wanted.rows, nnz=wanted.nnz, squared_frobenius=wanted.squared_norm, column_sums=wanted.column_sums
    )
    return wanted, sketch


def test_the_independent_reader_and_the_package_agree_on_rows() -> None:
    value = rows_message(np.random.default_rng(2))
    block, wanted = decode_one(value, FixedColumns(D)).block, expected(message(0, value))
    assert (block.rows, block.nnz) == (wanted.rows, wanted.nnz)


def test_a_spoiled_message_is_never_rows() -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        with pytest.raises(RowDecodeError):
            decode_one(spoiled(rng, rows_message(rng)), FixedColumns(D))


@pytest.mark.parametrize("field", ["rows", "nnz", "squared_frobenius", "column_sums"])
def test_a_counter_that_is_off_is_found(field: str) -> None:
    wanted, sketch = counted(3)
    assert truth.check_counters(0, sketch, wanted, "checkpoint") == []
    setattr(sketch, field, getattr(sketch, field) + 1)
    assert len(truth.check_counters(0, sketch, wanted, "checkpoint")) == 1


def letter(offset: int, value: bytes) -> Message:
    return Message(0, 0, None, value, {"sfd-partition": b"0", "sfd-offset": str(offset).encode()})


def test_dead_letters_may_be_repeated_but_not_missing_changed_or_of_good_messages() -> None:
    wanted = {0: expected(message(0, b"x", BAD), message(1, b"y", BAD))}
    right = [letter(0, b"x"), letter(1, b"y")]
    assert truth.check_dead_letters([*right, letter(1, b"y")], wanted) == []
    for wrong in (right[:1], [*right, letter(2, b"z")], [right[0], letter(1, b"changed")]):
        assert len(truth.check_dead_letters(wrong, wanted)) == 1


def scored() -> tuple[dict[int, Expected], list[Message]]:
    """Two good messages, a bad message and a tombstone, with the scores that the package gives to the rows."""
    rng = np.random.default_rng(4)
    good = [rows_message(rng) for _ in range(2)]
    rows = decode(good, FixedColumns(D)).block.csr()
    scores = SparseFrequentDirections(ell=8).fit(rows).sketch().scorer(2, centred=False).score(rows)
    values = zip(scores.coordinates.tolist(), scores.residual.tolist(), strict=True)
    wanted = expected(message(0, good[0]), message(1, b"x", BAD), message(2, None, TOMBSTONE), message(3, good[1]))
    places = [(offset, row) for offset in (0, 3) for row in range(ROWS)]
    return {0: wanted}, [
        score(offset, row, coordinates=coordinates, residual=residual)
        for (offset, row), (coordinates, residual) in zip(places, values, strict=True)
    ]


def score(offset: int, row: int, **changes: Any) -> Message:
    fields = {"topic": "rows", "partition": 0, "offset": offset, "row": row, "earlier_rows": 0}
    return Message(0, 0, None, json.dumps({**fields, "basis": {"counted": False}, **changes}).encode(), {})


def changed(one: Message, **changes: Any) -> Message:
    return score(**{**json.loads(one.value or b""), **changes})


def wrong_scores(wanted: dict[int, Expected], scores: list[Message], *, once: bool = False) -> list[str]:
    return truth.check_scores(truth.read_scores(scores, "rows", wanted), wanted, once=once)


def test_the_independent_reader_and_the_package_agree_on_scores() -> None:
    wanted, scores = scored()
    found = truth.read_scores(scores, "rows", wanted)
    assert (found.scores, found.repeated, found.foreign) == (2 * ROWS, 0, [])
    assert truth.check_scores(found, wanted, once=True) == []


def test_a_row_without_a_score_is_found() -> None:
    wanted, scores = scored()
    for missing in (scores[1:], scores[:-1], scores[: ROWS // 2] + scores[ROWS:]):
        assert len(wrong_scores(wanted, missing)) == 1
    assert len(wrong_scores(wanted, [])) == 2


def test_a_score_may_be_repeated_unless_each_row_must_have_exactly_one() -> None:
    wanted, scores = scored()
    twice = [*scores, scores[7]]
    assert truth.read_scores(twice, "rows", wanted).repeated == 1
    assert wrong_scores(wanted, twice) == []
    assert len(wrong_scores(wanted, twice, once=True)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"offset": 1}, id="of a bad message"),
        pytest.param({"offset": 2}, id="of a tombstone"),
        pytest.param({"offset": 4}, id="beyond the end"),
        pytest.param({"row": ROWS}, id="beyond the message"),
        pytest.param({"row": -ROWS}, id="before the message"),
        pytest.param({"row": 1}, id="of another row"),
        pytest.param({"partition": 1}, id="of another partition"),
        pytest.param({"topic": "others"}, id="of another topic"),
        pytest.param({"residual": None}, id="without a number"),
    ],
)
def test_a_score_of_no_row_or_of_another_row_is_found(changes: dict[str, Any]) -> None:
    wanted, scores = scored()
    assert len(wrong_scores(wanted, [*scores, changed(scores[0], **changes)])) == 1


@pytest.mark.parametrize("value", [b"", b"no json", b"[]", b"{}"])
def test_a_message_that_is_no_score_is_found(value: bytes) -> None:
    wanted, scores = scored()
    assert len(wrong_scores(wanted, [*scores, Message(0, 0, None, value, {})])) == 1


def wrong_earlier_rows(earlier: dict[int, int], counted: range = range(0)) -> list[str]:
    """Of rows that were scored in several batches. `earlier`: by the first row of each."""
    wanted, scores = scored()
    first = [max(begin for begin in earlier if begin <= at) for at in range(len(scores))]
    changes = [{"earlier_rows": earlier[first[at]], "basis": {"counted": at in counted}} for at in range(len(scores))]
    given = [changed(one, **change) for one, change in zip(scores, changes, strict=True)]
    return truth.check_earlier_rows(truth.read_scores(given, "rows", wanted), wanted)


def test_rows_that_p_values_count_twice_or_not_at_all_are_found() -> None:
    for right in ({0: 0}, {0: 0, ROWS: ROWS}, {0: 0, 5: 5, ROWS: ROWS}):
        assert wrong_earlier_rows(right) == []
    for wrong in ({0: 1}, {0: 0, ROWS: ROWS + 1}, {0: 0, 5: 5, ROWS: ROWS - 5}, {0: 0, 5: 5, ROWS: 0}):
        assert len(wrong_earlier_rows(wrong)) == 1


def test_rows_that_the_basis_had_counted_are_no_earlier_rows() -> None:
    assert wrong_earlier_rows({0: 0, ROWS: ROWS - 8}, counted=range(3, 11)) == []
    assert len(wrong_earlier_rows({0: 0, ROWS: ROWS}, counted=range(3, 11))) == 1


def test_a_partition_that_has_not_arrived_at_its_end_is_found() -> None:
    assert checks.behind("scored", {0: 5, 1: 7}, {0: 5, 1: 7}) == []
    assert len(checks.behind("scored", {0: 5, 1: 6}, {0: 5, 1: 7, 2: 1})) == 2


def snapshot(epoch: int, number: int) -> Message:
    return Message(0, 0, b"key", b"", {"sfd-epoch": str(epoch).encode(), "sfd-number": str(number).encode()})


def test_a_state_that_is_published_twice_or_late_is_found() -> None:
    assert truth.check_published_once([snapshot(1, 1), snapshot(1, 2), snapshot(2, 3)]) == []
    assert len(truth.check_published_once([snapshot(1, 1), snapshot(1, 1)])) == 1
    assert len(truth.check_published_once([snapshot(2, 3), snapshot(1, 4)])) == 1


def seen(tmp_path: Path, *lines: dict[str, Any]) -> Path:
    path = tmp_path / "seen.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_reader_that_goes_back_or_loses_a_part_is_found(tmp_path: Path) -> None:
    first, second = {"rows": 10, "parts": {"a": [1, 2, 5, 10]}}, {"rows": 12, "parts": {"a": [1, 3, 6, 12]}}
    assert truth.check_never_back(seen(tmp_path, first, second)) == []
    assert len(truth.check_never_back(seen(tmp_path, second, first))) == 2
    assert truth.check_never_back(seen(tmp_path, first, {"rows": 12, "parts": {}})) != []
    assert truth.check_never_back(seen(tmp_path)) != [], "a reader that read nothing proves nothing"


def test_a_message_that_the_broker_lost_is_found() -> None:
    wanted = {0: expected(message(0, b"x", BAD))}
    checksum = wanted[0].checksums[0]
    assert truth.check_acknowledged([Acknowledged(0, 0, checksum)], wanted) == []
    lost = [Acknowledged(0, 1, checksum), Acknowledged(0, 0, checksum + 1), Acknowledged(3, 0, checksum)]
    assert len(truth.check_acknowledged(lost, wanted)) == 3


def manifest(number: int, *referred: str, published_slot: int | None = None) -> Any:
    published = None
    if published_slot is not None:
        published = SimpleNamespace(blob=SimpleNamespace(key=blob(published_slot, "snapshot")))
    references = [SimpleNamespace(key=key) for key in referred]
    return SimpleNamespace(number=number, references=references, published=published)


def blob(slot: int, kind: str) -> str:
    return f"g/t/0/blobs/{slot:020d}-1-abc-{kind}"


def test_only_blobs_of_crashed_writes_and_snapshots_since_the_last_acknowledged_one_may_be_unreferenced() -> None:
    manifests = [manifest(4, blob(4, "sketch")), manifest(5, blob(4, "sketch"), published_slot=3)]
    allowed = {
        blob(6, "sketch"): True,
        blob(3, "snapshot"): True,
        blob(5, "buffer-0"): False,
        blob(2, "snapshot"): False,
    }
    assert checks.unreferenced(manifests, [blob(4, "sketch"), *allowed]) == allowed


def usage(at_s: float, rss_bytes: int = 2**20, threads: int = 10) -> Usage:
    return Usage("worker", 1, at_s, rss_bytes, threads, 20)


def test_memory_that_grows_over_an_hour_is_found() -> None:
    flat = [usage(at_s) for at_s in range(0, 3600, 10)]
    assert checks.usage_of(flat).violations == []
    growing = [usage(at_s, rss_bytes=at_s * 2**15) for at_s in range(0, 3600, 10)]
    assert len(checks.usage_of(growing).violations) == 1


def test_threads_may_be_many_for_a_moment_but_not_after_the_drain() -> None:
    many = checks.SETTLED["threads"] + 1
    assert checks.usage_of([usage(0, threads=many), usage(2)]).violations == []
    assert len(checks.usage_of([usage(0), usage(2, threads=many)]).violations) == 1
    assert checks.usage_of([usage(0, threads=checks.PEAK["threads"] + 1), usage(2)]).violations
