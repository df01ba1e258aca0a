"""System tools that some tests need. Without one its tests are skipped, and a line at the end says what to install.

`make test` and `make test-page` install them where CI=true; there, a skip is a failure (skips.py).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.cache import cache_folder, filled_once

INSTALL = {
    "promtool": "apt-get install -y prometheus",
    "prometheus": "apt-get install -y prometheus",
    "chromium": "apt-get install -y chromium",
    "node": "apt-get install -y nodejs",
    "npm": "apt-get install -y npm",
    "mvn": "apt-get install -y maven",
    "go": "the newest, from the makers of Go",
}
_REASON = "no tool"
GRAFANA_VERSION = "11.6.0"
_GRAFANA = (f"@grafana/schema@{GRAFANA_VERSION}", "typescript@5.8.3")


def need(name: str) -> str:
    """The path of a tool; skips the test without it."""
    found = shutil.which(name)
    return found if found is not None else _without(f"{name} (Debian: {INSTALL[name]})")


def _without(words: str) -> Any:
    pytest.skip(f"{_REASON}: {words}")


def grafana_types() -> Path:
    """A folder with Grafana's types and a TypeScript compiler."""
    return npm_packages(f"grafana-types-{GRAFANA_VERSION}", _GRAFANA)


def npm_packages(name: str, packages: Sequence[str]) -> Path:
    """A folder that holds these in `node_modules`, fetched once by npm."""

    def install(folder: Path) -> None:
        options = ["--silent", "--no-audit", "--no-fund", "--no-save", "--prefix", str(folder)]
        subprocess.run([need("npm"), "install", *options, *packages], check=True, capture_output=True, timeout=240)

    try:
        return filled_once(cache_folder() / "npm" / name, install)
    except (subprocess.SubprocessError, OSError) as error:
        return _without(f"npm could not fetch {' and '.join(packages)} ({type(error).__name__})")


def go_program(package: str, *flags: str) -> Path:
    """A program that Go builds from `module/path@version`, once per machine."""
    name = package.partition("@")[0].rpartition("/")[2]

    def install(folder: Path) -> None:
        command, environment = [need("go"), "install", *flags, package], {**os.environ, "GOBIN": str(folder)}
        subprocess.run(command, check=True, capture_output=True, timeout=500, env=environment, cwd=folder)

    try:
        return filled_once(cache_folder() / "go" / package.replace("/", "_"), install) / name
    except (subprocess.SubprocessError, OSError) as error:
        return _without(f"Go could not build {package} ({type(error).__name__})")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    without = [text.partition(_REASON + ": ")[2].rstrip("')") for text in skipped if _REASON + ": " in text]
    if without:
        wanted = ", ".join(sorted(set(without)))
        terminalreporter.write_line(f"{len(without)} tests need a tool and were skipped: install {wanted}", yellow=True)
