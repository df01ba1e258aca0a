"""Values that users of charts expect: each reaches the objects that it should, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart import render, values_file
from tests.deploy.test_chart import ON_DISK, pods, with_values, worker

MERGE = {"settings/snapshot": {"topic": "s"}, "settings/merge": {"topic": "m"}, "merge/enabled": True}
TOPICS = {"partitions": 4, "topics/create": True}


def by_component(**changes: Any) -> dict[str, dict[str, Any]]:
    """The pods of a release with everything that runs, by the name of their first container."""
    return {pod["containers"][0]["name"]: pod for pod in pods(with_values(**MERGE, **TOPICS, **changes))}


def test_init_containers_and_sidecars_are_in_pods_that_run_on_and_on() -> None:
    """A Job or a test pod would never end with a sidecar."""
    found = by_component(initContainers=[{"name": "first", "image": "i"}], sidecars=[{"name": "beside", "image": "s"}])
    for name, pod in found.items():
        expected = (["first"], ["beside"]) if name in {"worker", "merge"} else ([], [])
        begun = [one["name"] for one in pod.get("initContainers", [])]
        assert (begun, [one["name"] for one in pod["containers"][1:]]) == expected, name


def test_the_hooks_of_a_container_are_those_of_workers_and_merge() -> None:
    hook = {"preStop": {"exec": {"command": ["sleep", "2"]}}}
    found = by_component(lifecycle=hook)
    assert {name for name, pod in found.items() if pod["containers"][0].get("lifecycle") == hook} == {"worker", "merge"}


def test_command_hosts_and_names_are_in_every_pod() -> None:
    hosts = [{"ip": "10.0.0.7", "hostnames": ["kafka.internal"]}]
    changes = {"command": ["wrap"], "hostAliases": hosts, "dnsPolicy": "Default", "dnsConfig": {"searches": ["a.b"]}}
    for pod in by_component(**changes).values():
        assert pod["containers"][0]["command"] == ["wrap"]
        assert (pod["hostAliases"], pod["dnsPolicy"], pod["dnsConfig"]) == (hosts, "Default", {"searches": ["a.b"]})


def test_common_annotations_are_on_every_object_beside_its_own() -> None:
    for manifest in render(values_file("everything")).manifests():
        if manifest["metadata"]["name"] not in {"extra", "sketch-sfd-stream-text"}:
            assert manifest["metadata"]["annotations"]["example.com/owner"] == "data", manifest["kind"]
    claim = render(with_values(**ON_DISK, replicas=1, commonAnnotations={"a": "b"})).one("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"] == {"a": "b", "helm.sh/resource-policy": "keep"}


def test_extra_objects_are_part_of_the_release() -> None:
    answer = render(values_file("everything"))
    assert answer.one("ConfigMap", "extra")["data"] == {"a": "b"}
    assert answer.one("ConfigMap", "-text")["metadata"]["name"] == "sketch-sfd-stream-text"


@pytest.mark.parametrize(
    ("repository", "registry", "expected"),
    [
        ("sfd-stream", "", "sfd-stream"),
        ("sfd-stream", "mirror.example.com", "mirror.example.com/sfd-stream"),
        ("team/sfd-stream", "mirror.example.com", "mirror.example.com/team/sfd-stream"),
        ("registry.example.com/team/sfd-stream", "mirror:5000/cache", "mirror:5000/cache/team/sfd-stream"),
        ("localhost/sfd-stream", "mirror.example.com", "mirror.example.com/sfd-stream"),
    ],
)
def test_the_registry_of_a_parent_chart_replaces_the_host(repository: str, registry: str, expected: str) -> None:
    values = with_values(**{"image/repository": repository, "image/tag": "1", "global/imageRegistry": registry})
    assert worker(values)["containers"][0]["image"] == f"{expected}:1"


def test_pull_secrets_of_a_parent_chart_are_added_as_names_or_as_maps() -> None:
    values = with_values(imagePullSecrets=[{"name": "b"}], **{"global/imagePullSecrets": ["a", {"name": "b"}]})
    assert worker(values)["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert render({**with_values(), "global": {"storageClass": "fast"}}).ok, "a parent chart may have other globals"


def test_merge_is_scheduled_as_the_workers_unless_it_has_values_of_its_own() -> None:
    shared = {"nodeSelector": {"a": "b"}, "priorityClassName": "high", "tolerations": [{"operator": "Exists"}]}
    found = by_component(**shared)
    assert all({name: pod[name] for name in shared} == shared for pod in found.values())
    own = by_component(
        **shared, **{"merge/nodeSelector": {}, "merge/priorityClassName": "low", "merge/tolerations": []}
    )
    assert own["merge"]["priorityClassName"] == "low"
    assert not {"nodeSelector", "tolerations"} & set(own["merge"])
    assert own["worker"]["nodeSelector"] == {"a": "b"}


@pytest.mark.parametrize(
    ("preset", "rule"),
    [
        ("soft", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("hard", "requiredDuringSchedulingIgnoredDuringExecution"),
    ],
)
def test_the_preset_keeps_workers_of_a_release_apart_and_leaves_other_affinity(preset: str, rule: str) -> None:
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    found = by_component(podAntiAffinityPreset=preset, affinity=node)
    assert set(found["worker"]["affinity"]) == {"nodeAffinity", "podAntiAffinity"}
    (term,) = found["worker"]["affinity"]["podAntiAffinity"][rule]
    labels = term.get("podAffinityTerm", term)["labelSelector"]["matchLabels"]
    assert labels["app.kubernetes.io/component"] == "worker"
    assert set(found["merge"]["affinity"]) == {"nodeAffinity"}


def test_the_strategy_is_as_given_or_one_by_one() -> None:
    assert render(with_values()).one("Deployment")["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 1,
        "maxUnavailable": 0,
    }
    given = {"type": "Recreate"}
    spec = render(with_values(strategy=given, revisionHistoryLimit=2)).one("Deployment")["spec"]
    assert (spec["strategy"], spec["revisionHistoryLimit"]) == (given, 2)
    stateful = render(with_values(kind="StatefulSet", strategy={"type": "OnDelete"})).one("StatefulSet")["spec"]
    assert stateful["updateStrategy"] == {"type": "OnDelete"}


@pytest.mark.parametrize("monitor", ["podMonitor", "serviceMonitor"])
def test_monitors_take_a_timeout_and_rules_for_labels(monitor: str) -> None:
    rule = [{"action": "labeldrop", "regex": "pod"}]
    changes = {"enabled": True, "scrapeTimeout": "10s", "relabelings": rule, "metricRelabelings": rule}
    answer = render(with_values(**{monitor: changes}))
    spec = answer.one(monitor[0].upper() + monitor[1:])["spec"]
    (endpoint,) = spec.get("endpoints") or spec["podMetricsEndpoints"]
    assert (endpoint["scrapeTimeout"], endpoint["relabelings"], endpoint["metricRelabelings"]) == ("10s", rule, rule)


SCORE = {"settings/snapshot": {"topic": "s"}, "settings/score": {"topic": "scores"}, "score/enabled": True}


def test_scorers_are_a_deployment_of_their_own_by_choice() -> None:
    assert "score" not in by_component()
    answer = render(with_values(**SCORE, **{"score/replicas": 2, "score/extraArgs": ["--set", "score.causes=3"]}))
    spec = answer.one("Deployment", "-score")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], container["args"]) == (2, ["score", "--set", "score.causes=3"])
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert spec["selector"]["matchLabels"]["app.kubernetes.io/component"] == "score"
    assert answer.one("Service", "-score")["spec"]["selector"] == spec["selector"]["matchLabels"]


@pytest.mark.parametrize(("score", "group"), [({}, "sketch-score"), ({"group": "own"}, "own")])
def test_keda_scales_scorers_by_the_lag_of_their_own_group(score: dict[str, str], group: str) -> None:
    changes = {**SCORE, "settings/score": {"topic": "scores", **score}, "partitions": 6, "keda/enabled": True}
    answer = render(with_values(**changes))
    spec = answer.one("ScaledObject", "-score")["spec"]
    assert spec["scaleTargetRef"] == {"kind": "Deployment", "name": "sketch-sfd-stream-score"}
    assert spec["maxReplicaCount"] == 6
    assert spec["triggers"][0]["metadata"]["consumerGroup"] == group
    assert "replicas" not in answer.one("Deployment", "-score")["spec"], "the scaler decides"
    workers = answer.one("ScaledObject", "-stream")["spec"]
    assert workers["triggers"][0]["metadata"]["consumerGroup"] == "sketch"


def test_scorers_read_checkpoints_on_disk() -> None:
    disk = {"settings/checkpoint/url": "file:///data", "persistence/accessMode": "ReadWriteMany"}
    on_disk = pods(with_values(**SCORE, **disk, **{"persistence/enabled": True, "persistence/mountPath": "/data"}))
    mounts = {
        pod["containers"][0]["name"]: [m["name"] for m in pod["containers"][0]["volumeMounts"]] for pod in on_disk
    }
    assert "checkpoints" in mounts["score"]
