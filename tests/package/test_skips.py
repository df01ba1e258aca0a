"""Laws of the tests themselves: where CI=true nothing is left out unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

@pytest.fixture
def part(): pytest.skip("no such part")

def test_in_a_fixture(part): ...
def test_in_a_test(): pytest.skip("no right to")
@pytest.mark.skipif(True, reason="not today")
def test_by_a_mark(): ...
@pytest.mark.skipif(True, reason="a broker that is given is not ours to end")
def test_right_anywhere(): ...
@pytest.mark.xfail(reason="known")
def test_known(): assert False
"""


def outcomes(folder: Path, ci: str) -> str:
    """The last line of a run of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.support.skips", str(folder)]
    command += ["--rootdir", str(folder), "--continue-on-collection-errors"]
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
    return done.stdout.splitlines()[-1]


def test_a_skip_is_a_failure_where_everything_is_promised(tmp_path: Path) -> None:
    (tmp_path / "test_parts.py").write_text(TESTS)
    (tmp_path / "test_whole_file.py").write_text('import pytest\npytest.importorskip("no_such_module")\n')
    assert outcomes(tmp_path, "").startswith("5 skipped, 1 xfailed")
    assert outcomes(tmp_path, "true").startswith("1 failed, 1 skipped, 1 xfailed, 3 errors")
