"""A release is made by make targets that run here. The workflows only call them, and a linter reads the workflows."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hatch_build import absolute, addresses
from sfd_stream import __version__
from tests.deploy.release import ROOT, missing, notes, problems, sections
from tests.support.tools import go_program

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
REGISTRY = "github.com/google/go-containerregistry/cmd/registry@v0.22.1"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
HOME = "https://git.example.com/acme/sfd-stream"
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def make(*arguments: str, **environment: str) -> str:
    command = ["make", "--no-print-directory", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def steps() -> list[tuple[str, dict[str, Any]]]:
    """Every step of every job, with its workflow's name."""
    read = {path.name: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    return [
        (name, step) for name, flow in read.items() for job in flow["jobs"].values() for step in job.get("steps", [])
    ]


def test_a_linter_has_nothing_against_the_workflows() -> None:
    program = go_program(ACTIONLINT)
    done = subprocess.run([program, "-no-color", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_linter_would_see_a_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(WORKFLOWS[0].read_text().replace("timeout-minutes", "timeout-minute", 1))
    done = subprocess.run([go_program(ACTIONLINT), wrong], capture_output=True, text=True, check=False)
    assert "timeout-minute" in done.stdout


def test_every_command_of_a_workflow_is_a_make_target() -> None:
    commands = [step["run"] for _, step in steps() if "run" in step]
    others = [command for command in commands if not command.startswith("make ")]
    assert [command.split()[:3] for command in others] == [["gh", "release", "create"]]
    for command in commands:
        words = command.partition(" > ")[0].split()[1:] if command.startswith("make ") else []
        assert {word for word in words if "=" not in word and not word.startswith("$")} <= TARGETS, command


def test_no_workflow_names_a_registry_or_invents_a_digest() -> None:
    for path in WORKFLOWS:
        assert not re.search(r"ghcr|docker\.io|quay|pypi\.org|[0-9a-f]{40}|sha256:", path.read_text()), path.name
    for name, step in steps():
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@(v\d+|release/v1)", step["uses"]), (name, step["uses"])


def test_only_publishing_jobs_get_more_than_the_right_to_read() -> None:
    for path in WORKFLOWS:
        flow = yaml.safe_load(path.read_text())
        assert flow["permissions"] == {"contents": "read"}
        more = {name for name, job in flow["jobs"].items() if "write" in job.get("permissions", {}).values()}
        assert all(name.startswith("publish-") for name in more)


@pytest.mark.parametrize(
    ("schema", "file"),
    [
        ("vendor.renovate", ".github/renovate.json"),
        ("vendor.github-workflows", ".github/workflows/ci.yml"),
        ("vendor.github-workflows", ".github/workflows/release.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_a_file_for_a_service_is_what_the_service_wants(schema: str, file: str) -> None:
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", schema, ROOT / file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_hooks_of_a_commit_are_our_own_targets() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert {hook["entry"] for hook in repository["hooks"]} == {"make lint", "make types", "make imports"}


def test_issue_forms_have_what_the_host_asks_for() -> None:
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form)
        ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
        assert len(ids) == len(set(ids))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
def test_two_builds_of_one_commit_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        out = make("dist", f"DIST={tmp_path / name}", f"REPOSITORY_URL={HOME}")
        assert out.count("PASSED") == 2
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    assert set(digests(tmp_path / "one")) == {
        f"sfd_stream-{__version__}-py3-none-any.whl",
        f"sfd_stream-{__version__}.tar.gz",
    }
    with zipfile.ZipFile(next((tmp_path / "one").glob("*.whl"))) as wheel:
        metadata = wheel.read(f"sfd_stream-{__version__}.dist-info/METADATA").decode()
    assert f"Project-URL: Source, {HOME}" in metadata
    assert not re.findall(r"\]\((?!https?:|#)[^)]*\)", metadata.partition("\n\n")[2])


def test_the_readme_of_the_package_has_no_link_that_leads_nowhere() -> None:
    text = "![picture](docs/a.svg) [page](docs/b.md#part) [other](https://c) [here](#d)"
    base = f"{HOME}/{{}}/v1.0.0/docs"
    assert absolute(text, HOME, "1.0.0") == (
        f"![picture]({base.format('raw')}/a.svg) [page]({base.format('blob')}/b.md#part) [other](https://c) [here](#d)"
    )
    assert absolute(text, "", "1.0.0") == " page [other](https://c) [here](#d)"
    assert set(addresses("", "1.0.0")) == {"Method"}


def packed_chart(folder: Path, *arguments: str) -> dict[str, str]:
    """The files of the packed chart, by name."""
    make("chart-package", f"DIST={folder}", *arguments)
    with tarfile.open(folder / f"sfd-stream-{__version__}.tgz") as archive:
        files = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name.removeprefix("sfd-stream/"): file.read().decode() for name, file in files.items() if file}


def test_the_packed_chart_has_the_image_and_the_home_that_it_was_given(tmp_path: Path) -> None:
    files = packed_chart(tmp_path, "IMAGE_REPOSITORY=registry.example.com/sfd-stream", f"REPOSITORY_URL={HOME}")
    assert yaml.safe_load(files["values.yaml"])["image"]["repository"] == "registry.example.com/sfd-stream"
    chart = yaml.safe_load(files["Chart.yaml"])
    assert (chart["home"], chart["sources"]) == (HOME, [HOME])
    for name in ("README.md", "UPGRADING.md"):
        links = re.findall(r"\]\(([^)]*)\)", files[name])
        assert links, name
        for link in links:
            path = link.removeprefix(f"{HOME}/blob/v{__version__}/").partition("#")[0]
            assert (ROOT / path).is_file(), link
    assert not [name for name in files if name.startswith("ci/")], "values of tests do not belong into the package"


def test_a_chart_packed_without_a_home_invents_none_and_has_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    files = packed_chart(tmp_path)
    assert not {"home", "sources"} & set(yaml.safe_load(files["Chart.yaml"]))
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", files["README.md"])
    assert "values.schema.json" in files


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry of this machine, in memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [go_program(REGISTRY), "-port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            assert b"port" in process.stdout.readline()
            yield f"127.0.0.1:{port}/charts"
        finally:
            process.kill()


@pytest.mark.slow
def test_the_chart_can_be_pushed_to_a_registry_and_pulled_from_it(registry: str, tmp_path: Path) -> None:
    out = make("chart-push", f"DIST={tmp_path}", f"CHART_REGISTRY={registry}", "HELM_FLAGS=--plain-http")
    assert f"sfd-stream-{__version__}.tgz" in out
    helm = Path(sys.executable).parent / "helm"
    command = [helm, "show", "chart", f"oci://{registry}/sfd-stream", "--version", __version__, "--plain-http"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["version"] == __version__


def test_the_image_is_pushed_with_a_bill_of_materials_and_provenance_and_signed_by_its_digest(tmp_path: Path) -> None:
    """No registry here: what would be run."""
    push = make("-n", "image-push", "IMAGE=registry.example.com/a:1", f"REPOSITORY_URL={HOME}", f"DIST={tmp_path}")
    for words in ("--platform linux/amd64,linux/arm64", "--sbom=true", "--provenance=mode=max", f"image.source={HOME}"):
        assert words in push
    (tmp_path / "image.json").write_text('{"containerimage.digest": "sha256:0123abcd"}')
    signed = make("image-sign", "IMAGE=registry.example.com/a", f"DIST={tmp_path}", "COSIGN=echo cosign")
    assert "cosign sign --yes registry.example.com/a@sha256:0123abcd" in signed.splitlines()[-1]


def test_the_image_says_what_it_is_and_where_it_comes_from_if_that_is_known() -> None:
    written = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", (ROOT / "Dockerfile").read_text()))
    assert written == {
        "title", "description", "licenses", "authors", "version", "revision", "created", "base.name",
    }  # fmt: skip
    assert "--label" not in make("-n", "image")
    known = set(
        re.findall(r"--label org\.opencontainers\.image\.(\w+)=", make("-n", "image", f"REPOSITORY_URL={HOME}"))
    )
    assert known == {"source", "url", "documentation"}


def test_the_notes_are_what_the_changelog_says_of_this_version() -> None:
    found = make("release-notes")
    assert found.strip() == sections((ROOT / "CHANGELOG.md").read_text())[__version__][1]
    assert "## [" not in found
    two = "# C\n\n## [Unreleased]\n\n## [2.0.0] - 2027-01-31\n\n### Fixed\n\n- b\n\n## [1.0.0] - 2026-01-31\n\n- a\n"
    assert notes(two, "2.0.0") == "### Fixed\n\n- b\n"


def test_the_changelog_has_the_sections_of_keep_a_changelog() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert next(iter(sections(text))) == "Unreleased"
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip


def test_this_version_can_be_released_and_another_tag_can_not() -> None:
    assert list(problems(f"v{__version__}")) == []
    assert make("release-check", f"TAG=v{__version__}") == f"release: {__version__} is consistent\n"
    assert list(problems("v9.9.9")) == [f"the tag is v9.9.9, and sfd_stream.__version__ is {__version__}"]


def test_nothing_is_published_while_a_variable_of_the_repository_is_missing() -> None:
    """Otherwise the package would be out before the image finds no registry."""
    environ = {"IMAGE_REGISTRY": "registry.example.com", "IMAGE_NAME": ""}
    words = "the repository's variable IMAGE_NAME is not set: docs/reference/releasing.md lists them"
    assert list(missing("IMAGE_REGISTRY,IMAGE_NAME", environ)) == [words]
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    used = {name for name in re.findall(r"vars\.(\w+)", str(release)) if name != "PACKAGE_INDEX"}
    (check,) = [step for step in release["jobs"]["package"]["steps"] if "release-check" in step.get("run", "")]
    assert set(check["env"]) == used
    assert set(check["run"].partition("NEEDED=")[2].split(",")) == used
    publishing = [job for name, job in release["jobs"].items() if name.startswith("publish-")]
    assert all({"package", "publish-image"} & set(job["needs"]) for job in publishing)


def test_tests_of_two_versions_have_the_history_that_they_need() -> None:
    """With CI=true a skip is a failure, and a shallow clone would make them skip."""
    for name, job in yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].items():
        commands = [step.get("run", "") for step in job["steps"]]
        if any(command.split()[:2] in (["make", "test"], ["make", "test-all"]) for command in commands):
            assert job["steps"][0]["with"] == {"fetch-depth": 0}, name


def test_the_package_goes_to_the_index_of_the_variable_or_to_that_of_the_action() -> None:
    """An input that is given and empty has no default: the action would look for an index without a host."""
    uploads = [step for name, step in steps() if "pypi-publish" in step.get("uses", "")]
    assert [(step["if"], step.get("with")) for step in uploads] == [
        ("vars.PACKAGE_INDEX == ''", None),
        ("vars.PACKAGE_INDEX != ''", {"repository-url": "${{ vars.PACKAGE_INDEX }}"}),
    ]
