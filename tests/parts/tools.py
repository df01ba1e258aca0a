"""System tools that some tests need. Without one its tests are skipped, and a line at the end says what to install.

`make test` and `make test-page` install them where CI=true; there, a tool that is missing is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

INSTALL = {
    "promtool": "apt-get install -y prometheus",
    "prometheus": "apt-get install -y prometheus",
    "chromium": "apt-get install -y chromium",
    "npm": "apt-get install -y npm",
}
_REASON = "no tool"
_GRAFANA = ("@grafana/schema@11.6.0", "typescript@5.8.3")


def need(name: str) -> str:
    """The path of a tool; skips the test without it, or fails it where a machine promises to have everything."""
    found = shutil.which(name)
    return found if found is not None else _without(f"{name} (Debian: {INSTALL[name]})")


def _without(words: str) -> Any:
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{_REASON}, which CI must have: {words}", pytrace=False)
    pytest.skip(f"{_REASON}: {words}")


def grafana_types() -> Path:
    """A folder with Grafana's types and a TypeScript compiler, fetched once by npm."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sfd-stream" / "grafana-types-11.6.0"
    if not (cache / "node_modules" / ".bin" / "tsc").exists():
        npm = need("npm")
        cache.mkdir(parents=True, exist_ok=True)
        command = [
            npm,
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--prefix",
            str(cache),
            *_GRAFANA,
        ]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=240)
        except (subprocess.SubprocessError, OSError) as error:
            _without(f"npm could not fetch {' and '.join(_GRAFANA)} ({type(error).__name__})")
    return cache


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    without = [text.partition(_REASON + ": ")[2].rstrip("')") for text in skipped if _REASON + ": " in text]
    if without:
        wanted = ", ".join(sorted(set(without)))
        terminalreporter.write_line(f"{len(without)} tests need a tool and were skipped: install {wanted}", yellow=True)
