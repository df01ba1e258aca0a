"""The lock's first part is what the program needs, no more and no less; the image installs that part alone."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FORMATS = ("avro", "protobuf", "registry")
"""Extras that the image has."""
FOREIGN = {"colorama", "httpx2-jsfetch"}
"""Packages that the program needs on other systems alone."""
LOCK = (ROOT / "requirements.lock").read_text()


def names(part: str) -> set[str]:
    body = LOCK.partition(f"# == {part}:")[2].partition("# == ")[0]
    return set(re.findall(r"^([a-z0-9-]+)==", body, re.MULTILINE))


def needed(package: str, seen: set[str], extras: tuple[str, ...] = ("",)) -> set[str]:
    """The package's requirements on this machine, and theirs, without extras but those given."""
    for text in requires(package) or []:
        requirement = Requirement(text)
        name, marker = canonicalize_name(requirement.name), requirement.marker
        if name not in seen and (marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)):
            seen.add(name)
            needed(name, seen)
    return seen - {package}


def test_the_first_part_is_what_the_program_needs() -> None:
    assert names("run") - FOREIGN == needed("sfd-stream", set(), ("", *FORMATS))


def test_the_page_of_what_is_in_the_image_has_these_packages() -> None:
    page = (ROOT / "docs" / "reference" / "image.md").read_text()
    shown = {
        (re.sub(r"[-_.]+", "-", name), version)
        for name, version in re.findall(r"^\| ([a-z0-9._-]+) \| ([^ |]+) \| .* \| [\d,]+ \|$", page, re.MULTILINE)
    }
    body = LOCK.partition("# == run:")[2].partition("# == ")[0]
    locked = {pair for pair in re.findall(r"^([a-z0-9-]+)==(\S+)", body, re.MULTILINE) if pair[0] not in FOREIGN}
    others = {pair for pair in shown if pair[0] != "sfd-stream"}
    assert others <= locked, "stale: python -m tests.deploy.image.contents"
    assert {name for name, _ in others} == {name for name, _ in locked}  # some have a version for each Python


def test_the_parts_are_apart_and_hold_what_builds() -> None:
    assert "hatchling" in names("build")
    assert not names("run") & names("build")
    assert (names("run") | names("build")) & names("rest") <= FOREIGN
    assert re.search(r"^colorama==\S+ ; sys_platform == .win32. ", LOCK.partition("# == build:")[0], re.MULTILINE)


def test_every_package_has_a_hash_and_no_host_is_named() -> None:
    for block in re.split(r"\n(?=[a-z0-9])", LOCK.partition("\n")[2]):
        assert "--hash=sha256:" in block, block[:60]
    assert "://" not in LOCK


def test_the_dockerfile_has_nothing_against_it() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    answer = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
