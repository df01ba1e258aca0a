"""`python -m tests.docs.draw`: draws the pictures of README.md and docs/concepts.md into docs/pictures.

Where a picture shows numbers, they are computed here by the code that it explains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from sfd_stream import SparseFrequentDirections, paper_synthetic
from tests.docs.pages import ROOT
from tests.docs.svg import BLUE, GREEN, INK, RED, SAND, SOFT, Picture

FOLDER = ROOT / "docs" / "pictures"
PROMISE = 41 / 6
"""1/alpha of the paper's theorem, for k = 0."""


def way_of_a_row() -> Picture:
    picture = Picture(860, 300, "The way of a row")
    y = 30
    picture.box(20, y, 110, 62, ["input topic", "msgpack rows"], color=SOFT)
    picture.box(180, y, 90, 62, ["row", "checked"])
    picture.box(320, y, 90, 62, ["buffer", "A'"])
    picture.box(460, y, 90, 62, ["shrink", "[B; A'] to B"])
    picture.box(600, y, 100, 62, ["sketch", "B, delta"])
    for left, right in ((130, 180), (270, 320), (410, 460), (550, 600)):
        picture.arrow((left, y + 31), (right - 2, y + 31))
    picture.box(165, 150, 120, 44, ["dead letters", "bad messages"], color=SOFT)
    picture.arrow((225, 92), (225, 148), dashed=True)
    picture.box(430, 150, 150, 54, ["checkpoint store", "disk, S3, GCS, Azure"], color=GREEN)
    picture.box(680, 150, 150, 54, ["snapshot topic", "readers, merges"], color=GREEN)
    picture.arrow((365, 92), (365, 177), (428, 177))
    picture.arrow((650, 92), (650, 120), (505, 120), (505, 148))
    picture.arrow((580, 177), (678, 177))
    picture.arrow((755, 204), (755, 258), (75, 258), (75, 94))
    picture.words(398, 168, "1", bold=True, color=RED)
    picture.words(630, 168, "2", bold=True, color=RED)
    picture.words(415, 250, "3", bold=True, color=RED)
    picture.words(75, 280, "commit next offset", anchor="start", color=SOFT, size=12)
    picture.words(840, 280, "1 durable, 2 visible, 3 forgotten: in this order, whatever dies", anchor="end", size=12)
    return picture


def buffer() -> Picture:
    """A real sketch over real buffered rows: dots are non-zeros."""
    ell, d, n = 6, 60, 26
    rows = sp.random_array((n, d), density=0.06, rng=np.random.default_rng(3), format="coo")
    picture = Picture(640, 330, "The sketch over the buffered rows")
    left, top, step = 150, 34, 7.5
    picture.bar(left - 4, top - 4, d * step + 4, ell * step + 4, BLUE)
    picture.words(left - 14, top + ell * step / 2 + 2, "sketch B", anchor="end", bold=True)
    picture.words(left - 14, top + ell * step / 2 + 19, "ell rows, dense", anchor="end", size=12, color=SOFT)
    below = top + ell * step + 12
    for row, column in zip(*rows.coords[::1], strict=True):
        picture.dot(left + column * step, below + row * step, 2.4, INK)
    middle = below + n * step / 2
    picture.words(left - 14, middle, "buffer A'", anchor="end", bold=True)
    picture.words(left - 14, middle + 17, "rows, sparse", anchor="end", size=12, color=SOFT)
    picture.words(
        left + d * step / 2, below + n * step + 18, f"d columns; {rows.nnz} non-zeros in {n} rows", size=12, color=SOFT
    )
    picture.words(
        left + d * step / 2, 20, "a shrink works on the stack [B; A'], which is never formed", size=12, color=SOFT
    )
    return picture


