"""What a release is made of: one version everywhere, and notes from CHANGELOG.md.

python -m tests.deploy.release check v0.2.0 IMAGE_NAME      (make release-check TAG=v0.2.0 NEEDED=IMAGE_NAME)
python -m tests.deploy.release notes                         (make release-notes)
python -m tests.deploy.release chart FOLDER IMAGE HOME       (make chart-package, on a copy of the chart)
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from hatch_build import LINK, absolute
from sfd_stream import __version__

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>.+))?$", re.MULTILINE)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def sections(changelog: str) -> dict[str, tuple[str | None, str]]:
    """By version, its date and its text."""
    found = list(SECTION.finditer(changelog))
    ends = [section.start() for section in found[1:]] + [len(changelog)]
    return {
        section["version"]: (section["date"], changelog[section.end() : end].strip())
        for section, end in zip(found, ends, strict=True)
    }


def notes(changelog: str, version: str) -> str:
    """What the changelog says of a version. The heading is left out: a release has a title of its own."""
    _, text = sections(changelog)[version]
    return text + "\n"


def problems(tag: str, root: Path = ROOT) -> Iterator[str]:
    """Why this tag cannot be released."""
    if tag != f"v{__version__}":
        yield f"the tag is {tag or 'missing'}, and sfd_stream.__version__ is {__version__}"
    date, text = sections((root / "CHANGELOG.md").read_text()).get(__version__, (None, ""))
    if not DATE.fullmatch(date or "") or not text:
        yield f"CHANGELOG.md has no dated section with text for {__version__}"
    chart = yaml.safe_load((root / "helm" / "sfd-stream" / "Chart.yaml").read_text())
    if chart["appVersion"] != __version__:
        yield f"Chart.yaml has appVersion {chart['appVersion']}: run make chart"
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    if (citation["version"], str(citation["date-released"])) != (__version__, date):
        yield f"CITATION.cff has version {citation['version']} of {citation['date-released']}"


def missing(needed: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Which variables of the repository, by the environment of the workflow, are not set."""
    for name in filter(None, needed.split(",")):
        if not environ.get(name):
            yield f"the repository's variable {name} is not set: docs/reference/releasing.md lists them"


def address_chart(chart: Path, image: str, home: str) -> None:
    """Writes into a copy of the chart where its image and its home are. What is not known stays out."""
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("\n  repository: sfd-stream\n", f"\n  repository: {image}\n"))
    if home:
        about = chart / "Chart.yaml"
        about.write_text(f"{about.read_text()}home: {home}\nsources: [{home}]\n")
    for page in (chart / "README.md", chart / "UPGRADING.md"):
        page.write_text(absolute(from_the_root(page.read_text(), "helm/sfd-stream"), home, __version__))


def from_the_root(text: str, folder: str) -> str:
    """The text of a page in `folder`, with links from the root of the repository."""

    def moved(link: re.Match[str]) -> str:
        return f"{link['picture']}[{link['text']}]({posixpath.normpath(posixpath.join(folder, link['path']))})"

    return LINK.sub(moved, text)


def main(arguments: list[str]) -> int:
    command, *rest = [*arguments, "", "", ""]
    if command == "notes":
        sys.stdout.write(notes((ROOT / "CHANGELOG.md").read_text(), __version__))
        return 0
    if command == "chart":
        address_chart(Path(rest[0]), rest[1], rest[2].rstrip("/"))
        return 0
    found = [*problems(rest[0]), *missing(rest[1], os.environ)]
    sys.stdout.write("".join(f"release: {problem}\n" for problem in found) or f"release: {__version__} is consistent\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
