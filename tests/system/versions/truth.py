"""What a sketch must say of the rows that were produced, computed from the rows by dense algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfd_stream import Sketch


def assert_counted(sketch: Sketch, A: Any) -> None:
    """Rows, non-zeros, squared norm and column sums, to the last bit: the values have few bits, so sums are exact."""
    assert (sketch.rows, sketch.nnz) == (A.shape[0], A.nnz)
    assert sketch.squared_frobenius == float(np.sum(A.data**2))
    assert sketch.column_sums is not None
    assert np.array_equal(sketch.column_sums, np.asarray(A.sum(axis=0)).ravel())


def assert_certified(sketch: Sketch, A: Any) -> None:
    """0 <= A'A - B'B <= delta I, up to the rounding of the algebra here."""
    gram = (A.T @ A).toarray()
    lost = np.linalg.eigvalsh(gram - sketch.matrix.T @ sketch.matrix)
    rounding = 1e-12 * float(np.trace(gram))
    assert lost[0] >= -rounding
    assert lost[-1] <= sketch.delta + rounding
    assert sketch.delta < float(np.trace(gram)), "a bound that says something"
