"""Laws of the tests themselves: what is downloaded once is complete for every process that asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW_NPM = """#!{python}
import pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1], "node_modules")
folder.mkdir()  # fails where another npm fills the same folder, or has filled it
time.sleep(2)
(folder / "complete").touch()
"""
ASK = """
from tests.support.tools import npm_packages
print("complete" if (npm_packages("some", ["kafkajs@1"]) / "node_modules" / "complete").exists() else "torn")
"""
GROUPED = """
import pytest

@pytest.mark.parametrize("number", range(8))
@pytest.mark.xdist_group("one")
def test_grouped(number, worker_id): print(f"worker={worker_id}")
"""


def test_every_process_gets_a_complete_folder(tmp_path: Path) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text(SLOW_NPM.format(python=sys.executable))
    npm.chmod(0o755)
    path = f"{npm.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ASK]
    asking = [
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, encoding="utf-8") for _ in range(4)
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in asking] == ["complete"] * 4


@pytest.mark.slow
def test_a_group_of_tests_runs_in_one_process(tmp_path: Path) -> None:
    """Broken silently by pytest 9.2: every process started its own S3 server, secured broker and download."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup", "-rP"]
    done = subprocess.run(
        [*command, str(tmp_path), "--rootdir", str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    workers = {line for line in done.stdout.splitlines() if line.startswith("worker=")}
    assert len(workers) == 1, workers