def shrink() -> Picture:
    """The squared singular values of a stack before and after an exact shrink to ell rows."""
    ell, shown = 8, 24
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((32, 48)) * np.linspace(3.0, 0.4, 48)
    squares = np.linalg.svd(stack, compute_uv=False)[:shown] ** 2
    loss = squares[ell]
    picture = Picture(700, 300, "One shrink")
    left, floor, width = 60, 250, 25
    scale = 200 / squares[0]
    for number, square in enumerate(squares):
        x = left + number * width
        kept = number < ell
        picture.bar(x, floor - square * scale, width - 6, square * scale, SAND)
        if kept:
            picture.bar(x, floor - square * scale, width - 6, (square - loss) * scale, BLUE)
    y = floor - loss * scale
    picture.line([(left - 10, y), (left + shown * width, y)], RED, dashed=True)
    picture.words(
        left + shown * width,
        y - 8,
        "the (ell + 1)-th: subtracted from all, added to delta",
        anchor="end",
        color=RED,
        size=12,
    )
    picture.words(left + 4 * width, 28, f"kept: ell = {ell} rows of the new B", color=BLUE, size=12, anchor="start")
    picture.words(
        left + shown * width, 120, "lost: in every direction at most the red line", color=INK, size=12, anchor="end"
    )
    picture.words(
        left + shown * width / 2, 280, "squared singular values of [B; A'], largest first", color=SOFT, size=12
    )
    return picture


@threadpool_limits.wrap(limits=1)  # type: ignore[untyped-decorator]
def delta() -> Picture:
    """A stream: the true error, the certified delta and the theorem's promise, as shares of all squares so far."""
    n, step, ell = 20_000, 2_000, 20
    A = paper_synthetic(n, 400, 80, seed=1)
    sketcher = SparseFrequentDirections(ell=ell)
    gram = np.zeros((A.shape[1], A.shape[1]))  # A'A itself: what one can afford at this size
    seen, true, certified = [], [], []
    for start in range(0, n, step):
        rows = A[start : start + step]
        gram += rows.toarray().T @ rows.toarray()
        sketch = sketcher.partial_fit(rows).sketch()
        seen.append(start + step)
        lost = np.linalg.eigvalsh(gram - sketch.matrix.T @ sketch.matrix)[-1]
        true.append(lost / sketch.squared_frobenius)
        certified.append(sketch.delta / sketch.squared_frobenius)
    picture = Picture(700, 320, "The error and its bound over a stream")
    left, right, floor, ceiling = 70, 560, 270, 40
    most = max(certified) * 1.25
    place = lambda x, y: (left + (right - left) * x / n, floor - (floor - ceiling) * y / most)  # noqa: E731
    picture.arrow((left, floor), (right + 10, floor))
    picture.arrow((left, floor), (left, ceiling - 15))
    for values, color, name in ((certified, RED, "delta, certified"), (true, BLUE, "the true error")):
        picture.line([place(x, y) for x, y in zip(seen, values, strict=True)], color)
        x, y = place(n, values[-1])
        picture.words(x + 8, y + 4, name, anchor="start", color=color, size=12)
    picture.words(left - 8, ceiling + 4, f"{most:.1%}", anchor="end", size=12, color=SOFT)
    picture.words(left - 8, floor + 4, "0", anchor="end", size=12, color=SOFT)
    picture.words(right, floor + 20, f"{n:,} rows", anchor="end", size=12, color=SOFT)
    promised = f"share of all squares so far; the theorem alone would promise {PROMISE / ell:.0%}"
    picture.words(left + 14, 24, promised, anchor="start", size=12, color=SOFT)
    return picture


def checkpoints() -> Picture:
    picture = Picture(820, 300, "Checkpoints of one partition, a kill, and the next owner")
    left, step, y = 60, 130, 60
    picture.words(20, 28, "worker 1, epoch 1", anchor="start", bold=True)
    picture.arrow((left, y), (left + 3.6 * step, y), tip=False)
    for number, place in ((1, 0.0), (2, 1.4), (3, 2.8)):
        x = left + place * step
        picture.dot(x, y, 5, GREEN)
        picture.words(x, y + 24, f"manifest {number}" if number > 1 else "claim 1", size=12)
        picture.words(x, y + 40, f"next offset {(number - 1) * 1400:,}", size=12, color=SOFT)
    kill = left + 3.7 * step
    picture.words(kill, y + 5, "\u2715", size=20, color=RED, bold=True)
    picture.words(kill + 14, y - 12, "kill -9 at offset 3,700", size=12, color=RED)
    picture.words(20, 168, "worker 2, epoch 2", anchor="start", bold=True)
    below, restored = 200, left + 2.8 * step
    picture.arrow((restored, below), (800, below))
    picture.dot(restored, below, 5, GREEN)
    picture.words(restored, below + 24, "claim 4: restores manifest 3", size=12)
    picture.arrow((restored, y + 48), (restored, below - 8), dashed=True)
    picture.line([(restored + 6, below), (kill, below)], RED)
    picture.words((restored + kill) / 2 + 6, below - 10, "replay", size=12, color=RED)
    picture.dot(left + 4.9 * step, below, 5, GREEN)
    picture.words(left + 4.9 * step, below + 24, "manifest 5", size=12)
    picture.words(
        410,
        276,
        "Offsets 2,800 to 3,699 are read again and counted once: worker 1's state had them, but no manifest did.",
        size=12,
        color=SOFT,
    )
    return picture


