"""`python -m tests.docs.paste [PAGE ...]`: plays the pages and writes what they printed, and drew, into them."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

from sfd_stream.config.model import InputSettings
from sfd_stream.config.types import size_text
from tests.docs.pages import PAGES, Block, links, name_of
from tests.docs.playing import play


def same(block: Block, printed: str) -> bool:
    """Whether the page shows what was printed; where numbers may differ, except them and the room they take."""
    assert block.output is not None
    return _words(printed) == _words(block.output) if block.loose else clean(printed) == block.output


def clean(printed: str) -> str:
    """As pages have it: no spaces at the ends of lines, one end of line at the end."""
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _words(text: str) -> list[str]:
    numberless = re.sub(r"[+-]?\d[\d,.]*(e[+-]?\d+)?", "0", text)
    return re.sub(r"─+", "─", numberless).split()


def pictures_made(page: Path, folder: Path) -> list[tuple[Path, Path]]:
    """Pictures that the page made in the folder, each with its place in docs/pictures."""
    shown = [page.parent / link for link in links(page) if "pictures/" in link]
    return [(folder / picture.name, picture) for picture in shown if (folder / picture.name).exists()]


def paste(page: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="sfd-docs-") as name:
        played = play(page, Path(name))
        text = page.read_text(encoding="utf-8")
        for block, printed in reversed(played):
            if block.output is not None and not same(block, printed):
                start, end = block.span
                text = text[:start] + clean(printed) + text[end:]
        page.write_text(text, encoding="utf-8")
        for picture, shown in pictures_made(page, Path(name)):
            shutil.copy(picture, shown)


LIMITS = {
    "max_message_bytes": "bytes of a message",
    "max_message_nnz": "indices of a message",
    "max_message_rows": "rows of a block",
    "max_name_bytes": "bytes of a string",
}


def limits_table() -> str:
    """The table of limits in docs/reference/formats.md: the settings' own defaults."""
    rows = ["| what | most | setting |", "|---|---|---|"]
    for name, words in LIMITS.items():
        default = InputSettings.model_fields[name].default
        most = size_text(default) if default % 2**20 == 0 else f"{default:,}"
        rows.append(f"| {words} | {most.replace('MiB', ' MiB')} | `input.{name}` |")
    return "\n".join(rows) + "\n"


def paste_limits(page: Path) -> None:
    head, _, rest = page.read_text(encoding="utf-8").partition("<!-- limits -->\n")
    page.write_text(f"{head}<!-- limits -->\n{limits_table()}<!-- /limits -->{rest.partition('<!-- /limits -->')[2]}")


if __name__ == "__main__":
    wanted = [Path(argument).resolve() for argument in sys.argv[1:]] or PAGES
    for page in wanted:
        sys.stdout.write(f"{name_of(page)}\n")
        if page.name == "formats.md":
            paste_limits(page)
        paste(page)
