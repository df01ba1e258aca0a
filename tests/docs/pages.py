"""The pages of the project and what stands in them: fenced blocks with their notes and outputs, links, headings.

A block of `sh`, `console` or `python` is run by a test (tests/docs/playing.py) unless a comment right above it says
why not, or that a command pasted the whole of it:

    <!-- not run: needs a cluster -->          <!-- capture NAME -->

A block that needs what later blocks make runs after them, under `<!-- run last: why -->`.

What a block prints may follow it, pasted by `python -m tests.docs.paste`, under one of two comments:

    <!-- output -->                    the same on every run
    <!-- output: numbers differ -->    the same except numbers: times, ages, ports
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUNNABLE = {"sh", "console", "python"}
OTHER_NAMES = {"bash": "sh", "shell": "sh", "zsh": "sh", "py": "python", "pycon": "python"}
"""Names of languages that mean one of ours: a page must not use them, or a block would go unrun."""

FENCE = re.compile(
    r"(?:^<!--\ (?P<note>[^\n]*?)\ -->\n)?"
    r"^```(?P<kind>\w*)\n(?P<code>.*?)^```$"
    r"(?:\n+<!--\ output(?P<loose>:\ numbers\ differ)?\ -->\n```\n(?P<output>.*?)^```$)?",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    kind: str
    code: str
    note: str
    """The comment right above it, or nothing."""
    output: str | None
    """What the page says that it prints."""
    loose: bool
    """Whether numbers in the output may differ."""
    span: tuple[int, int]
    """Where the output stands in the page's text."""

    @property
    def place(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    @property
    def reason_not_run(self) -> str | None:
        found = re.fullmatch(r"not run: (.+)", self.note)
        return found and found[1]

    @property
    def capture(self) -> str | None:
        """The name of the capture that this block is, pasted whole by a command."""
        found = re.fullmatch(r"capture ([\w-]+)", self.note)
        return found and found[1]

    @property
    def runs_last(self) -> bool:
        return self.note.startswith("run last: ")

    @property
    def runs(self) -> bool:
        return self.kind in RUNNABLE and self.reason_not_run is None and self.capture is None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("kind")) + 1,
            kind=found["kind"],
            code=found["code"],
            note=found["note"] or "",
            output=found["output"],
            loose=found["loose"] is not None,
            span=found.span("output"),
        )
        for found in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """What `#...` may say of a page: its headings as GitHub writes them."""
    seen: dict[str, int] = {}
    made = set()
    for heading in re.findall(r"^#{1,6} (.+?)\s*$", prose(page), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        again = seen.get(slug, 0)
        seen[slug] = again + 1
        made.add(f"{slug}-{again}" if again else slug)
    return made


def links(page: Path) -> list[str]:
    """Where its links and pictures point, Markdown's and HTML's."""
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:href|src|srcset)="([^"]+)"', text)
