"""Laws of speed and memory that the table of ratios does not show: each measured, each with its limit."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

from threadpoolctl import threadpool_limits

from benchmarks.data import SEED, STREAMS, Shape, Stream, uniform
from benchmarks.timing import Stopwatch, interleaved, largest_kib
from sfd_stream import Sketch, SparseFrequentDirections, covariance_error
from sfd_stream.sketch import shrink, stack
from sfd_stream.sketch.builder import Parameters
from sfd_stream.sketch.synthetic import paper_synthetic_blocks
from sfd_stream.sketch.verify import certified_norm

FACTOR = 1.3
"""What "flat", "linear" and "no slower" may be off by."""

CERTIFYING_MAX = 1 / 3
MEMORY_FACTOR = 4
BYTES_PER_ENTRY = 12
"""A non-zero in the buffer: an int32 column and a float64 value."""

DENSITIES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    measured: str
    limit: str
    reached: bool

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def fused(A: Any, ell: int) -> Sketch:
    return SparseFrequentDirections(ell=ell).fit(A).sketch()


def linear_in_n(rounds: int) -> Check:
    seconds = _best_s({n: Shape(n=n) for n in (10_000, 20_000, 40_000, 60_000)}, rounds)
    return _flat("time is linear in n, 10,000 to 60,000", "us a row", {n: s / n * 1e6 for n, s in seconds.items()})


def flat_in_d(rounds: int) -> Check:
    seconds = _best_s({d: Shape(d=d) for d in (1_000, 2_000, 4_000, 6_000)}, rounds)
    return _flat("time is flat in d at fixed nnz, 1,000 to 6,000", "ms", {d: s * 1e3 for d, s in seconds.items()})


def linear_in_nnz(rounds: int) -> Check:
    """The cost of a non-zero may fall with their number, as fixed costs don't grow; it must not rise."""
    seconds = _best_s({z: Shape(z=z) for z in (20, 50, 100, 200, 500)}, rounds)
    cost = {z: s / (z * Shape().n) * 1e9 for z, s in seconds.items()}
    ordered = list(cost.values())
    rise = max(later / earlier for i, earlier in enumerate(ordered) for later in ordered[i:])
    return Check(
        "time is at most linear in nnz at fixed shape, z from 20 to 500",
        f"{_listed(cost)} ns a non-zero: it rises {rise:.2f}x at most",
        f"{FACTOR}x",
        rise <= FACTOR,
    )


def _best_s(shapes: dict[int, Shape], rounds: int) -> dict[int, float]:
    """Best CPU time of `fused` on each shape, in turns: many, as each must have met a moment when memory was fast."""
    jobs = {str(key): _fused_job(shape.matrix(), shape.ell) for key, shape in shapes.items()}
    return {int(key): timed.cpu_s for key, timed in interleaved(jobs, rounds=4 * rounds, budget_s=60).items()}


def _fused_job(A: Any, ell: int) -> Callable[[], Sketch]:
    return lambda: fused(A, ell)


def _flat(name: str, unit: str, values: dict[int, float]) -> Check:
    spread = max(values.values()) / min(values.values())
    return Check(name, f"{_listed(values)} {unit}: {spread:.2f}x apart", f"{FACTOR}x", spread <= FACTOR)


