"""What building the package adds to its files: metadata that depends on where it is published, and compiled code.

The package index shows README.md far from the repository, so relative links would lead nowhere. SFD_REPOSITORY_URL
names the repository (`make dist REPOSITORY_URL=https://...`): links and pictures become absolute below it, and the
metadata gets the addresses of the repository. Without it no address is invented: such links become plain text.

The decoder in native/ is compiled by cargo. It needs no other package, so that an empty cache and no network will do,
and it has the interface of C, so that one library serves every Python. An editable install compiles it where cargo is
found and does without it elsewhere. A wheel has it only with SFD_COMPILED=1 (`install` in the Dockerfile), and fits
one platform then; SFD_COMPILED=auto compiles it where cargo is found, SFD_COMPILED=0 never.
`python hatch_build.py` compiles it for an editable install alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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


NATIVE = Path("native")
LIBRARY = Path("sfd_stream/wire/libsfd_decode.so")


def compiled(root: Path) -> Path:
    """The library, compiled. OSError where there is no cargo, CalledProcessError where it fails."""
    command = ["cargo", "build", "--release", "--offline", "--quiet", "--manifest-path", str(NATIVE / "Cargo.toml")]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, cwd=root)  # noqa: S603 - a fixed command
    return root / NATIVE / "target/release/libsfd_decode.so"


def installed(root: Path) -> str:
    """Compiles the library into the sources, where an editable install finds it. Returns what was done, in words."""
    target = root / LIBRARY
    try:
        built = compiled(root)
    except (OSError, subprocess.CalledProcessError) as error:
        target.unlink(missing_ok=True)
        return f"no compiled decoder ({error}): names and records are decoded by Python, which takes longer"
    fresh = target.with_suffix(".new")  # a process that has the old one open keeps it
    shutil.copyfile(built, fresh)
    fresh.replace(target)
    return f"compiled decoder: {LIBRARY}"


class Compile(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted, root = os.environ.get("SFD_COMPILED", ""), Path(self.root)
        if wanted == "0" or self.target_name != "wheel":
            return
        if version == "editable":
            self.app.display_info(installed(root))
        elif wanted in ("1", "install") or (wanted == "auto" and shutil.which("cargo")):
            build_data["force_include"][str(compiled(root))] = str(LIBRARY)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


if __name__ == "__main__":
    sys.stdout.write(installed(Path(__file__).parent) + "\n")
