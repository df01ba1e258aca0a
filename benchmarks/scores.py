"""Do scores find anomalies and drift, and what do they cost? `python -m benchmarks.scores` prints four tables.

Detection: the AUC of each score, beside exact PCA's residual, IsolationForest and ECOD, on five sets with known
anomalies (benchmarks/anomalies.py). Cost: the rate of decoding and scoring rows, as a share of the rate of decoding
them and multiplying them by the k directions. Delays: how many rows after its directions have turned a stream is called
significantly changed, by the share of energy outside and by the angle. Alarms: how many streams that do not change are
called changed. `--only detection|rates|delays|alarms` prints one; `--paste` writes them into docs/experiments.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.stats
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.anomalies import SETS, Labelled, auc
from benchmarks.tables import Table, paste
from benchmarks.timing import interleaved
from sfd_stream import (
    FixedColumns,
    ScoreHistogram,
    Scorer,
    SparseFrequentDirections,
    decode,
    encode_rows,
    paper_synthetic,
    significance,
)
from sfd_stream.sketch.rows import RowBlock
from sfd_stream.sketch.scoring.block_angles import BlockAngles, FoldedReference
from sfd_stream.sketch.scoring.block_means import BlockMeans

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
DETECTORS = (
    "residual (SPE), exact PCA",
    "residual (SPE)",
    "residual share",
    "T^2",
    "p-value",
    "IsolationForest",
    "ECOD",
)


def ecod(learned: Any, scored: Any) -> Any:
    """ECOD (Li and others, 2022): the largest of three sums over columns of -log of a tail's empirical probability.

    The sums are over the left tails, the right tails, and the tail to which each column is skewed.
    """
    rows = len(learned) + 1
    ordered = np.sort(learned, axis=0)
    columns = range(learned.shape[1])
    up_to = np.stack([np.searchsorted(ordered[:, j], scored[:, j], side="right") for j in columns], axis=1)
    below = np.stack([np.searchsorted(ordered[:, j], scored[:, j], side="left") for j in columns], axis=1)
    left, right = -np.log((up_to + 1) / (rows + 1)), -np.log((rows - below) / (rows + 1))
    spread = learned.std(axis=0) > 0
    skew = np.where(spread, scipy.stats.skew(learned + np.where(spread, 0.0, np.arange(len(learned))[:, None])), 0.0)
    skewed = np.where(skew < 0, left, right)
    return np.max([left.sum(axis=1), right.sum(axis=1), skewed.sum(axis=1)], axis=0)


def detected(labelled: Labelled) -> list[float]:
    """The AUC of each detector, in the order of `DETECTORS`."""
    from sklearn.ensemble import IsolationForest

    scorer = labelled.sketch().scorer(labelled.k)
    scores = scorer.score(labelled.scored)
    forest = IsolationForest(random_state=0).fit(labelled.learned)
    found = {
        "residual (SPE), exact PCA": labelled.exact_residual(),
        "residual (SPE)": scores.residual,
        "residual share": scores.residual_share,
        "T^2": scores.t2.estimate,
        "IsolationForest": -forest.score_samples(labelled.scored),
        "ECOD": ecod(np.asarray(labelled.learned), np.asarray(labelled.scored)),
    }
    by_name = {name: auc(each, labelled.anomalous) for name, each in found.items()}
    by_name["p-value"] = _by_p(labelled, scorer)
    return [by_name[name] for name in DETECTORS]


def _by_p(labelled: Labelled, scorer: Scorer) -> float:
    """By p-values: half of the ordinary rows are the earlier ones, the other half is compared with the anomalies."""
    half = int(np.count_nonzero(~labelled.anomalous)) // 2
    histogram = ScoreHistogram().plus(scorer.score(labelled.scored[:half]))
    return auc(-histogram.p_value(scorer.score(labelled.scored[half:])), labelled.anomalous[half:])


def detection() -> Table:
    rows = []
    for make in SETS.values():
        found = make()
        means = np.mean([detected(labelled) for labelled in found], axis=0)
        first = found[0]
        rows.append([f"{first.name} (k={first.k}, ell={first.ell})", *(f"{mean:.3f}" for mean in means)])
    return Table("scores-detection", "AUC of anomalies", ["", *DETECTORS], rows)


MESSAGES: dict[str, int | None] = {"one row a message": None, "blocks of 100 rows": 100}
SHAPES = {"d=1,000, 100 non-zeros": (1_000, 100, 4_000), "d=10,000, 30 non-zeros": (10_000, 30, 10_000)}


def rates() -> Table:
    rows = []
    for shape, (d, nnz, n) in SHAPES.items():
        X = RowBlock.from_csr(paper_synthetic(n, d, nnz, seed=0))
        sketch = SparseFrequentDirections(ell=50).fit(X.csr()[:2_000]).sketch()
        for form, size in MESSAGES.items():
            rows.append(
                [f"{shape}, {form}", *_shares(list(encode_rows(X, rows_per_message=size)), d, sketch.scorer, n)]
            )
    columns = ["", "decode and project, rows / CPU s", "scored", "scored, centred", "scored, centred, with leverage"]
    return Table("scores-rates", "Rate of scoring, as a share of decoding and projecting", columns, rows)


def _shares(messages: list[bytes], d: int, scorer_of: Callable[..., Scorer], n: int) -> list[str]:
    columns = FixedColumns(d)
    around_zero, around_mean = scorer_of(centred=False), scorer_of()
    V = np.ascontiguousarray(around_zero.components.T)
    lam = float(around_zero.eigenvalues[-1])

    def in_polls(use: Callable[[RowBlock], Any]) -> Callable[[], None]:
        """Over all messages, in batches of 1,000 rows as a poll brings them."""
        size = max(len(messages) // (n // 1_000), 1)

        def once() -> None:
            for start in range(0, len(messages), size):
                use(decode(messages[start : start + size], columns).block)

        return once

    with threadpool_limits(1):
        timed = interleaved(
            {
                "project": in_polls(lambda block: block.csr() @ V),
                "scored": in_polls(around_zero.score),
                "centred": in_polls(around_mean.score),
                "leverage": in_polls(lambda block: (around_mean.score(block), around_mean.leverage(block, lam))),
            },
            rounds=12,
            budget_s=5.0,
        )
    bare = timed["project"].cpu_s
    return [f"{n / bare:,.0f}", *(f"{bare / timed[name].cpu_s:.2f}" for name in ("scored", "centred", "leverage"))]


TESTS = ("share outside", "angle")
"""Of `drift.reference`."""
ANGLES, NOISES, RUNS = (2, 5, 8, 12, 20, 30), {"low noise": 0.1, "high noise": 1.0}, 11
BASELINE, BLOCKS, BLOCK = 40, 64, 500


def delays() -> Table:
    """Median rows until `significance` at alpha = 1e-4, of d = 40 columns and k = 4 directions of strengths 5 to 2."""
    rows = []
    for name, noise in NOISES.items():
        found = np.array([[_delays(angle, noise, seed) for seed in range(RUNS)] for angle in ANGLES])
        for test, medians in zip(TESTS, np.median(found, axis=1).T, strict=True):
            shown = ("never" if np.isinf(median) else f"{median:,.0f}" for median in medians)
            rows.append([f"{name}, {test}", *shown])
    columns = ["", *(f"{angle} degrees" for angle in ANGLES)]
    return Table("scores-delays", "Rows until a turn of the directions is significant", columns, rows)


def _delays(degrees: float, noise: float, seed: int) -> list[float]:
    """By each of TESTS."""
    rng = np.random.default_rng(seed)
    frame, angle = np.linalg.qr(rng.standard_normal((40, 8)))[0].T, np.radians(degrees)

    def rows(V: Any, n: int) -> Any:
        return (rng.standard_normal((n, 4)) * [5, 4, 3, 2]) @ V + noise * rng.standard_normal((n, 40))

    scorer = SparseFrequentDirections(ell=16).fit(rows(frame[:4], 4_000)).sketch().scorer(4, centred=False)
    turned = np.cos(angle) * frame[:4] + np.sin(angle) * frame[4:]
    X = np.vstack([rows(frame[:4], BASELINE * BLOCK), rows(turned, BLOCKS * BLOCK)])
    return [BLOCK * _first_look(means) for means in _compared(X, scorer)]


def _compared(X: Any, scorer: Scorer) -> list[BlockMeans]:
    """The rows compared with the scorer's directions by each of TESTS."""
    scores = scorer.score(X)
    block = RowBlock.from_csr(sp.csr_array(X))
    folded = FoldedReference(scorer.components, scorer.mean).rows(block, scores.coordinates, scores.residual)
    return [BlockMeans(BLOCK).plus(scores.residual_share), BlockAngles.of(BLOCK, folded.k).plus(folded).roots]