def _listed(values: dict[int, float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values.values())


def steady_state(rows: int, turns: int = 3) -> Check:
    """A stream in blocks, each made outside the clock. The short run is repeated between parts of the long one."""
    short_n = 10_000
    short = min(_streamed_s(paper_synthetic_blocks(short_n, 1_000, 100, SEED)) for _ in range(turns)) / short_n
    long = _streamed_s(paper_synthetic_blocks(rows, 1_000, 100, SEED)) / rows
    again = min(_streamed_s(paper_synthetic_blocks(short_n, 1_000, 100, SEED)) for _ in range(turns)) / short_n
    factor = long / min(short, again)
    return Check(
        f"rate per row at n = {rows:,} against that at 10,000",
        f"{long * 1e6:.2f} against {min(short, again) * 1e6:.2f} us a row: {factor:.2f}x",
        f"{FACTOR}x",
        factor <= FACTOR,
    )


def _streamed_s(blocks: Iterator[Any]) -> float:
    """CPU seconds that taking the blocks in and one look at the end took."""
    model = SparseFrequentDirections(ell=50)
    spent = 0.0
    for block in blocks:
        start = time.process_time()
        model.partial_fit(block)
        spent += time.process_time() - start
    start = time.process_time()
    model.sketch()
    return spent + time.process_time() - start


def certifying_share(rounds: int) -> Check:
    A = Shape().matrix()
    shares = []
    for _ in range(rounds):
        watch = Stopwatch(certified_norm)
        whole = Stopwatch(fused)
        with patch.object(shrink, "certified_norm", watch):
            whole(A, Shape().ell)
        shares.append((whole.cpu_s, watch.cpu_s / whole.cpu_s))
    share = min(shares)[1]  # of the fastest turn
    return Check("share of the time for certifying, at the default", f"{share:.2f}", "1/3", share <= CERTIFYING_MAX)


def forced_route(route: str) -> AbstractContextManager[Any]:
    """All columns sparse or all dense, whatever their density."""
    threshold = {"sparse": 2.0, "dense": -1.0}[route]
    return patch.multiple(stack, HOT=threshold, ALL_HOT=threshold)


def better_route_at(density: float, ell: int, rounds: int) -> tuple[float, dict[str, float]]:
    """How much slower than the better of the two forced routes the chosen one is, and the three CPU times."""
    A = uniform(max(int(600_000 / density / 1_000), 400), 1_000, density)

    def forced(route: str) -> Sketch:
        with forced_route(route):
            return fused(A, ell)

    jobs = {"chosen": _fused_job(A, ell), "sparse": lambda: forced("sparse"), "dense": lambda: forced("dense")}
    seconds = {name: timed.cpu_s for name, timed in interleaved(jobs, rounds=rounds, budget_s=30).items()}
    return seconds["chosen"] / min(seconds["sparse"], seconds["dense"]), seconds


def routes(rounds: int, densities: tuple[float, ...] = DENSITIES) -> tuple[Check, list[dict[str, Any]]]:
    """The check over all densities and the table behind it."""
    rows = []
    for ell in (10, 50, 100):
        for density in densities:
            factor, seconds = better_route_at(density, ell, rounds)
            rows.append({"ell": ell, "density": density, "factor": factor, **seconds})
    worst = max(rows, key=lambda row: row["factor"])
    measured = f"{worst['factor']:.2f}x at worst (density {worst['density']}, ell = {worst['ell']})"
    name = "at no density slower than the better of the dense and the sparse route"
    return Check(name, measured, f"{FACTOR}x", worst["factor"] <= FACTOR), rows


def peak_memory(d: int, ell: int = 50) -> Check:
    """Everything that is allocated while a stream in small blocks is taken in and looked at, the input left out."""
    entries = Parameters(d=d, ell=ell).capacity(ell).entries or 0
    allowed = ell * d * 8 + entries * BYTES_PER_ENTRY
    block = Shape(n=2_000, d=d).matrix()
    model = SparseFrequentDirections(ell=ell)
    tracemalloc.start()
    for _ in range(int(2.5 * entries / (block.nnz + block.shape[0])) + 1):
        for start in range(0, block.shape[0], 500):
            model.partial_fit(block[start : start + 500])
    model.sketch()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    factor = peak / allowed
    return Check(
        f"peak memory over ell*d*8 bytes plus the buffer, d = {d:,}",
        f"{peak / 1e6:.1f} MB over {allowed / 1e6:.1f} MB: {factor:.2f}x",
        f"{MEMORY_FACTOR}x",
        factor <= MEMORY_FACTOR,
    )


def long_stream(rows: int = 10_000_000, z: int = 10) -> Check:
    """Ten million rows of ten non-zeros: the process must not have grown after the first tenth of them.

    In a process of its own, as a high-water mark that an earlier section left would hide any growth.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        early, late, spent_s = alone.submit(_high_water_marks, rows, z).result()
    size = f"{early / 1024:.0f} MB after a tenth, {late / 1024:.0f} MB at the end"
    measured = f"{size}; {rows / spent_s:,.0f} rows a CPU second"
    return Check(f"{rows:,} rows of {z} non-zeros in flat memory", measured, "1.05x", late <= 1.05 * early)


def _high_water_marks(rows: int, z: int) -> tuple[int, int, float]:
    """Largest size of the process (KiB) after a tenth of the rows and after all, and the CPU seconds they took."""
    model = SparseFrequentDirections(ell=50)
    spent_s, taken, early = 0.0, 0, 0
    with threadpool_limits(1):
        for block in paper_synthetic_blocks(rows, 1_000, z, SEED):
            start = time.process_time()
            model.partial_fit(block)
            spent_s += time.process_time() - start
            taken += block.shape[0]
            if not early and taken >= rows // 10:
                early = largest_kib()
    return early, largest_kib(), spent_s


def tightness(streams: tuple[Stream, ...] = STREAMS) -> list[dict[str, Any]]:
    """Certified delta over the true error of `fused`, case by case."""
    rows = []
    for stream in streams:
        A = stream.matrix()
        model = SparseFrequentDirections(ell=stream.ell).fit(A)
        sketch = model.sketch()
        error = covariance_error(A, sketch)
        factor = sketch.delta / (error * sketch.squared_frobenius)
        row = {"name": stream.name, "cov_err": error, "tightness": factor, "most": stream.most}
        rows.append({**row, "shrinks": sketch.shrinks})
    return rows
