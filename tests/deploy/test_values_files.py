"""The ready values files: each renders, conforms, is loaded by the program, and has its page."""

from __future__ import annotations

import base64
import copy
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfd_stream.config import load
from tests.deploy.chart import CHART, ROOT, helm, render, values_file
from tests.deploy.conforming import STRIMZI_KINDS, conforms, strimzi, write_schemas
from tests.deploy.definitions import CUSTOM
from tests.deploy.test_schemas import NEWEST, OLDEST, closed, definitions
from tests.support.cache import cache_folder, filled_once
from tests.support.slow import smoke_first

__all__ = ["definitions"]  # a fixture

FILES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "examples").glob("*.yaml"))}
BROKERS = ["strimzi", "msk", "confluent-cloud", "event-hubs", "redpanda"]
STORES = ["s3", "gcs", "azure-blob"]
MSK_IMAGE = ROOT / "docs" / "examples" / "msk-image"


def values_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILES[name].read_text())
    return found


def combined(broker: str, store: str) -> dict[str, Any]:
    """As docs/guides/index.md says: the broker's file with the store's part of the other."""
    values, other = copy.deepcopy(values_of(broker)), values_of(store)
    values["settings"]["checkpoint"] = other["settings"]["checkpoint"]
    return {**values, "serviceAccount": other["serviceAccount"], "podLabels": other.get("podLabels", {})}


def test_there_is_a_file_and_a_page_for_everything_that_is_promised() -> None:
    assert set(FILES) == {*BROKERS, *STORES}
    for name, file in FILES.items():
        page = (ROOT / "docs" / "guides" / f"{name}.md").read_text()
        assert f"(../../helm/sfd-stream/examples/{name}-values.yaml)" in page
        assert "Not tried:" in page
        assert f"docs/guides/{name}.md" in file.read_text()


@pytest.mark.parametrize("name", FILES)
def test_helm_has_nothing_against_it(name: str) -> None:
    answer = helm("lint", "--strict", str(CHART), values=values_of(name))
    assert answer.ok, answer.out


@pytest.mark.parametrize("name", FILES)
def test_the_program_takes_the_settings(name: str, tmp_path: Path) -> None:
    values = values_of(name)
    file = tmp_path / "settings.yaml"
    file.write_text(render(values).one("ConfigMap", "sfd-stream")["data"]["settings.yaml"])
    settings = load(file, environ=dict.fromkeys(values.get("secretEnv", {}), "secret")).settings
    assert settings.input.topic == "clicks"


@pytest.fixture(scope="session")
def custom_schemas(definitions: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(definitions, closed, folder)
    return folder


@pytest.mark.parametrize("version", smoke_first([NEWEST, OLDEST]))
@pytest.mark.parametrize("name", [*FILES, "everything"])
def test_kubeconform_has_nothing_against_it(name: str, version: str, custom_schemas: Path, tmp_path: Path) -> None:
    values = values_file(name) if name == "everything" else values_of(name)
    answer = render(values, "--kube-version", version)
    assert answer.ok, answer.said
    assert conforms(answer.out, version, custom_schemas, tmp_path) == []


def test_kubeconform_would_see_a_wrong_field_an_unknown_kind_and_a_wrong_custom_resource(
    custom_schemas: Path, tmp_path: Path
) -> None:
    manifests = render(values_file("everything")).out
    for old, new in (
        ("revisionHistoryLimit: 3", "revisionHistoryLimits: 3"),
        ("kind: StatefulSet\nmetadata", "kind: StatefulSets\nmetadata"),
        ("scrapeTimeout: 10s", "scrapeTimeouts: 10s"),
        ("minReplicaCount: 2", "minReplicaCount: two"),
    ):
        assert old in manifests
        assert len(conforms(manifests.replace(old, new, 1), NEWEST, custom_schemas, tmp_path)) == 1, new


def test_the_custom_resources_for_strimzi_are_what_strimzi_wants(tmp_path: Path) -> None:
    found = [one for one in render(values_of("strimzi")).manifests() if one["kind"] in STRIMZI_KINDS]
    assert [one["kind"] for one in found].count("KafkaTopic") == 3
    assert strimzi(found, tmp_path) == []
    wrong = copy.deepcopy(found[-1])
    assert wrong["kind"] == "KafkaUser"
    wrong["spec"]["authorization"]["acls"][0]["operation"] = ["Read"]
    again = tmp_path / "again"
    again.mkdir()
    assert len(strimzi([wrong], again)) == 1


def test_the_strimzi_user_has_the_rights_of_the_page_on_deploying_and_no_others() -> None:
    (user,) = [one for one in values_of("strimzi")["extraObjects"] if one["kind"] == "KafkaUser"]
    rights = {one["resource"]["name"]: set(one["operations"]) for one in user["spec"]["authorization"]["acls"]}
    assert rights == {
        "clicks": {"Read", "Describe"},
        "clicks-sketch": {"Read"},
        "clicks-sketches": {"Read", "Write", "Describe"},
        "clicks-dead": {"Write", "Describe"},
    }


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("broker", BROKERS)
def test_every_broker_goes_with_every_store(broker: str, store: str) -> None:
    answer = render(combined(broker, store))
    identity = answer.one("ServiceAccount")["metadata"]["annotations"]
    assert identity == values_of(store)["serviceAccount"]["annotations"]
    assert not {one["kind"] for one in answer.manifests()} & CUSTOM


def test_no_file_has_a_secret_and_every_login_comes_by_reference() -> None:
    for name in ("strimzi", "confluent-cloud", "event-hubs", "redpanda"):
        container = render(values_of(name)).one("Deployment")["spec"]["template"]["spec"]["containers"][0]
        named = {env["name"]: env for env in container["env"]}
        assert "secretKeyRef" in named["SFD_KAFKA__SASL_PASSWORD"]["valueFrom"]


def test_the_policies_are_whole() -> None:
    for page, marker in (("msk", "policy msk"), ("s3", "policy trust")):
        text = (ROOT / "docs" / "guides" / f"{page}.md").read_text()
        block = re.search(rf"<!-- {marker} -->\n```json\n(.*?)```", text, re.DOTALL)
        assert block
        assert json.loads(block[1])["Statement"]


def test_a_linter_has_nothing_against_the_image_with_the_signer() -> None:
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, MSK_IMAGE / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def signer() -> Path:
    """A folder with the signer that the image installs, and what it needs."""
    (package,) = re.findall(r"aws-msk-iam-sasl-signer-python==[\d.]+", (MSK_IMAGE / "Dockerfile").read_text())

    def install(folder: Path) -> None:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--target", folder, package]
        subprocess.run(command, check=True, capture_output=True, timeout=240)

    return filled_once(cache_folder() / "python" / package, install)


@pytest.mark.slow
def test_the_signer_makes_a_token_that_the_worker_can_use() -> None:
    """Signing needs no AWS; keys of its documentation do."""
    probe = (
        "import msk_tokens, time; token, until = msk_tokens.token('eu-central-1'); print(token, until > time.time())"
    )
    keys = {"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "example"}
    environment = {**os.environ, **keys, "PYTHONPATH": f"{signer()}{os.pathsep}{MSK_IMAGE}"}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    token, later = done.stdout.split()
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-central-1.amazonaws.com/")
    assert "Action=kafka-cluster%3AConnect" in url
    assert later == "True"
