"""Sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.config.types import parse_size, size_text


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
