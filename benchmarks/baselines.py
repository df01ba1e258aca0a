"""What the sketch is measured against: Frequent Directions written plainly, and what else a user could install.

Each takes the whole matrix and gives a matrix B of at most ell rows, whose B'B stands for A'A.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

Float = npt.NDArray[np.float64]


def fd_by_svd(A: Any, ell: int) -> Float:
    """Frequent Directions (Liberty 2013) with a 2*ell x d buffer and numpy's SVD: the yardstick of all ratios."""
    return _frequent_directions(A, ell, _shrink_by_svd)


def fd_by_gram(A: Any, ell: int) -> Float:
    """The same with the eigenvectors of the 2*ell x 2*ell Gram matrix in place of the SVD: faster, half the digits."""
    return _frequent_directions(A, ell, _shrink_by_gram)


def _frequent_directions(A: Any, ell: int, shrink: Callable[[Float, int], Float]) -> Float:
    n, d = A.shape
    buffer = np.zeros((2 * ell, d))
    filled = start = 0
    while start < n:
        stop = min(start + 2 * ell - filled, n)
        buffer[filled : filled + stop - start] = A[start:stop].toarray()
        filled += stop - start
        start = stop
        if filled == 2 * ell or (start == n and filled > ell):
            buffer[:ell] = shrink(buffer[:filled], ell)
            filled = ell - 1  # the last row is zero now: the next one may take its place
    return buffer[:filled]


def _shrink_by_svd(rows: Float, ell: int) -> Float:
    _, singular, VT = np.linalg.svd(rows, full_matrices=False)
    shrunk = np.sqrt(np.maximum(singular[:ell] ** 2 - singular[ell - 1] ** 2, 0.0))
    return np.asarray(shrunk[:, None] * VT[:ell])


def _shrink_by_gram(rows: Float, ell: int) -> Float:
    squares, U = np.linalg.eigh(rows @ rows.T)
    squares, U = squares[::-1][:ell], U[:, ::-1][:, :ell]
    factors = np.sqrt(np.maximum(squares - squares[-1], 0.0) / np.maximum(squares, np.finfo(float).tiny))
    return np.asarray((U * factors).T @ rows)


def truncated_svd(A: Any, ell: int) -> Float:
    """scikit-learn's randomized SVD of the whole matrix: no stream, no memory bound."""
    from sklearn.decomposition import TruncatedSVD

    model = TruncatedSVD(n_components=min(ell, min(A.shape) - 1), random_state=0).fit(A)
    return np.asarray(model.singular_values_[:, None] * model.components_)


def incremental_pca(A: Any, ell: int) -> Float:
    """scikit-learn's streaming PCA, in batches of 10 ell rows. It centres the rows, which the others do not."""
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA(n_components=ell, batch_size=10 * ell).fit(A[: A.shape[0] // ell * ell])
    return np.asarray(model.singular_values_[:, None] * model.components_)


def lsi_one_pass(A: Any, ell: int) -> Float:
    """One pass of gensim's LSI, with its own defaults."""
    from gensim.matutils import Sparse2Corpus
    from gensim.models import LsiModel

    corpus = Sparse2Corpus(A.tocsc(), documents_columns=False)
    words = {column: str(column) for column in range(A.shape[1])}
    model = LsiModel(corpus, id2word=words, num_topics=ell, onepass=True, dtype=np.float64, random_seed=0)
    return np.ascontiguousarray((model.projection.u * model.projection.s).T)


def has_gensim() -> bool:
    return find_spec("gensim") is not None
