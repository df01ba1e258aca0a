"""A score state comes back bit for bit. A damaged one, or one whose parts do not fit together, is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfd_stream import FormatError, ScoreHistogram
from sfd_stream.sketch.scoring.block_angles import FOLDED, BlockAngles
from sfd_stream.sketch.scoring.block_means import BlockMeans
from sfd_stream.sketch.scoring.histogram import SCORES, Bins
from sfd_stream.wire.frames import decode_map, encode_map
from sfd_stream.wire.score_states import KIND, ScoreState, decode, encode, key_of, partition_of

HISTOGRAM = ScoreHistogram(7, 3, {name: Bins(np.array([-5, 64]), np.array([3, 4])) for name in SCORES})
SHARES = BlockMeans(10, (0.25,) * 40, (0.5, 0.75), 2, 3, 1.5)
ANGLES = BlockAngles(
    10, np.arange(FOLDED * 3 + 9).reshape(-1, 3) / 8, 7, BlockMeans(1, (0.25,) * 40, (0.125, 0.5, 0.0), 3)
)
BEFORE_ANGLES = ScoreState(
    1042, "newest, k=3, centred", HISTOGRAM, HISTOGRAM.merge(HISTOGRAM), "pinned 1f, k=3", SHARES
)
STATE = replace(BEFORE_ANGLES, angles=ANGLES)
GOLDEN = Path(__file__).parent / "golden"


def test_a_state_comes_back() -> None:
    assert decode(encode(STATE)) == STATE
    assert decode(encode(ScoreState(0, ""))) == ScoreState(0, "")


@pytest.mark.parametrize(("name", "state"), [("scorestate-1", BEFORE_ANGLES), ("scorestate-angles-1", STATE)])
def test_the_golden_states_are_read_and_written_bit_for_bit(name: str, state: ScoreState) -> None:
    """The first one is of the time before states had angles."""
    data = (GOLDEN / f"{name}.bin").read_bytes()
    assert decode(data) == state
    assert encode(state) == data


def test_every_damaged_state_is_refused() -> None:
    whole = encode(STATE)
    for place in range(0, len(whole), 7):
        with pytest.raises(FormatError):
            decode(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FormatError):
            decode(whole[:place])


@pytest.mark.parametrize("change", [{"next_offset": -1}, {"next_offset": "1"}, {"basis": 3}, {"older": None}])
def test_a_state_with_wrong_fields_is_refused(change: dict[str, Any]) -> None:
    fields = decode_map(encode(STATE), kind=KIND)
    with pytest.raises(FormatError, match="score state"):
        decode(encode_map(KIND, fields | change))


@pytest.mark.parametrize(
    "change",
    [{"looks": 1}, {"rows": 10}, {"block_rows": 0}, {"baseline": [0.25]}, {"recent": ["x", 1.0]}, {"total": None}],
)
def test_a_state_whose_blocks_do_not_fit_together_is_refused(change: dict[str, Any]) -> None:
    fields = decode_map(encode(STATE), kind=KIND)
    for drift in ({**fields["drift"], **change}, 7, {}):
        with pytest.raises(FormatError, match="score state has drift"):
            decode(encode_map(KIND, fields | {"drift": drift}))


@pytest.mark.parametrize(
    "change",
    [
        {"looks": 1},
        {"rows": 10},
        {"block_rows": 11},
        {"baseline": [0.25]},
        {"recent": ["x", 1.0, 1.0]},
        {"k": 4},
        {"k": 0, "products": b""},
        {"k": True},
        {"products": None},
        {"products": b"\xff" * 8 * (FOLDED + 3) * 3},
    ],
)
def test_a_state_whose_angles_do_not_fit_together_is_refused(change: dict[str, Any]) -> None:
    fields = decode_map(encode(STATE), kind=KIND)
    for angles in ({**fields["angles"], **change}, 7, {}):
        with pytest.raises(FormatError, match="score state has angles"):
            decode(encode_map(KIND, fields | {"angles": angles}))
    with pytest.raises(FormatError, match="score state has angles"):
        decode(encode_map(KIND, {name: value for name, value in fields.items() if name != "drift"}))


def test_the_key_of_a_state_names_group_topic_and_partition() -> None:
    assert key_of("g", "rows", 3) == b"g/rows/3"
    assert partition_of(b"g/rows/3", "g", "rows") == 3
    for other in (None, b"g/rows/x", b"h/rows/3", b"g/row/3", b"3", b"\xff"):
        assert partition_of(other, "g", "rows") is None