def _first_look(means: BlockMeans) -> float:
    """The first look with a significant change, from 1; infinite if there is none."""
    looks = range(1, len(means.recent) + 1)
    return next((look for look in looks if significance(means.baseline, means.recent[:look]).significant), np.inf)


STREAMS, LOOKS = 1_000, 100
TAILS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Any]] = {
    "Gaussian rows": lambda rng, size: rng.standard_normal(size),
    "t3 rows": lambda rng, size: rng.standard_t(3, size),
    "lognormal rows": lambda rng, size: np.exp(rng.standard_normal(size)),
}


def alarms() -> Table:
    """Of STREAMS that do not change, how many are significant at alpha = 1e-4 at any of LOOKS."""
    axes = np.diag([5.0, 3.0, 1.0, 1.0])
    scorer, rows = SparseFrequentDirections(ell=4).fit(axes).sketch().scorer(2, centred=False), []
    for name, draw in TAILS.items():
        rng, found = np.random.default_rng(9), np.zeros(len(TESTS), int)
        for _ in range(STREAMS):
            X = draw(rng, ((LOOKS + BASELINE) * BLOCK, 4)) * [5, 3, 1, 1]
            found += [not np.isinf(_first_look(means)) for means in _compared(X, scorer)]
        rows.append([name, *map(str, found)])
    return Table("scores-alarms", f"Of {STREAMS:,} streams that do not change: with a false alarm", ["", *TESTS], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Detection and cost of scores.")
    parser.add_argument("--only", choices=["detection", "rates", "delays", "alarms"])
    parser.add_argument("--paste", action="store_true", help="write the tables into docs/experiments.md")
    asked = parser.parse_args()
    wanted = {"detection": detection, "rates": rates, "delays": delays, "alarms": alarms}
    made = [make() for name, make in wanted.items() if asked.only in (None, name)]
    if asked.paste:
        paste([PAGE], made)
    for table in made:
        table.show(Console(width=160))


if __name__ == "__main__":
    main()
