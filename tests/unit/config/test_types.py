"""Sizes and thresholds as people write them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.config.types import Thresholds, parse_size, parse_thresholds, size_text


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("17", 17), ("1_000", 1000), ("512MiB", 512 * 2**20), ("512Mi", 512 * 2**20), ("10MB", 10**7),
     ("1.5 GiB", 3 * 2**29), (" 2k ", 2000), ("1TB", 10**12), ("3b", 3)],
)  # fmt: skip
def test_sizes_have_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5", "12 parsecs", "1e6", "0x10", "1 2", "1.0000001KB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bytes"):
        parse_size(text)


@given(st.integers(min_value=0, max_value=2**62))
def test_a_shown_size_reads_back(size: int) -> None:
    assert parse_size(size_text(size)) == size


@pytest.mark.parametrize("threshold", ["{p_max: 1e-4}", {"p_max": "1e-4"}, {"p_max": 1e-4}, "{p_max: 0.0001}"])
def test_a_threshold_may_be_written_with_an_exponent(threshold: Any) -> None:
    """YAML 1.1, as PyYAML reads it, takes 1e-4 for a text."""
    assert parse_thresholds(threshold) == Thresholds(p_max=1e-4)


@pytest.mark.parametrize("number", [0, -1, True, None, "many", "nan", "inf", float("nan"), float("inf"), [1]])
def test_a_threshold_is_a_number_above_0(number: Any) -> None:
    with pytest.raises(ValueError, match="t2_min must be a number above 0"):
        parse_thresholds({"t2_min": number})
