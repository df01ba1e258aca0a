"""`python -m benchmarks.sketch`: how fast and how good is the sketch, beside what else there is?

One BLAS thread. Contenders take turns, and the best run counts; ratios are of CPU time.
"""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy
import typer
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks import checks, figures
from benchmarks.contenders import FD_SVD, FUSED, RIVALS, compare, contenders
from benchmarks.data import QUICK_SWEEPS, RIVAL_STREAMS, STREAMS, SWEEPS, TARGETS, load, sweep_shapes
from benchmarks.tables import Results, paste, tables

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = (DOCS / "experiments.md", DOCS.parent / "README.md")
SECTIONS = ("targets", "sweeps", "checks", "routes", "tightness", "rivals")
ELLS = (10, 20, 50, 100)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(help=__doc__)
def main(
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(SECTIONS)}; may be repeated.")] = None,
    matrix: Annotated[list[Path] | None, typer.Option(help="A scipy .npz to sketch, instead of the sections.")] = None,
    ell: Annotated[list[int] | None, typer.Option(help=f"Sketch sizes for --matrix (default {ELLS}).")] = None,
    contender: Annotated[list[str] | None, typer.Option(help="Who runs in sweeps and --matrix (default: all).")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A minute's run: fewer turns, points and rows.")] = False,
    long: Annotated[bool, typer.Option("--long", help="Also ten million rows of ten non-zeros.")] = False,
    rounds: Annotated[int, typer.Option(help="Turns of each contender, at most.")] = 7,
    budget_s: Annotated[
        float, typer.Option(help="A contender that took this long on a matrix has no more turns.")
    ] = 8.0,
    json_path: Annotated[
        Path | None, typer.Option("--json", help="Add the results to this file (made if absent).")
    ] = None,
    draw: Annotated[bool, typer.Option("--figures", help="Draw docs/figures, paste tables into the pages.")] = False,
    redraw: Annotated[bool, typer.Option("--no-run", help="Measure nothing: show what the --json file has.")] = False,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 150)
    known = json.loads(json_path.read_text(encoding="utf-8")) if json_path and json_path.exists() else {}
    if not redraw:
        rounds, budget_s = (3, 1.0) if quick else (rounds, budget_s)
        with threadpool_limits(1):
            run = Run(rounds, budget_s, names=chosen(contender, quick=quick), quick=quick, console=console)
            found = run.matrices(matrix, ell or list(ELLS), known) if matrix else run.sections(only or list(SECTIONS))
            if long:
                found = joined(found, {"checks": _by_name([checks.long_stream()])})
        known = joined(known, {**found, "machine": machine()})
    made = tables(known)
    for table in made:
        table.show(console)
    console.print(known.get("machine", ""))
    if json_path and not redraw:
        json_path.write_text(json.dumps(known, indent=1, default=float) + "\n", encoding="utf-8")
    if draw:
        for path in figures.draw(known, DOCS / "figures"):
            console.print(f"drew {path.relative_to(DOCS.parent)}")
        paste(PAGES, made)


def machine() -> str:
    return (
        f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, scipy {scipy.__version__}, "
        "one BLAS thread; best of interleaved runs"
    )


def chosen(names: list[str] | None, *, quick: bool) -> list[str]:
    """Who was asked for; a name that nobody has is an error that lists those there are."""
    known = list(contenders())
    unknown = set(names or ()) - set(known)
    if unknown:
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: contenders are {', '.join(known)}")
    return names or ([FUSED, FD_SVD, "sparse-shrink"] if quick else known)


class Run:
    """The sections of one run; each gives plain JSON."""

    def __init__(self, rounds: int, budget_s: float, *, names: list[str], quick: bool, console: Console) -> None:
        self.rounds = rounds
        self.budget_s = budget_s
        self.names = names
        self.quick = quick
        self.console = console

    def sections(self, names: list[str]) -> Results:
        unknown = set(names) - set(SECTIONS)
        if unknown:
            raise typer.BadParameter(f"{', '.join(sorted(unknown))}: sections are {', '.join(SECTIONS)}")
        found: Results = {}
        for name in SECTIONS:
            if name in names:
                self.console.print(f"measuring {name} ...")
                found = joined(found, getattr(self, name)())
        return found

    def targets(self) -> Results:
        """FD by SVD against fused where there is a floor and a goal; in turns."""
        return {
            "targets": {
                target.name: self._scores(target.shape.matrix(), target.shape.ell, [FUSED, FD_SVD])
                for target in TARGETS
            }
        }

    def sweeps(self) -> Results:
        points = []
        for axis, shape in sweep_shapes(QUICK_SWEEPS if self.quick else SWEEPS):
            self.console.print(f"  {axis} = {getattr(shape, axis):,}")
            scores = self._scores(shape.matrix(), shape.ell, self.names)
            points.append({"axis": axis, "shape": asdict(shape), "scores": scores})
        return {"sweeps": points}

    def matrices(self, paths: list[Path], ells: list[int], known: Results) -> Results:
        """Every file at every ell; a run of the same file and ell that is known already is replaced."""
        runs = list(known.get("matrices", []))
        for path in paths:
            A = load(path)
            for ell in ells:
                self.console.print(f"  {path.stem}: {A.shape[0]:,} x {A.shape[1]:,}, {A.nnz:,} non-zeros, ell = {ell}")
                scores = self._scores(A, ell, self.names)
                runs = [run for run in runs if (run["name"], run["ell"]) != (path.stem, ell)]
                sizes = {"n": A.shape[0], "d": A.shape[1], "nnz": A.nnz, "ell": ell}
                runs.append({"name": path.stem, **sizes, "scores": scores})
        return {"matrices": runs}

    def checks(self) -> Results:
        rounds = self.rounds
        found = [
            checks.linear_in_n(rounds),
            checks.linear_in_nnz(rounds),
            checks.flat_in_d(rounds),
            checks.steady_state(50_000 if self.quick else 1_000_000),
            checks.certifying_share(rounds),
            checks.peak_memory(1_000),
            checks.peak_memory(20_000),
        ]
        return {"checks": _by_name(found)}

    def routes(self) -> Results:
        densities = checks.DENSITIES[1::3] if self.quick else checks.DENSITIES
        check, rows = checks.routes(self.rounds, densities)
        return {"checks": _by_name([check]), "routes": rows}

    def tightness(self) -> Results:
        return {"tightness": checks.tightness(STREAMS[:4] if self.quick else STREAMS)}

    def rivals(self) -> Results:
        """Alternatives; gensim and fbpca where they are installed."""
        return {
            "rivals": {
                f"{stream.name}, ell={stream.ell}": self._scores(stream.matrix(), stream.ell, RIVALS)
                for stream in RIVAL_STREAMS
            }
        }

    def _scores(self, A: Any, ell: int, names: list[str]) -> list[dict[str, Any]]:
        scores = compare(A, ell, names, rounds=self.rounds, budget_s=self.budget_s)
        return [score.as_dict() for score in scores]


def _by_name(found: list[checks.Check]) -> dict[str, Any]:
    return {check.name: check.as_dict() for check in found}


def joined(known: Results, found: Results) -> Results:
    """What was found now in place of what was known; checks are joined by name."""
    return {**known, **found, "checks": {**known.get("checks", {}), **found.get("checks", {})}}


if __name__ == "__main__":
    app()
