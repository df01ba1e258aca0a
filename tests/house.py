"""`make house`: prints how readable the package is, by numbers that a newcomer would feel, each with its goal.

`--against REV` prints the same for another revision beside it.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
IDIOMS = re.compile(
    r"\b(whoever|anew|mend(?:s|ed|ing)?|reckon\w*|in good order|beside the loop|held back|told again"
    r"|so many|so long|but for)\b",
    re.IGNORECASE,
)
"""Words that a reader who is not a native speaker has to decode. Words with an ordinary meaning are left to readers."""

LATER = {
    "rows as they are": """wire/formats wire/features.py wire/flatten.py wire/compiled.py wire/reasons.py
        tools/preview.py kafka/schema_registry.py cli/decoder.py cli/commands/features.py""",
    "score": """score/ sketch/scoring sketch/basis.py sketch/intervals.py wire/scores.py wire/score_states.py
        doctor/scores.py wire/score_histograms.py cli/commands/basis.py cli/commands/drift.py
        cli/commands/score.py demo/anomalies.py""",
    "faults": "kafka/outage.py printable.py __main__.py sketch/features.py wire/sketch_files.py",
}
"""By issue: the folders and files of the package that were added after commit 75b2d4e."""

GROWN = {"rows as they are": 415, "score": 433, "faults": 1_879}
"""By issue: lines that its commits from 75b2d4e to e6469db, and from 8995ceb to 02976c9, added to other files. Faults:
also fixes of later issues."""


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    value: str
    goal: str


def bars(root: Path) -> list[Bar]:
    package = root / "sfd_stream"
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in sources.items()}
    folder, files = most_files(list(sources))
    lengths = [length for tree in trees.values() for length in function_lengths(tree)]
    twice = defined_twice(list(trees.values()))
    untested = imported_by_no_test(root, list(sources))
    way = way_of_a_row(root)
    readme = re.sub(r"```.*?```|<!--.*?-->", "", (root / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        Bar("files in one folder (cli/commands apart)", f"{files} ({folder.relative_to(root)})", "at most 18"),
        Bar("type names defined twice", f"{len(twice)} ({', '.join(twice[:5])})" if twice else "0", "0"),
        Bar("types and attributes named Host", str(sum(map(named_host, trees.values()))), "0"),
        Bar("modules imported by no test", str(len(untested)), "0"),
        Bar("modules without a test file of their name", str(len(without_own_test(root))), "0"),
        *lines_of_code({str(path.relative_to(package)): code_lines(text) for path, text in sources.items()}),
        Bar(
            "median and 90th percentile of function length",
            f"{statistics.median(lengths):.0f}, {percentile(lengths, 0.9)}",
            "8, 20",
        ),
        Bar(
            "lines of worker and loop, report.py apart",
            in_files(sum(map(lines, core(package))), len(core(package))),
            "1,700 in 13",
        ),
        Bar("functions from poll to offset commit", in_files(sum(map(len, way.values())), len(way)), "60 in 25 files"),
        Bar("idioms in code and pages", str(sum(len(IDIOMS.findall(text)) for text in texts(root))), "0"),
        Bar("words of the README", str(len(readme.split())), "about 700"),
    ]


def without_own_test(root: Path) -> list[str]:
    """Modules `a/b.py` of the package without a `tests/unit/a/test_b.py`."""
    modules = [path.relative_to(root / "sfd_stream") for path in (root / "sfd_stream").rglob("*.py")]
    return [
        str(module)
        for module in sorted(modules)
        if module.name != "__init__.py"
        and not (root / "tests" / "unit" / module.parent / f"test_{module.name}").exists()
    ]


def lines_of_code(counts: dict[str, int]) -> Iterator[Bar]:
    """All lines, those that later issues added, and the rest, which has the goal."""
    whole = sum(counts.values())
    yield Bar("lines of code without docstrings and comments", f"{whole:,}", "see the rest")
    for issue, places in LATER.items():
        own = sum(count for path, count in counts.items() if path.startswith(tuple(places.split())))
        whole -= own + GROWN[issue]
        yield Bar(f"- of {issue}", f"{own:,} in files of its own, {GROWN[issue]:,} in others", "listed apart")
    yield Bar("- of the rest", f"{whole:,} = {whole / 16_425:.3f} of 16,425", "0.93 of 16,425")


def in_files(count: int, files: int) -> str:
    return f"{count:,} in {files} files"


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def core(package: Path) -> list[Path]:
    """The worker's own files and those that it shares with the scorer. What reports on it is counted apart."""
    files = sorted((*package.glob("worker/*.py"), *package.glob("loop/*.py")))
    return [path for path in files if path.name not in ("__init__.py", "report.py")]


def way_of_a_row(root: Path) -> dict[str, list[str]]:
    """By file: the functions from poll to offset commit, as the table in docs/architecture.md lists them."""
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("### How far a row's way")[2].partition("\n## ")[0]
    listed = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    return {file.strip(" `"): [name.strip(" `") for name in names.split(",")] for file, names in listed}


def most_files(paths: list[Path]) -> tuple[Path, int]:
    counts = Counter(path.parent for path in paths if path.parent.parts[-2:] != ("cli", "commands"))
    return counts.most_common(1)[0]


def defined_twice(trees: list[ast.Module]) -> list[str]:
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1 and not name.startswith("_"))


def named_host(tree: ast.Module) -> int:
    types = sum(isinstance(node, ast.ClassDef) and node.name == "Host" for node in ast.walk(tree))
    return types + sum(isinstance(node, ast.Attribute) and node.attr == "_host" for node in ast.walk(tree))


def imported_by_no_test(root: Path, paths: list[Path]) -> list[str]:
    modules = {".".join(path.relative_to(root).with_suffix("").parts) for path in paths if path.stem != "__init__"}
    imported = set[str]()
    for path in (root / "tests").rglob("*.py"):
        imported.update(imports(ast.parse(path.read_text(encoding="utf-8"))))
    return sorted(modules - imported)


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def function_lengths(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))]


def code_lines(text: str) -> int:
    """Lines that hold code: no comment, no blank line, no string that stands alone."""
    alone = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            alone.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    held = set[int]()
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in silent:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - alone)


def texts(root: Path) -> Iterator[str]:
    for pattern in ("sfd_stream/**/*.py", "docs/**/*.md", "*.md", "config/*.yaml", "helm/**/*.md", "helm/**/*.yaml"):
        for path in root.glob(pattern):
            yield path.read_text(encoding="utf-8")


def of_revision(revision: str) -> list[Bar]:
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        return bars(Path(folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="REV", help="print the same for this revision, too")
    arguments = parser.parse_args()
    now = bars(ROOT)
    before = of_revision(arguments.against) if arguments.against else now
    for bar, old in zip(now, before, strict=True):
        value = f"{old.value} -> {bar.value}" if arguments.against else bar.value
        sys.stdout.write(f"{bar.name:<48} {value:<60} goal: {bar.goal}\n")


if __name__ == "__main__":
    main()
