"""What the sketch is measured against: Frequent Directions written plainly, and what else a user could install.

Each takes the whole matrix and gives a matrix B of at most ell rows, whose B'B stands for A'A.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import svds

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


def lanczos(A: Any, ell: int) -> Float:
    """ARPACK by scipy's svds: exact to machine precision, many passes over the matrix."""
    _, singular, VT = svds(A, k=min(ell, min(A.shape) - 1), v0=np.random.default_rng(0).standard_normal(min(A.shape)))
    return np.asarray(singular[::-1, None] * VT[::-1])


def without_power_steps(A: Any, ell: int) -> Float:
    """Randomized SVD (Halko, Martinsson, Tropp 2011) in two passes: no power step."""
    from sklearn.utils.extmath import randomized_svd

    _, singular, VT = randomized_svd(A, n_components=ell, n_iter=0, random_state=0)
    return np.asarray(singular[:, None] * VT)


def by_fbpca(A: Any, ell: int) -> Float:
    """Facebook's randomized SVD, with its own defaults: two power steps, so six passes over the matrix."""
    from fbpca import pca

    state = np.random.get_state()  # noqa: NPY002 - fbpca draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    try:
        _, singular, VT = pca(A, k=ell, raw=True)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return np.asarray(singular[:, None] * VT)


def tropp_one_pass(A: Any, ell: int) -> Float:
    """Tropp, Yurtsever, Udell and Cevher 2017 for A'A: the Nystrom approximation from one pass, d x 2 ell."""
    d = A.shape[1]
    test = np.linalg.qr(np.random.default_rng(0).standard_normal((d, min(2 * ell, d))))[0]
    seen = np.zeros_like(test)
    for start in range(0, A.shape[0], 1_000):
        rows = A[start : start + 1_000]
        seen += rows.T @ (rows @ test)
    shift = np.sqrt(d) * np.finfo(float).eps * np.linalg.norm(seen, 2)
    seen += shift * test
    factor = np.linalg.cholesky(test.T @ seen).T
    U, singular, _ = np.linalg.svd(np.linalg.solve(factor.T, seen.T).T, full_matrices=False)
    kept = np.sqrt(np.maximum(singular[:ell] ** 2 - shift, 0.0))
    return np.asarray(kept[:, None] * U[:, :ell].T)


def is_installed(package: str) -> bool:
    return find_spec(package) is not None
