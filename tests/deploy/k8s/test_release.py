"""A release on a real API server: taken whole, installed, upgraded, rolled back, uninstalled; a budget that holds.

Nodes are kwok's: pods are scheduled and become ready, their containers do not run. What runs in them is the matter of
`make test-image`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CHART, helm, values_file
from tests.deploy.test_chart import MATRIX, ON_DISK, with_values
from tests.support.cluster import Cluster

pytestmark = pytest.mark.k8s

NAME = "sketch-sfd-stream"
PATIENCE = "240s"
CHANGED = {"settings/sketch/ell": 77}


def settings_in(cluster: Cluster, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(cluster.get("configmap", NAME, "-n", namespace)["data"]["settings.yaml"])
    return found


def checksum(cluster: Cluster, namespace: str) -> str:
    template = cluster.get("deployment", NAME, "-n", namespace)["spec"]["template"]
    return str(template["metadata"]["annotations"]["checksum/settings"])


def workers(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """Those that are not on their way out."""
    found = cluster.get("pods", "-n", namespace, "-l", "app.kubernetes.io/component=worker")["items"]
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def available(cluster: Cluster, namespace: str) -> tuple[int, int]:
    """Ready replicas of the newest template, and how many there should be."""
    found = cluster.get("deployment", NAME, "-n", namespace)
    status = found["status"]
    return min(status.get("availableReplicas", 0), status.get("updatedReplicas", 0)), found["spec"]["replicas"]


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_the_api_server_takes_everything_in_a_dry_run(cluster: Cluster, namespace: str, values: dict[str, Any]) -> None:
    """Validation is strict: an unknown or doubled field is an error. Pods of "helm test" pass restricted admission."""
    answer = helm("template", "sketch", str(CHART), "--namespace", namespace, values=values)
    manifests = answer.manifests()
    for manifest in manifests:
        if manifest["kind"] == "ServiceAccount":  # pods are only let in where theirs is there
            cluster.kubectl("apply", "-n", namespace, "-f", "-", given=json.dumps(manifest))
    command = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
    said = cluster.kubectl(*command, given=answer.out)
    assert said.count("(server dry run)") == len(manifests), said


def test_a_wrong_field_would_be_refused(cluster: Cluster, namespace: str) -> None:
    deployment = helm("template", "sketch", str(CHART), values=values_file("smallest")).one("Deployment")
    deployment["spec"]["replica"] = 2
    command = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-n", namespace, "-f", "-")
    assert ".spec.replica" in cluster.kubectl(*command, given=json.dumps(deployment), ok=False)


def test_installed_upgraded_rolled_back_uninstalled(cluster: Cluster, namespace: str) -> None:
    chart = ("sketch", str(CHART), "-n", namespace, "--wait", "--timeout", PATIENCE)
    cluster.helm("install", *chart, values=with_values())
    cluster.wait_for(lambda: available(cluster, namespace) == (2, 2), "2 available workers")
    first, settings = checksum(cluster, namespace), settings_in(cluster, namespace)

    cluster.helm("upgrade", *chart, values=with_values(**CHANGED, replicas=3))
    cluster.wait_for(lambda: available(cluster, namespace) == (3, 3), "3 available workers")
    assert settings_in(cluster, namespace)["sketch"]["ell"] == 77
    assert checksum(cluster, namespace) != first, "other settings are other pods"

    cluster.helm("rollback", "sketch", "1", "-n", namespace, "--wait", "--timeout", PATIENCE)
    cluster.wait_for(lambda: available(cluster, namespace) == (2, 2), "2 available workers")
    assert (checksum(cluster, namespace), settings_in(cluster, namespace)) == (first, settings)
    history = json.loads(cluster.helm("history", "sketch", "-n", namespace, "-o", "json"))
    assert [one["status"] for one in history] == ["superseded", "superseded", "deployed"]

    cluster.helm("uninstall", "sketch", "-n", namespace, "--wait", "--timeout", PATIENCE)
    kinds = "deployments,services,configmaps,poddisruptionbudgets,networkpolicies,serviceaccounts"
    left = {f"{one['kind']}/{one['metadata']['name']}" for one in cluster.get(kinds, "-n", namespace)["items"]}
    assert left == {"ConfigMap/kube-root-ca.crt", "ServiceAccount/default"}


def test_all_that_can_be_switched_on_becomes_ready(cluster: Cluster, namespace: str) -> None:
    values = with_values("everything", **{"keda/minReplicas": 1})
    chart = ("sketch", str(CHART), "-n", namespace, "--wait", "--wait-for-jobs", "--timeout", PATIENCE)
    cluster.helm("install", *chart, values=values)
    assert cluster.get("statefulset", NAME, "-n", namespace)["status"]["readyReplicas"] == 1
    for other in ("merge", "score"):
        assert cluster.get("deployment", f"{NAME}-{other}", "-n", namespace)["status"]["readyReplicas"] == 1
    (job,) = cluster.get("jobs", "-n", namespace)["items"]
    assert job["status"]["succeeded"] == 1
    for kind in ("podmonitor", "prometheusrule", "scaledobject"):
        assert cluster.get(kind, NAME, "-n", namespace)["metadata"]["labels"]["team"] == "data"


def test_helm_test_runs_every_pod_of_its_own(cluster: Cluster, namespace: str) -> None:
    """Here they end well whatever they ask: nothing runs in them. That they can start and end is what is shown."""
    values = with_values("everything", **{"keda/minReplicas": 1})
    cluster.helm("install", "sketch", str(CHART), "-n", namespace, "--wait", "--timeout", PATIENCE, values=values)
    said = cluster.helm("test", "sketch", "-n", namespace, "--timeout", PATIENCE)
    tests = {"settings", "worker", "merge", "score"}
    assert {word for word in tests if f"{NAME}-test-{word}" in said} == tests
    assert said.count("Succeeded") == len(tests)


def test_workers_are_spread_over_zones(cluster: Cluster, namespace: str) -> None:
    values = with_values(replicas=3)
    cluster.helm("install", "sketch", str(CHART), "-n", namespace, "--wait", "--timeout", PATIENCE, values=values)
    assert len({pod["spec"]["nodeName"] for pod in workers(cluster, namespace)}) == 3


def test_the_budget_refuses_to_take_a_second_worker_away(cluster: Cluster, namespace: str) -> None:
    """No node takes new pods meanwhile, so the first one that is evicted stays away."""
    cluster.helm(
        "install", "sketch", str(CHART), "-n", namespace, "--wait", "--timeout", PATIENCE, values=with_values()
    )
    first, second = (pod["metadata"]["name"] for pod in workers(cluster, namespace))
    cluster.wait_for(lambda: allowed(cluster, namespace) == 1, "the budget to be counted")
    nodes = [node["metadata"]["name"] for node in cluster.get("nodes")["items"]]
    cluster.kubectl("cordon", *nodes)
    try:
        evict(cluster, namespace, first)
        cluster.wait_for(lambda: allowed(cluster, namespace) == 0, "the budget to be used up")
        said = evict(cluster, namespace, second, ok=False)
        assert "violate the pod's disruption budget" in said
        assert second in {pod["metadata"]["name"] for pod in workers(cluster, namespace)}
    finally:
        cluster.kubectl("uncordon", *nodes)
    cluster.wait_for(lambda: available(cluster, namespace) == (2, 2), "its replacement")
    cluster.wait_for(lambda: allowed(cluster, namespace) == 1, "the budget to be whole again")
    evict(cluster, namespace, second)


def evict(cluster: Cluster, namespace: str, pod: str, *, ok: bool = True) -> str:
    """What draining a node does to each of its pods."""
    wanted = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": namespace}}
    where = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
    return cluster.kubectl("create", "--raw", where, "-f", "-", given=json.dumps(wanted), ok=ok)


def allowed(cluster: Cluster, namespace: str) -> int:
    found = cluster.get("poddisruptionbudget", NAME, "-n", namespace)
    return int(found.get("status", {}).get("disruptionsAllowed", 0))


def test_a_claim_outlives_its_release(cluster: Cluster, namespace: str) -> None:
    cluster.helm("install", "sketch", str(CHART), "-n", namespace, values=with_values(**ON_DISK, replicas=1))
    cluster.helm("uninstall", "sketch", "-n", namespace, "--wait", "--timeout", PATIENCE)
    assert [claim["metadata"]["name"] for claim in cluster.get("pvc", "-n", namespace)["items"]] == [NAME]
    cluster.helm("install", "sketch", str(CHART), "-n", namespace, values=with_values(**ON_DISK, replicas=1))
