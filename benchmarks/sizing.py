"""How many rows a sketch needs: `python -m benchmarks.sizing` prints what `sfd-stream size` calls experience.

The bound of dense Frequent Directions, the least of ||A - A_k||F^2/(ell - k) over k < ell, is no theorem for `fused`,
whose own has alpha = 6/41 before ell. How much of that bound, and of the theorem's, does its true error use?
`--paste` writes the table into docs/experiments.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks.data import STREAMS, Shape, Stream
from benchmarks.tables import Table, paste
from sfd_stream import SparseFrequentDirections, covariance_error
from sfd_stream.sketch.verify import ALPHA

PAGE = Path(__file__).parents[1] / "docs" / "experiments.md"
SWEEP = tuple(Stream(f"default, ell={ell}", Shape().matrix, ell, 0.0) for ell in (5, 20, 35, 75))


def used(stream: Stream) -> dict[str, Any]:
    """The true error and delta of `fused`, as shares of the two bounds."""
    A = stream.matrix()
    sketch = SparseFrequentDirections(ell=stream.ell).fit(A).sketch()
    error = covariance_error(A, sketch) * sketch.squared_frobenius
    tails = _tails(A)
    return {
        "name": stream.name,
        "ell": stream.ell,
        "error": error / _bound(tails, stream.ell),
        "delta": sketch.delta / _bound(tails, stream.ell),
        "theorem": error / _bound(tails, ALPHA * stream.ell),
    }


def _tails(A: Any) -> Any:
    """||A - A_k||F^2 for every k, from the exact spectrum."""
    squares = np.maximum(np.linalg.eigvalsh((A.T @ A).toarray())[::-1], 0.0)
    return np.append(squares[::-1].cumsum()[::-1], 0.0)


def _bound(tails: Any, rows: float) -> float:
    k = np.arange(min(int(np.ceil(rows)), len(tails)))
    return float(np.min(tails[k] / (rows - k)))


def table() -> Table:
    with threadpool_limits(1):
        found = [used(stream) for stream in (*STREAMS, *SWEEP)]
    rows = [
        [row["name"], str(row["ell"]), *(f"{row[name]:.2f}" for name in ("error", "delta", "theorem"))] for row in found
    ]
    columns = ["", "ell", "error / FD's bound", "delta / FD's bound", "error / theorem's bound"]
    return Table("sizing", "How much of the bounds is used", columns, rows)


def main() -> None:
    made = table()
    if "--paste" in sys.argv:
        paste([PAGE], [made])
    else:
        made.show(Console())


if __name__ == "__main__":
    main()
