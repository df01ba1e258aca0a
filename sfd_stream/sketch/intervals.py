"""Results with certified ranges: one, or one for each row."""

from __future__ import annotations

from typing import NamedTuple

from sfd_stream.sketch.rows import Float


class Interval(NamedTuple):
    """A certified range around an estimate: the true value is not below `lower` and not above `upper`.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> sketch = SparseFrequentDirections(ell=20).fit(paper_synthetic(500, 50, 5, seed=0)).sketch()
    >>> lower, estimate, upper = sketch.explained(k=10)
    >>> 0 < lower <= estimate <= upper <= 1
    True
    """

    lower: float
    estimate: float
    upper: float


class Intervals(NamedTuple):
    """Certified ranges, one for each row: the true value is not below `lower` and not above `upper`.

    >>> from sfd_stream import SparseFrequentDirections, paper_synthetic
    >>> X = paper_synthetic(500, 50, 5, seed=0)
    >>> t2 = SparseFrequentDirections(ell=20).fit(X).sketch().scorer().score(X).t2
    >>> bool(((t2.lower <= t2.estimate) & (t2.estimate <= t2.upper)).all())
    True
    """

    lower: Float
    estimate: Float
    upper: Float


def interval(lower: float, upper: float) -> Interval:
    return Interval(lower, (lower + upper) / 2, upper)
