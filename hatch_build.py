"""The package's metadata that depends on where the project is published.

The package index shows README.md far from the repository, so relative links would lead nowhere. SFD_REPOSITORY_URL
names the repository (`make dist REPOSITORY_URL=https://...`): links and pictures become absolute below it, and the
metadata gets the addresses of the repository. Without it no address is invented: such links become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

METHOD = "https://arxiv.org/abs/1602.00412"
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!https?:|mailto:|#)(?P<path>[^)\s]+)\)")


def absolute(readme: str, repository: str, version: str) -> str:
    """The text with absolute links; without a repository, links are text and pictures are left out."""

    def replaced(link: re.Match[str]) -> str:
        if not repository:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/v{version}/{link['path']})"

    return LINK.sub(replaced, readme)


def addresses(repository: str, version: str) -> dict[str, str]:
    if not repository:
        return {"Method": METHOD}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/v{version}/docs/index.md",
        "Changelog": f"{repository}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Method": METHOD,
    }


class Metadata(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("SFD_REPOSITORY_URL", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        version = str(metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, repository, version)}
        metadata["urls"] = addresses(repository, version)
