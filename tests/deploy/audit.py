"""`make audit`: known vulnerabilities of what the program needs, by pip-audit.

Exit code 0: none is known. 1: at least one is. 2: not everything could be checked. Behind a mirror that has packages
and no advisories, pip-audit itself ends with 0 and "No known vulnerabilities found".
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NO_DATA = "cannot reach the data of vulnerabilities (pypi.org); nothing was checked"


def judge(report: dict[str, Any] | None) -> tuple[int, list[str]]:
    """The exit code and the lines to print, for what pip-audit wrote; None where it wrote nothing."""
    packages = [] if report is None else report["dependencies"]
    checked = [package for package in packages if "skip_reason" not in package]
    if not checked:
        return 2, [NO_DATA]
    bad = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or 'none'}"
        for package in checked
        for found in package["vulns"]
    ]
    skipped = [
        f"{package['name']}: not checked: {package['skip_reason']}" for package in packages if package not in checked
    ]
    if bad:
        return 1, [*bad, *skipped]
    if skipped:
        return 2, skipped
    return 0, [f"no known vulnerability in the {len(checked)} packages that the program needs"]


def audit(program: Path) -> tuple[int, list[str]]:
    """What `judge` says about the first part of requirements.lock."""
    locked = (ROOT / "requirements.lock").read_text().partition("# == build:")[0]
    with tempfile.TemporaryDirectory(prefix="sfd-audit-") as name:
        requirements, written = Path(name) / "run.lock", Path(name) / "report.json"
        requirements.write_text(locked)
        command = [program, "--requirement", requirements, "--require-hashes", "--disable-pip", "--format", "json"]
        command += ["--progress-spinner", "off", "--output", written]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        code, lines = judge(json.loads(written.read_text()) if written.exists() else None)
    reason = (
        [f"pip-audit: {done.stderr.strip().splitlines()[-1]}"] if code == 2 and done.returncode and done.stderr else []
    )
    return code, [*lines, *reason]


if __name__ == "__main__":
    code, lines = audit(Path(sys.executable).parent / "pip-audit")
    sys.stdout.write("".join(f"audit: {line}\n" for line in lines))
    sys.exit(code)
