"""Results as tables: the same for a terminal, docs/experiments.md and README.md, so that no figure there is typed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from benchmarks.contenders import FD_SVD, FUSED
from benchmarks.data import TARGETS

Results = dict[str, Any]
"""What a run found, section by section, as plain JSON."""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    """Also the marker's name on the pages."""
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self, console: Console) -> None:
        table = RichTable(title=self.title, title_justify="left")
        for number, column in enumerate(self.columns):
            table.add_column(column, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*(cell.replace("**", "") for cell in row))
        console.print(table)

    def markdown(self) -> str:
        lines = [self.columns, ["---", *["---:"] * (len(self.columns) - 1)], *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def tables(results: Results) -> list[Table]:
    """Every table for which the results have something."""
    made = [
        _targets(results),
        _sweeps(results),
        _matrices(results),
        _tightness(results),
        _routes(results),
        _checks(results),
        _rivals(results),
        _stream(results),
        _readme(results),
    ]
    return [table for table in made if table.rows]


def _targets(results: Results) -> Table:
    rows = []
    for target in TARGETS:
        scores = {score["name"]: score for score in results.get("targets", {}).get(target.name, [])}
        if not scores:
            continue
        fused, fd = scores[FUSED], scores[FD_SVD]
        ratio = fd["cpu_s"] / fused["cpu_s"]
        error = fused["cov_err"] / fd["cov_err"]
        rows.append(
            [
                target.name,
                f"{target.floor:g}",
                f"{target.goal:g}",
                f"**{ratio:.1f}**",
                f"{fd['wall_s'] / fused['wall_s']:.1f}",
                target.verdict(ratio),
                _ms(fd["cpu_s"]),
                _ms(fused["cpu_s"]),
                f"{error:.2f}" + ("" if error <= 1 else " (worse)"),
            ]
        )
    columns = ["", "floor", "goal", "CPU ratio", "wall ratio", "verdict", "FD CPU ms", "fused CPU ms", "cov-err / FD's"]
    title = "FD by numpy's SVD / fused: the ratio of the best CPU times of interleaved runs decides"
    return Table("targets", title, columns, rows)


def _sweeps(results: Results) -> Table:
    rows = [
        [point["axis"], f"{point['shape'][point['axis']]:,}", *_score_cells(score)]
        for point in results.get("sweeps", [])
        for score in point["scores"]
    ]
    return Table("sweeps", "The paper's four sweeps (defaults n=10,000 d=1,000 ell=50 z=100)", ["", "", *SCORE], rows)


def _matrices(results: Results) -> Table:
    rows = [
        [f"{run['name']} {run['n']:,} x {run['d']:,}, ell={run['ell']}", *_score_cells(score)]
        for run in results.get("matrices", [])
        for score in run["scores"]
    ]
    return Table("matrices", "Matrices from files", ["", *SCORE], rows)


SCORE = ["method", "CPU ms", "wall ms", "runs", "cov-err", "proj-err (k=10)", "delta / error"]


def _score_cells(score: dict[str, Any]) -> list[str]:
    return [
        score["name"],
        _ms(score["cpu_s"]),
        _ms(score["wall_s"]),
        str(score["runs"]),
        f"{score['cov_err']:.5f}",
        f"{score['proj_err']:.4f}",
        "" if score["tightness"] is None or isnan(score["tightness"]) else f"{score['tightness']:.2f}",
    ]


def _tightness(results: Results) -> Table:
    rows = [
        [
            row["name"],
            f"{row['cov_err']:.5f}",
            f"{row['tightness']:.2f}",
            f"{row['most']:g}",
            _reached(row["tightness"] <= row["most"]),
            str(row["shrinks"]),
        ]
        for row in results.get("tightness", [])
    ]
    columns = ["", "cov-err", "delta / error", "aim", "", "shrinks"]
    return Table("tightness", "How tight the certificate is", columns, rows)


def _routes(results: Results) -> Table:
    rows = [
        [
            f"ell={row['ell']}",
            f"{row['density']:g}",
            _ms(row["chosen"]),
            _ms(row["sparse"]),
            _ms(row["dense"]),
            f"{row['factor']:.2f}",
        ]
        for row in results.get("routes", [])
    ]
    columns = ["", "density", "chosen ms", "sparse ms", "dense ms", "chosen / better"]
    return Table("routes", "Dense or sparse products, forced and chosen (CPU)", columns, rows)


def _checks(results: Results) -> Table:
    rows = [[c["name"], c["measured"], c["limit"], _reached(c["reached"])] for c in results.get("checks", {}).values()]
    return Table("checks", "Further checks", ["", "measured (CPU time)", "limit", ""], rows)


def _rivals(results: Results) -> Table:
    rows = [
        [score["name"], *(cells[i] for i in (1, 4, 5)), cells[6] or "not certified"]
        for scores in results.get("rivals", {}).values()
        for score in scores
        for cells in [_score_cells(score)]
    ]
    names = [name for name, scores in results.get("rivals", {}).items() for _ in scores]
    rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    title = "Alternatives"
    return Table("rivals", title, ["rows", "method", "CPU ms", "cov-err", "proj-err (k=10)", "delta / error"], rows)


def _stream(results: Results) -> Table:
    """Shares of the in-memory rate, of `python -m benchmarks.stream --json` into the same file."""
    found = results.get("stream", {})
    names = {
        "packed": "packed rows",
        "blocks": "blocks of 100 rows",
        "list": "lists of numbers",
        "slow store": "packed rows, every call to the store 200 ms late",
    }
    rows = [
        [name, f"{found[form]['rate']:,.0f}", f"{found[form]['rate'] / found['in_memory']:.2f}"]
        for form, name in names.items()
        if form in found
    ]
    if rows:
        rows.insert(0, ["in memory, by partial_fit", f"{found['in_memory']:,.0f}", "1"])
    if "long" in found:
        early, late = (kib / 1024 for kib in found["long"]["largest_kib"].values())
        name = f"10,000,000 rows of 10 non-zeros: {early:.0f} MB after a tenth, {late:.0f} MB at the end"
        rows.append([name, f"{found['long']['rate']:,.0f}", ""])
    return Table("stream", "From a topic to a checkpointed sketch", ["rows as", "rows / s", "of it"], rows)


def _readme(results: Results) -> Table:
    """What the README quotes; each line with the command that reprints it."""
    rows: list[list[str]] = []
    for row in _targets(results).rows:
        if row[0] in QUOTED_TARGETS:
            said = f"{row[3]} times less CPU time, error {row[8]} of its"
            rows.append([f"against Frequent Directions by numpy's SVD, {QUOTED_TARGETS[row[0]]}", said, _by("targets")])
    checks = results.get("checks", {}).values()
    rows += [[c["name"], c["measured"], QUOTED_CHECKS[c["name"]]] for c in checks if c["name"] in QUOTED_CHECKS]
    for row in _stream(results).rows:
        if row[0] == "packed rows":
            said = f"{row[1]} rows a second, {row[2]} of the rate in memory"
            rows.append([f"Kafka to checkpointed sketch, one worker, {row[0]}", said, "`python -m benchmarks.stream`"])
    return Table("readme", "What the README quotes", ["", "measured", "reprinted by"], rows)


def _by(section: str) -> str:
    return f"`python -m benchmarks.sketch --only {section}`"


QUOTED_TARGETS = {"default (z=100)": "100 of 1,000 columns non-zero"}
QUOTED_CHECKS = {"10,000,000 rows of 10 non-zeros in flat memory": _by("checks --long")}


def _reached(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def paste(pages: Sequence[Path], made: list[Table]) -> None:
    """Put each table between its markers `<!-- bench:name -->` and `<!-- /bench:name -->`, wherever they are."""
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    for table in made:
        opening, closing = f"<!-- bench:{table.name} -->", f"<!-- /bench:{table.name} -->"
        pattern = re.compile(re.escape(opening) + ".*?" + re.escape(closing), re.DOTALL)
        places = [page for page, text in texts.items() if pattern.search(text)]
        if not places:
            raise SystemExit(f"no page has a place for the table {table.name}: add {opening} and {closing}")
        body = f"{opening}\n{table.markdown()}\n{closing}"
        for page in places:
            texts[page] = pattern.sub(lambda _, body=body: body, texts[page])  # type: ignore[misc]
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
