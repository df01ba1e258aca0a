"""Is this tree faster or slower than another commit? Both run in turns, each in its own process, on the same packages.

    python -m benchmarks.compare --against 75b2d4e [--only worker --only "sketch: z=5"] [--pairs 11] [--json FILE]

The new tree is the working tree; the old one is unpacked by `git archive` into a temporary folder. Each line is
measured in pairs, one run of each tree directly after the other, the first of them by turns. A pair gives a ratio of
speeds, new over old; the table has the median of the ratios with an interval of which the coverage is printed.

- worker: one process reads a topic of a real Kafka and keeps checkpoints on disk. Its clock runs from the first record
  to the commit of the last one, without the start of the process. "time to durable" is the part of it that comes after
  the last record. The CPU time of all its threads is compared too: on a busy machine it is the steadier figure.
- decode: one thread decodes messages in batches of 1,000; sketch: one fit. Both are CPU time, the best of some runs.

Two runs of one tree differ too: the table has that spread, of the old tree's runs. `--against HEAD` in a clean working
tree compares a tree with itself and shows what this machine can tell apart now.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import comb
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgpack
import scipy.sparse as sp
import yaml
from rich.console import Console

from benchmarks import compared
from benchmarks.data import STREAMS, TARGETS, load, zipf_text
from benchmarks.stream import CHUNK, ELL, D, fill, messages_of
from benchmarks.tables import Table, paste
from sfd_stream import paper_synthetic
from tests.support.kafka import start_broker
from tests.support.trees import HERE, RELEASED, NoHistoryError, environment_of, extract

CONFIDENCE = 0.95
COVERAGE_MIN = 0.9
"""An interval that covers less is not printed as one: too few pairs."""

LIMIT_S = 300.0
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
BARS = {
    "worker: packed, rows of 10": (1.2, 1.6),
    "worker: packed, rows of 100": (1.1, 1.4),
    "worker: lists, rows of 10": (1.3, 2.0),
    "worker: blocks, rows of 100": (1.0, 1.2),
    "worker: names, rows of 10": (3.0, 5.0),
    "decode: names, rows of 10": (5.0, 25.0),
    "sketch: default (z=100)": (1.1, 1.4),
    "sketch: z=5": (1.0, 1.3),
    "sketch: z=20": (1.2, 1.6),
    "sketch: z=500": (1.0, 1.2),
    "sketch: ell=10": (1.2, 1.6),
    "sketch: ell=100": (1.0, 1.3),
    "sketch: turning, ell=30": (1.8, 2.5),
    "sketch: Zipf, ell=50": (1.1, 1.5),
}
"""Floor and goal of the speed against commit 75b2d4e."""

NAMES_D = 1_024


# What is measured


@dataclass
class Bench:
    """What the lines of one run share: a folder for data, and a broker that is started for the first worker."""

    folder: Path
    stack: ExitStack
    rows_share: float
    _broker: Any = None
    _topics: dict[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def broker(self) -> Any:
        if self._broker is None:
            say("starting Kafka ...")
            self._broker = self.stack.enter_context(start_broker())
        return self._broker

    def topic(self, spelling: str, z: int, rows: int) -> tuple[str, int]:
        """A topic filled with rows of `z` non-zeros, and its end offset. Filled once, read by both trees."""
        name = f"{spelling} {z}"
        if name not in self._topics:
            messages, times = spelled(spelling, z), max(int(rows * self.rows_share) // CHUNK, 1)
            topic = self.broker.create_topic(partitions=1)
            say(f"writing {times * CHUNK:,} rows of {z} ({spelling}) ...")
            fill(self.broker.bootstrap, topic, messages, times)
            self._topics[name] = topic, times * len(messages)
        return self._topics[name]

    def file(self, name: str, write: Callable[[Path], None]) -> Path:
        path = self.folder / name.replace(" ", "-")
        if not path.exists():
            write(path)
        return path


@dataclass(frozen=True)
class Line:
    """One line of the table: `arguments` prepares its data and says what `compared.py` is to be started with."""

    name: str
    arguments: Callable[[Bench], Sequence[str]]
    figure: str = "seconds"


def spelled(spelling: str, z: int) -> list[bytes]:
    """`CHUNK` rows of the paper's matrix as messages."""
    if spelling != "names":
        return messages_of(spelling, z)
    A = paper_synthetic(CHUNK, D, z, seed=0)
    cuts = zip(A.indptr[:-1], A.indptr[1:], strict=True)
    return [
        msgpack.packb({"i": [f"feature {c}" for c in A.indices[a:b].tolist()], "v": A.data[a:b].tolist()})
        for a, b in cuts
    ]


