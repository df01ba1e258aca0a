"""The paper's two measures of a sketch, against the matrix it was made of.

Exact where d is small; by Lanczos on the implicit operator where it is not, so that d = 10^6 needs no d x d matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, eigsh, svds

from sfd_stream.sketch.rows import whole
from sfd_stream.sketch.sketch import Sketch, at_most, check_width, sketch_of

EXACT_D_MAX = 2000


def covariance_error(A: Any, sketch: Sketch) -> float:
    """cov-err = ||A'A - B'B||_2 / ||A||_F^2.

    >>> from sfd_stream import SparseFrequentDirections, covariance_error, paper_synthetic, projection_error
    >>> A = paper_synthetic(500, 50, 5, seed=0)
    >>> sketch = SparseFrequentDirections(ell=20).fit(A).sketch()
    >>> covariance_error(A, sketch) * sketch.squared_frobenius <= sketch.delta
    True
    """
    sketch = sketch_of(sketch)
    A = _rows(A, sketch)
    B = np.asarray(sketch.matrix, np.float64)
    total = float(A.data @ A.data)
    if total == 0:
        return float(np.linalg.norm(B, 2) ** 2) if B.size else 0.0
    if A.shape[1] <= EXACT_D_MAX:
        difference = (A.T @ A).toarray() - B.T @ B
        return float(np.max(np.abs(np.linalg.eigvalsh(difference)))) / total

    def times(x: Any) -> Any:
        return A.T @ (A @ x) - B.T @ (B @ x)

    operator = LinearOperator((A.shape[1], A.shape[1]), matvec=times, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(A.shape[1])
    top = eigsh(operator, k=1, which="LM", v0=start, tol=1e-6, return_eigenvectors=False)
    return float(np.abs(top[0])) / total


def projection_error(A: Any, sketch: Sketch, k: int) -> float:
    """proj-err = ||A - A V_k V_k'||_F^2 / ||A - A_k||_F^2 for the k strongest directions V_k of B; at least 1.

    For a sketch with fewer than k directions, all of them are used.

    >>> from sfd_stream import SparseFrequentDirections, covariance_error, paper_synthetic, projection_error
    >>> A = paper_synthetic(500, 50, 5, seed=0)
    >>> sketch = SparseFrequentDirections(ell=20).fit(A).sketch()
    >>> 1 <= projection_error(A, sketch, k=5) < 1.5
    True
    """
    sketch, k = sketch_of(sketch), whole("k", k, 1)
    A = _rows(A, sketch)
    total = float(A.data @ A.data)
    projected = A @ sketch.components(at_most(k, sketch)).T
    lost = max(total - float(np.sum(projected * projected)), 0.0)
    best = max(total - float(np.sum(_top_squares(A, k))), 0.0)
    if best <= 1e-13 * total:
        return 1.0 if lost <= 1e-10 * total else float("inf")
    return lost / best


def _rows(A: Any, sketch: Sketch) -> Any:
    rows = sp.csr_array(A).astype(np.float64)
    check_width(rows, sketch.d)
    return rows


def _top_squares(A: Any, k: int) -> Any:
    """The k largest squared singular values of A."""
    small = min(A.shape)
    if small <= EXACT_D_MAX or k >= small - 1:
        G = (A.T @ A if A.shape[1] <= A.shape[0] else A @ A.T).toarray()
        return np.linalg.eigvalsh(G)[::-1][:k]
    return svds(A, k=k, v0=np.random.default_rng(0).standard_normal(small), return_singular_vectors=False) ** 2
