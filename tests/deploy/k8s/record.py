"""`python -m tests.deploy.k8s.record`: runs `make test-k8s` and writes the result into docs/guides/deploying.md."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from benchmarks.operations import put
from tests.support.control_plane import KWOK, VERSION

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "guides" / "deploying.md"


def outcome(report: Path) -> str:
    """A line a test, as pytest reported it."""
    suite = ET.parse(report).getroot().find("testsuite")  # noqa: S314 - pytest's own
    assert suite is not None
    lines = [f"{_verdict(case)}  {_words(case):<82} {float(case.attrib['time']):5.1f} s" for case in suite]
    bad = int(suite.attrib["failures"]) + int(suite.attrib["errors"]) + int(suite.attrib["skipped"])
    total = int(suite.attrib["tests"])
    return "\n".join([*lines, f"{total - bad} of {total} passed in {float(suite.attrib['time']):.0f} s"])


def _verdict(case: ET.Element) -> str:
    return "FAILED" if len(case) else "passed"


def _words(case: ET.Element) -> str:
    return case.attrib["name"].removeprefix("test_").replace("_", " ")


def versions() -> str:
    helm = subprocess.run(
        [Path(sys.executable).parent / "helm", "version", "--short"], capture_output=True, text=True, check=True
    ).stdout.partition("+")[0]
    return f"Kubernetes v{VERSION} with its own etcd, kwok {KWOK[1]}, helm {helm}"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "k8s",
            "--timeout",
            "3600",
            "tests/deploy/k8s",
            f"--junitxml={report}",
        ]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        PAGE.write_text(put(PAGE.read_text(), "k8s", f"$ make test-k8s\n{versions()}\n{outcome(report)}"))
    raise SystemExit(code)


if __name__ == "__main__":
    main()