def _worker(spelling: str, z: int, rows: int, bench: Bench) -> Sequence[str]:
    """A group and a checkpoint folder of its own for each run."""
    topic, end = bench.topic(spelling, z, rows)
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    settings = {
        "kafka": {"bootstrap.servers": bench.broker.bootstrap, "group.id": folder.name, "log_level": 3},
        "input": {"topic": topic, "columns": "hashed" if spelling == "names" else "fixed"},
        "sketch": {"d": NAMES_D if spelling == "names" else D, "ell": ELL},
        "checkpoint": {"url": (folder / "checkpoints").as_uri()},
        "http": {"port": 0},
        "log": {"level": "warning"},
    }
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return "worker", str(path), str(end)


def _decode(spelling: str, z: int, bench: Bench) -> Sequence[str]:
    def write(path: Path) -> None:
        path.write_bytes(msgpack.packb(spelled(spelling, z)))

    columns = f"HashedColumns:{NAMES_D}" if spelling == "names" else f"FixedColumns:{D}"
    return "decode", str(bench.file(f"{spelling} {z}.msgpack", write)), columns


def _sketch(name: str, matrix: Callable[[], Any], ell: int, bench: Bench) -> Sequence[str]:
    def write(path: Path) -> None:
        sp.save_npz(path, sp.csr_matrix(matrix()), compressed=False)

    return "sketch", str(bench.file(f"{name}.npz", write)), str(ell)


def lines(matrix: Path | None = None) -> list[Line]:
    turning = next(stream for stream in STREAMS if stream.name == "turning subspace, ell=30")
    found = [
        Line("worker: packed, rows of 10", partial(_worker, "packed", 10, 600_000)),
        Line("worker: packed, rows of 100", partial(_worker, "packed", 100, 300_000)),
        Line("worker: lists, rows of 10", partial(_worker, "list", 10, 400_000)),
        Line("worker: blocks, rows of 100", partial(_worker, "blocks", 100, 400_000)),
        Line("worker: names, rows of 10", partial(_worker, "names", 10, 100_000)),
        Line("worker: time to durable", partial(_worker, "packed", 100, 300_000), "to_durable_s"),
    ]
    found += [
        Line(f"decode: {words}, rows of {z}", partial(_decode, spelling, z))
        for spelling, z, words in (
            ("packed", 10, "packed"), ("packed", 100, "packed"), ("list", 10, "lists"), ("list", 100, "lists"),
            ("blocks", 100, "blocks"), ("names", 10, "names"), ("names", 100, "names"),
        )
    ]  # fmt: skip
    found += [
        Line(f"sketch: {target.name}", partial(_sketch, target.name, target.shape.matrix, target.shape.ell))
        for target in TARGETS
    ]
    found += [
        Line("sketch: turning, ell=30", partial(_sketch, "turning", turning.matrix, turning.ell)),
        Line("sketch: Zipf, ell=50", partial(_sketch, "zipf", zipf_text, 50)),
    ]
    if matrix is not None:
        name = matrix.stem
        found.append(Line(f"sketch: {name}, ell=50", partial(_sketch, name, partial(load, matrix), 50)))
    return found


