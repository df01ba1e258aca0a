"""Every manifest against Kubernetes' schemas of the oldest and newest supported version, and CRDs against theirs.

An unknown kind is a failure, not a warning.
"""

from __future__ import annotations

import shutil
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.chart import CHART, render
from tests.deploy.definitions import CUSTOM, fetch_definitions
from tests.deploy.test_chart import MATRIX, matrix, with_values
from tests.support.slow import smoke_first

OLDEST, NEWEST = "1.25.0", "1.37.0"
_MISSING = "no Go to fetch custom resource definitions: install Go"


def judge(manifest: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


@matrix
@pytest.mark.parametrize("version", smoke_first([NEWEST, OLDEST]))
def test_kubernetes_knows_every_field(values: dict[str, Any], version: str) -> None:
    for manifest in render(values, "--kube-version", version).manifests():
        if manifest["kind"] not in CUSTOM:
            judge(manifest, version)


def test_the_oldest_is_what_the_chart_says() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["kubeVersion"] == f">={OLDEST}-0"
    assert not render(with_values(), "--kube-version", "1.24.0").ok


def test_a_wrong_field_and_an_unknown_kind_would_be_seen() -> None:
    deployment = render(with_values()).one("Deployment")
    deployment["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        judge(deployment, NEWEST)
    with pytest.raises(kubernetes_validate.SchemaNotFoundError):
        judge({"apiVersion": "apps/v1", "kind": "Deploiment"}, NEWEST)


@pytest.fixture(scope="session")
def definitions() -> dict[str, dict[str, Any]]:
    """By kind, the definitions that the operators install."""
    if shutil.which("go") is None:
        pytest.skip(_MISSING)
    return fetch_definitions()


def closed(schema: Any) -> Any:
    """The schema without the API server's leniency: what it would prune is an error."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    lenient = schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not lenient:
        made.setdefault("additionalProperties", False)
    return made


def judge_custom(manifest: dict[str, Any], definitions: dict[str, dict[str, Any]]) -> None:
    group, _, version = manifest["apiVersion"].partition("/")
    definition = definitions[manifest["kind"]]["spec"]
    assert definition["group"] == group
    (served,) = [v for v in definition["versions"] if v["name"] == version and v["served"]]
    spec = served["schema"]["openAPIV3Schema"]["properties"]["spec"]
    jsonschema.Draft202012Validator(closed(spec)).validate(manifest["spec"])


def test_custom_resources_are_what_their_definitions_want(definitions: dict[str, dict[str, Any]]) -> None:
    seen = set()
    for values in MATRIX.values():
        for manifest in render(values).manifests():
            if manifest["kind"] in CUSTOM:
                judge_custom(manifest, definitions)
                seen.add(manifest["kind"])
    assert seen == CUSTOM


def test_a_wrong_field_in_a_custom_resource_would_be_seen(definitions: dict[str, dict[str, Any]]) -> None:
    monitor = render(MATRIX["service monitor"]).one("ServiceMonitor")
    monitor["spec"]["endpoints"][0]["prot"] = "http"
    with pytest.raises(jsonschema.ValidationError, match="prot"):
        judge_custom(monitor, definitions)
