"""A certified range has a lower end, an estimate in its middle and an upper end, in this order."""

from __future__ import annotations

import numpy as np

from sfd_stream import SparseFrequentDirections, paper_synthetic
from sfd_stream.sketch.intervals import Interval, Intervals, interval


def test_the_estimate_is_the_middle_of_the_range() -> None:
    assert interval(1.0, 4.0) == Interval(lower=1.0, estimate=2.5, upper=4.0)


def test_the_ranges_of_many_rows_have_the_parts_of_one_range() -> None:
    assert Intervals._fields == Interval._fields == ("lower", "estimate", "upper")


def test_the_range_of_a_share_contains_the_share_of_the_rows() -> None:
    X = paper_synthetic(300, 40, 8, seed=0).toarray()
    squares = np.linalg.svd(X, compute_uv=False) ** 2
    lower, _, upper = SparseFrequentDirections(ell=12).fit(X).sketch().explained(3)
    assert lower <= squares[:3].sum() / squares.sum() <= upper
    assert upper - lower < 0.2