def merging() -> Picture:
    picture = Picture(760, 250, "Snapshots merge in a tree")
    for number in range(4):
        picture.box(20, 24 + 52 * number, 120, 38, [f"{'east' if number < 2 else 'west'}/{number % 2}"])
    for number, name in enumerate(("east", "west")):
        y = 50 + 104 * number
        picture.box(270, y - 2, 150, 46, [f"merged {name}", "delta adds up"], color=GREEN)
        for part in range(2):
            picture.arrow((140, 43 + 104 * number + 52 * part), (268, y + 21))
    picture.box(540, 98, 200, 58, ["the world", "counters exact, delta known"], color=GREEN)
    picture.arrow((420, 71), (538, 120))
    picture.arrow((420, 175), (538, 134))
    picture.words(80, 242, "a snapshot a partition", size=12, color=SOFT)
    picture.words(640, 180, "lists all four parts, with their ages", size=12, color=SOFT)
    return picture


def scores() -> Picture:
    """Rows by T^2 and by their residual: what is extreme inside the directions, and what is foreign to them."""
    rng, k, d = np.random.default_rng(1), 4, 40
    V = np.linalg.qr(rng.standard_normal((d, k)))[0].T

    def rows(n: int, times: float = 1.0) -> Any:
        return times * (rng.standard_normal((n, k)) * [5, 4, 3, 2]) @ V + 0.5 * rng.standard_normal((n, d))

    scorer = SparseFrequentDirections(ell=20).fit(rows(2_000)).sketch().scorer(k)
    kinds = {
        "ordinary": (SOFT, rows(300)),
        "foreign": (RED, rows(12) + 3.0 * rng.standard_normal((12, d))),
        "extreme inside": (BLUE, rows(12, times=8.0)),
    }
    picture = Picture(720, 360, "Rows by T^2 and by their residual")
    left, bottom, across, up = 90, 300, 110.0, 80.0  # pixels for a power of 10

    def place(t2: float, residual: float) -> tuple[float, float]:
        return left + across * (np.log10(t2) + 1), bottom - up * (np.log10(residual) + 1)

    for power in range(-1, 4):
        x = place(10.0**power, 0.1)[0]
        picture.line([(x, bottom), (x, 30)], SAND)
        picture.words(x, bottom + 18, f"{10.0**power:g}", size=12)
    for power in range(-1, 3):
        y = place(0.1, 10.0**power)[1]
        picture.line([(left, y), (left + 4.4 * across, y)], SAND)
        picture.words(left - 8, y + 4, f"{10.0**power:g}", anchor="end", size=12)
    for at, (kind, (color, given)) in enumerate(kinds.items()):
        found = scorer.score(given)
        for t2, residual in zip(found.t2.estimate, found.residual_over_mean.estimate, strict=True):
            picture.dot(*place(max(t2, 0.1), max(residual, 0.1)), 3, color)
        picture.dot(left + 4.5 * across, 50 + 20 * at, 4, color)
        picture.words(left + 4.5 * across + 9, 54 + 20 * at, kind, anchor="start", size=12)
    picture.words(left + 2.2 * across, bottom + 42, "T\u00b2", bold=True)
    picture.words(left - 40, 22, "residual over the mean", anchor="start", bold=True)
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    "way-of-a-row": way_of_a_row,
    "buffer": buffer,
    "shrink": shrink,
    "delta": delta,
    "checkpoints": checkpoints,
    "merging": merging,
    "scores": scores,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().text(), encoding="utf-8")