# Runs in pairs


class Run(NamedTuple):
    """One run of a line: its figure and, where that is no CPU time, the CPU time spent on it."""

    seconds: float
    cpu_s: float | None = None


def run(line: Line, tree: Path, bench: Bench) -> Run:
    command = [sys.executable, str(Path(compared.__file__)), *line.arguments(bench)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment_of(tree),
        timeout=LIMIT_S,
        cwd=bench.folder,
    )
    if done.returncode:
        raise SystemExit(f"{line.name} failed in {tree}:\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if Path(found["tree"]) != tree:
        raise SystemExit(f"{line.name} imported sfd_stream from {found['tree']}, not from {tree}")
    return Run(found[line.figure], found.get("cpu_s") if line.figure == "seconds" else None)


class Ratio(NamedTuple):
    """The median of some ratios, with an interval that covers the true median with a probability of `coverage`."""

    median: float
    low: float
    high: float
    coverage: float

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Ratio:
        """The interval is from the k-th smallest to the k-th largest of n ratios, with the largest k that covers
        `CONFIDENCE`; with few pairs the smallest and the largest, which cover less. It fails only if fewer than k of n
        fall on one side of the true median, like heads of n coins, whatever the noise is.
        """
        n, ordered = len(ratios), sorted(ratios)
        k = max((k for k in range(1, n // 2 + 1) if _coverage(n, k) >= CONFIDENCE), default=1)
        return cls(median(ordered), ordered[k - 1], ordered[n - k], _coverage(n, k))

    def __str__(self) -> str:
        return f"**{self.median:.3f}** ({self.low:.3f} to {self.high:.3f})"


def _coverage(n: int, k: int) -> float:
    return float(1 - 2 * sum(comb(n, i) for i in range(k)) / 2**n)


@dataclass(frozen=True)
class Result:
    """The runs of both trees, pair by pair."""

    name: str
    old: tuple[Run, ...]
    new: tuple[Run, ...]

    @property
    def speed(self) -> Ratio:
        """New over old speed."""
        return Ratio.of([old.seconds / new.seconds for old, new in zip(self.old, self.new, strict=True)])

    @property
    def by_cpu(self) -> Ratio | None:
        """The same by CPU time, where the speed is not."""
        pairs = [(old.cpu_s, new.cpu_s) for old, new in zip(self.old, self.new, strict=True)]
        ratios = [old / new for old, new in pairs if old and new]
        return Ratio.of(ratios) if ratios else None

    @property
    def spread(self) -> float:
        """The slowest of the old tree's runs over its fastest."""
        times = [one.seconds for one in self.old]
        return max(times) / min(times)

    @property
    def verdict(self) -> str:
        if self.speed.coverage < COVERAGE_MIN:
            return "too few pairs"
        return "faster" if self.speed.low > 1 else "slower" if self.speed.high < 1 else "no difference found"

    def as_dict(self) -> dict[str, Any]:
        ratios = {"speed": self.speed._asdict(), "by_cpu": self.by_cpu and self.by_cpu._asdict()}
        runs = {name: [one._asdict() for one in runs] for name, runs in (("old", self.old), ("new", self.new))}
        return {"name": self.name, **ratios, "verdict": self.verdict, **runs}


def compare(line: Line, trees: dict[str, Path], pairs: int, bench: Bench) -> Result:
    """The tree that runs first changes with each pair."""
    runs: dict[str, list[Run]] = {name: [] for name in trees}
    for pair in range(pairs):
        for name in sorted(trees, reverse=pair % 2 == 0):  # old first, then new first, ...
            runs[name].append(run(line, trees[name], bench))
        old, new = runs["old"][-1], runs["new"][-1]
        cpu = f", by CPU time {old.cpu_s / new.cpu_s:.3f}" if old.cpu_s and new.cpu_s else ""
        times = f"old {old.seconds:.4g} s, new {new.seconds:.4g} s, ratio {old.seconds / new.seconds:.3f}{cpu}"
        say(f"{line.name}: pair {pair + 1} of {pairs}: {times}")
    return Result(line.name, tuple(runs["old"]), tuple(runs["new"]))


def table(results: Sequence[Result], against: str) -> Table:
    rows = [
        [
            result.name, str(result.speed), str(result.by_cpu or ""), seconds(result.old), seconds(result.new),
            f"{result.spread:.2f}", result.verdict,
        ]
        for result in results
    ]  # fmt: skip
    columns = ["line", "speed, new over old", "by CPU time", "old", "new", "old: slowest / fastest", "verdict"]
    pairs, coverage = len(results[0].old), results[0].speed.coverage
    title = f"this tree against {against}: medians of {pairs} pairs, with intervals that cover {coverage:.1%}"
    return Table("compare", title, columns, rows)


def with_bars(found: Table) -> Table:
    """The table with the bar of each line, for the page."""
    rows = [
        [*row[:-1], _bar(*BARS[row[0]], float(row[1].split("**")[1])) if row[0] in BARS else ""] for row in found.rows
    ]
    return Table(found.name, found.title, [*found.columns[:-1], "floor / goal: reached"], rows)


def _bar(floor: float, goal: float, speed: float) -> str:
    return f"{floor:g} / {goal:g}: {'goal' if speed >= goal else 'floor' if speed >= floor else 'no'}"


def seconds(runs: Sequence[Run]) -> str:
    return f"{median(one.seconds for one in runs):.4g} s"


def chosen(known: Sequence[Line], only: Sequence[str]) -> list[Line]:
    """The lines that `only` names in full or by the beginning of their names; all if none is named."""
    names = [line.name for line in known]
    wanted: set[str] = set() if only else set(names)
    for start in only:
        found = [start] if start in names else [name for name in names if name.startswith(start)]
        if not found:
            raise SystemExit(f"no line begins with {start!r}; the lines are:\n" + "\n".join(names))
        wanted.update(found)
    return [line for line in known if line.name in wanted]


@contextmanager
def opened(against: str, rows_share: float) -> Iterator[tuple[Bench, dict[str, Path]]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sfd-compare-")))
        try:
            trees = {"old": extract(against, folder / "old"), "new": HERE}
        except NoHistoryError as error:
            raise SystemExit(str(error)) from None
        data = folder / "data"
        data.mkdir()
        yield Bench(data, stack, rows_share), trees


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default=RELEASED, metavar="REV", help=f"the old tree (default {RELEASED})")
    parser.add_argument("--only", action="append", default=[], help="lines whose names begin so; may be repeated")
    parser.add_argument("--pairs", type=int, default=11, help="runs of each tree for each line (default 11)")
    parser.add_argument("--matrix", type=Path, help="a scipy .npz of which the sketch is measured too, at ell = 50")
    parser.add_argument("--rows-share", type=float, default=1.0, help="this share of the rows for the workers")
    parser.add_argument("--list", action="store_true", help="print the names of the lines and stop")
    parser.add_argument("--json", type=Path, help="write all times to this file")
    parser.add_argument("--paste", action="store_true", help="write the table into docs/performance.md, with the bars")
    given = parser.parse_args()
    wanted = chosen(lines(given.matrix), given.only)
    if given.list:
        print("\n".join(line.name for line in wanted))
        return
    results: list[Result] = []
    load_before = os.getloadavg()[0]
    with opened(given.against, given.rows_share) as (bench, trees):
        for line in wanted:
            results.append(compare(line, trees, given.pairs, bench))
            if given.json:
                written = [result.as_dict() for result in results]
                given.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    found = table(results, given.against)
    found.show(Console(width=None if sys.stdout.isatty() else 150))
    print(f"{os.cpu_count()} cores; load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} at the end")
    if given.paste:
        paste([PAGE], [with_bars(found)])


if __name__ == "__main__":
    main()
