"""`make audit` never takes "could not look" for "nothing found"; `make sbom` lists what the program needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sfd_stream import __version__
from tests.deploy.audit import NO_DATA, ROOT, audit, judge
from tests.deploy.test_lock import FOREIGN, names

GOOD = {"name": "numpy", "version": "2.3.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.10", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
SKIPPED = {"name": "scipy", "skip_reason": "not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([GOOD], 0, "no known vulnerability in the 1 packages"),
        ([GOOD, BAD], 1, "jinja2 2.10: PYSEC-2019-217, fixed in 2.10.1"),
        ([BAD, SKIPPED], 1, "scipy: not checked"),
        ([GOOD, SKIPPED], 2, "scipy: not checked: not found on PyPI"),
        ([SKIPPED], 2, NO_DATA),  # a mirror without advisories: pip-audit ends with 0
        (None, 2, NO_DATA),
    ],
)
def test_what_was_not_checked_is_not_called_good(packages: list[dict[str, Any]] | None, code: int, words: str) -> None:
    found, lines = judge(None if packages is None else {"dependencies": packages})
    assert found == code
    assert words in "\n".join(lines)


def test_a_pip_audit_that_reaches_nothing_is_said(tmp_path: Path) -> None:
    """The real one, with a proxy that refuses."""
    program = tmp_path / "pip-audit"
    real = Path(sys.executable).parent / "pip-audit"
    program.write_text(f'#!/bin/sh\nHTTPS_PROXY=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 exec {real} "$@"\n')
    program.chmod(0o755)
    code, lines = audit(program)
    assert code == 2
    assert lines[0] == NO_DATA
    assert lines[1].startswith("pip-audit: ")


@pytest.mark.slow
def test_the_sbom_lists_exactly_what_the_program_needs(tmp_path: Path) -> None:
    file = tmp_path / "sbom.json"
    subprocess.run(["make", "sbom", f"SBOM={file}"], cwd=ROOT, check=True, capture_output=True, timeout=300)
    bom = json.loads(file.read_text())
    assert bom["bomFormat"] == "CycloneDX"
    ours = bom["metadata"]["component"]
    assert (ours["name"], ours["version"]) == ("sfd-stream", __version__)
    assert {part["name"].lower().replace("_", "-") for part in bom["components"]} == names("run") - FOREIGN
    unlicensed = {part["name"] for part in bom["components"] if not part.get("licenses")}
    assert unlicensed <= {"protobuf"}, "its metadata names no licence, the others' do"
    assert [one for one in bom["dependencies"] if one["ref"] == ours["bom-ref"] and one["dependsOn"]]
