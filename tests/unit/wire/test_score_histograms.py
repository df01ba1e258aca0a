"""A histogram of scores as bytes: what is written comes back, in every version; what is damaged is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfd_stream import ChecksumError, FormatError, NewerFormatError, ScoreHistogram
from sfd_stream.sketch.scoring.histogram import SCORES, Bins
from sfd_stream.wire import frames
from sfd_stream.wire.frames import decode_arrays, encode_arrays

GOLDEN = Path(__file__).parent / "golden" / "scores-1.bin"
HISTOGRAM = ScoreHistogram(
    7,
    3,
    {
        "residual": Bins(np.array([-35200, 0, 64]), np.array([1, 2, 4])),
        "odds": Bins(np.array([-12, 35200]), np.array([6, 1])),
        "t2": Bins(np.array([40]), np.array([7])),
    },
)


def changed(**numbers: Any) -> bytes:
    """The golden bytes with other numbers, or with other arrays, and a right checksum."""
    found = decode_arrays(HISTOGRAM.to_bytes())
    arrays = {name: numbers.pop(name, array) for name, array in found.arrays.items()}
    return encode_arrays(numbers.pop("kind", "scores"), found.numbers | numbers, arrays)


@pytest.mark.parametrize("histogram", [HISTOGRAM, ScoreHistogram()], ids=["some", "empty"])
def test_what_is_written_comes_back(histogram: ScoreHistogram) -> None:
    found = ScoreHistogram.from_bytes(histogram.to_bytes())
    assert found == histogram
    assert found.to_bytes() == histogram.to_bytes()


def test_the_golden_file_is_read_and_written_bit_for_bit() -> None:
    assert ScoreHistogram.from_bytes(GOLDEN.read_bytes()) == HISTOGRAM
    assert HISTOGRAM.to_bytes() == GOLDEN.read_bytes()


def test_every_flipped_byte_and_every_cut_is_refused() -> None:
    whole = HISTOGRAM.to_bytes()
    for place in range(len(whole)):
        with pytest.raises(FormatError):
            ScoreHistogram.from_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FormatError):
            ScoreHistogram.from_bytes(whole[:place])
    with pytest.raises(ChecksumError):
        ScoreHistogram.from_bytes(whole + b"\0")


def test_a_newer_version_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "VERSION", 2)
    newer = HISTOGRAM.to_bytes()
    monkeypatch.undo()
    with pytest.raises(NewerFormatError):
        ScoreHistogram.from_bytes(newer)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "sketch"},
        {"bins_per_octave": 16},
        {"rows": -7},
        {"rows": 7.0},
        {"rows": 8},
        {"k": 0},
        {"k": "3"},
        {"t2_bins": np.array([40], "<i8")},
        {"t2_bins": np.array([40, 41], "<i4")},
        {"t2_bins": np.array([[40]], "<i4")},
        {"t2_bins": np.array([2**30], "<i4")},
        {"t2_counts": np.array([7.0])},
        {"odds_bins": np.array([5, 5], "<i4")},
        {"odds_counts": np.array([8, -1], "<i8")},
        {"residual_counts": np.array([2**62, 2**62, 7], "<i8")},
    ],
    ids=str,
)
def test_bytes_that_do_not_add_up_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        ScoreHistogram.from_bytes(changed(**wrong))


def test_a_score_that_is_lacking_is_refused() -> None:
    found = decode_arrays(HISTOGRAM.to_bytes())
    for name in SCORES:
        for part in (f"{name}_bins", f"{name}_counts"):
            rest = {key: array for key, array in found.arrays.items() if key != part}
            with pytest.raises(FormatError, match=f"lacks the bins or the counts of {name}"):
                ScoreHistogram.from_bytes(encode_arrays("scores", found.numbers, rest))
