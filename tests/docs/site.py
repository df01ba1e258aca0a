"""Makes a site of the pages, for mkdocs (`make docs-site`).

Pages link to files of the repository that are not pages: settings, the chart, the readme. On the site such a link
leads to the repository, whose address comes by the environment (SFD_REPOSITORY_URL). Without it, the link becomes
plain text. mkdocs checks all other links.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def is_page(target: Path) -> bool:
    return target.is_relative_to(DOCS) and target.suffix in {".md", ".svg", ".png"}


def outside_links(markdown: str, folder: Path, repository: str) -> str:
    """The page with its links out of the site replaced. Code is left alone."""

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link["path"]).resolve()
        if link["picture"] or is_page(target) or not target.exists():
            return link[0]
        if not repository:
            return link["text"]
        return f"[{link['text']}]({repository}/blob/main/{target.relative_to(DOCS.parent)}{link['anchor'] or ''})"

    parts = CODE.split(markdown)
    return "".join(part if at % 2 else LINK.sub(replaced, part) for at, part in enumerate(parts))


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    repository = os.environ.get("SFD_REPOSITORY_URL", "").rstrip("/")
    return outside_links(markdown, Path(page.file.abs_src_path).parent, repository)
