"""Sets of rows with known anomalies: two that scikit-learn ships, and three made from a seed.

The basis is made of ordinary rows alone; other ordinary rows and the anomalies are scored against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from sfd_stream import Sketch
from sfd_stream.sketch.builder import Parameters, SketchBuilder
from sfd_stream.sketch.rows import Float, RowBlock

BUFFER_ROWS = 100


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows to learn from, and rows to score of which some are anomalies."""

    name: str
    k: int
    ell: int
    learned: Any
    scored: Any
    anomalous: Any

    def sketch(self, ell: int | None = None) -> Sketch:
        """Of the rows to learn from, with a buffer of about 100 rows so that there are shrinks."""
        rows = RowBlock.from_csr(sp.csr_array(self.learned))
        entries = BUFFER_ROWS * (rows.nnz + rows.rows) // rows.rows
        builder = SketchBuilder(Parameters(rows.d, ell or self.ell, buffer_entries_max=entries))
        builder.absorb(rows)
        return builder.sketch()

    def exact_residual(self) -> Float:
        """The residual by exact PCA of the rows to learn from."""
        dense = _dense(self.learned)
        mean = dense.mean(axis=0)
        V = np.linalg.svd(dense - mean, full_matrices=False)[2][: self.k]
        Z = _dense(self.scored) - mean
        return np.asarray(np.sum((Z - Z @ V.T @ V) ** 2, axis=1))


def auc(scores: Any, anomalous: Any) -> float:
    """The probability that an anomaly scores above an ordinary row."""
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(anomalous, scores))


def digits() -> Iterator[Labelled]:
    """Each class in turn is foreign to a basis of the other nine."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], y[order]
    for digit in range(10):
        others = X[y != digit]
        half = len(others) * 2 // 3
        yield _labelled("digits", 10, 20, others[:half], others[half:], X[y == digit][:60])


def breast_cancer() -> Labelled:
    """Malignant samples are foreign to a basis of benign ones; columns scaled to one spread."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    benign, malignant = X[y == 1], X[y == 0]
    benign = benign[np.random.default_rng(0).permutation(len(benign))]
    learned, other = benign[:250], benign[250:]
    spread = learned.std(axis=0)
    return _labelled("breast cancer, scaled", 6, 12, learned / spread, other / spread, malignant / spread)


def text(n: int = 1_500, d: int = 300, topics: int = 20) -> Labelled:
    """Documents of one of twenty topics, and foreign ones of topics that the basis has not met."""
    rng = np.random.default_rng(1)
    zipf = 1 / np.arange(1, d + 1)
    ranks = [rng.permutation(d) for _ in range(topics + 5)]

    def document(topic: int) -> Any:
        words = rng.choice(d, size=int(rng.integers(20, 80)), p=zipf / zipf.sum())
        of_topic = rng.random(len(words)) < 0.7
        return np.bincount(np.where(of_topic, ranks[topic][words], words), minlength=d)

    rows = np.stack([document(int(rng.integers(topics))) for _ in range(n)]).astype(float)
    foreign = np.stack([document(topics + int(rng.integers(5))) for _ in range(60)]).astype(float)
    return _labelled("text with foreign documents", 20, 40, rows[: n * 2 // 3], rows[n * 2 // 3 :], foreign)


def baskets(n: int = 1_800, d: int = 200, recipes: int = 25) -> Labelled:
    """Baskets of one of some recipes and a few other items; odd ones mix items of many recipes."""
    rng = np.random.default_rng(2)
    items = np.stack([rng.choice(d, 12, replace=False) for _ in range(recipes)])

    def basket(odd: bool) -> Any:
        found = np.zeros(d)
        size = int(rng.integers(6, 11))
        own = items[rng.integers(recipes, size=size), rng.integers(12, size=size)] if odd else None
        found[rng.choice(items[rng.integers(recipes)], size, replace=False) if own is None else own] = 1.0
        found[rng.integers(d, size=4)] = 1.0
        return found

    rows, strange = np.stack([basket(False) for _ in range(n)]), np.stack([basket(True) for _ in range(60)])
    return _labelled("baskets with odd ones", 25, 50, rows[: n * 2 // 3], rows[n * 2 // 3 :], strange)


def inside(n: int = 1_800, d: int = 80, k: int = 20) -> Labelled:
    """Rows of rank k and noise; anomalies are five times as far from the mean along one of the k directions."""
    rng = np.random.default_rng(3)
    V = np.linalg.qr(rng.standard_normal((d, k)))[0].T
    strengths = np.linspace(8.0, 3.0, k)
    weights = rng.standard_normal((n + 60, k))
    weights[np.arange(n, n + 60), rng.integers(k, size=60)] = 5.0 * rng.choice([-1.0, 1.0], 60)
    rows = (weights * strengths) @ V + 0.5 * rng.standard_normal((n + 60, d))
    return _labelled("5 sigma inside the subspace", k, 40, rows[: n * 2 // 3], rows[n * 2 // 3 : n], rows[n:])


SETS: dict[str, Callable[[], list[Labelled]]] = {
    "digits": lambda: list(digits()),
    "breast cancer": lambda: [breast_cancer()],
    "text": lambda: [text()],
    "baskets": lambda: [baskets()],
    "inside": lambda: [inside()],
}


def _labelled(name: str, k: int, ell: int, learned: Any, ordinary: Any, strange: Any) -> Labelled:
    return Labelled(
        name, k, ell, learned, np.vstack([ordinary, strange]), np.arange(len(ordinary) + len(strange)) >= len(ordinary)
    )


def _dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else np.asarray(X)
