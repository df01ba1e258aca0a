"""Values that users of charts expect: each reaches the objects that it should, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart import render, values_file
from tests.deploy.test_chart import ON_DISK, pods, with_values, worker

MERGE = {"settings/snapshot": {"topic": "s"}, "settings/merge": {"topic": "m"}, "merge/enabled": True}
SCORE = {"settings/snapshot": {"topic": "s"}, "settings/score": {"topic": "scores"}, "score/enabled": True}
TOPICS = {"partitions": 4, "topics/create": True}
RUNNING = {"worker", "merge", "score"}


def by_component(**changes: Any) -> dict[str, dict[str, Any]]:
    """The pods of a release with everything that runs, by the name of their first container."""
    return {pod["containers"][0]["name"]: pod for pod in pods(with_values(**{**MERGE, **SCORE, **TOPICS, **changes}))}


def test_init_containers_and_sidecars_are_in_pods_that_run_on_and_on() -> None:
    """A Job or a test pod would never end with a sidecar."""
    found = by_component(initContainers=[{"name": "first", "image": "i"}], sidecars=[{"name": "beside", "image": "s"}])
    for name, pod in found.items():
        expected = (["first"], ["beside"]) if name in RUNNING else ([], [])
        begun = [one["name"] for one in pod.get("initContainers", [])]
        assert (begun, [one["name"] for one in pod["containers"][1:]]) == expected, name


def test_the_hooks_of_a_container_are_those_of_what_runs_on_and_on() -> None:
    hook = {"preStop": {"exec": {"command": ["sleep", "2"]}}}
    found = by_component(lifecycle=hook)
    assert {name for name, pod in found.items() if pod["containers"][0].get("lifecycle") == hook} == RUNNING


def test_command_hosts_and_names_are_in_every_pod() -> None:
    hosts = [{"ip": "10.0.0.7", "hostnames": ["kafka.internal"]}]
    changes = {"command": ["wrap"], "hostAliases": hosts, "dnsPolicy": "Default", "dnsConfig": {"searches": ["a.b"]}}
    found = by_component(**changes)
    assert set(found) > RUNNING
    for pod in found.values():
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


@pytest.mark.parametrize("name", ["merge", "score"])
def test_others_are_scheduled_as_the_workers_unless_they_have_values_of_their_own(name: str) -> None:
    shared = {"nodeSelector": {"a": "b"}, "priorityClassName": "high", "tolerations": [{"operator": "Exists"}]}
    found = by_component(**shared)
    assert all({key: pod[key] for key in shared} == shared for pod in found.values())
    changes = {f"{name}/nodeSelector": {}, f"{name}/priorityClassName": "low", f"{name}/tolerations": []}
    own = by_component(**shared, **changes)
    assert own[name]["priorityClassName"] == "low"
    assert not {"nodeSelector", "tolerations"} & set(own[name])
    assert own["worker"]["nodeSelector"] == {"a": "b"}


@pytest.mark.parametrize(
    ("preset", "rule"),
    [
        ("soft", "preferredDuringSchedulingIgnoredDuringExecution"),
        ("hard", "requiredDuringSchedulingIgnoredDuringExecution"),
    ],
)
def test_the_preset_keeps_pods_of_a_kind_apart_and_leaves_other_affinity(preset: str, rule: str) -> None:
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    found = by_component(podAntiAffinityPreset=preset, affinity=node)
    for name in ("worker", "score"):
        assert set(found[name]["affinity"]) == {"nodeAffinity", "podAntiAffinity"}
        (term,) = found[name]["affinity"]["podAntiAffinity"][rule]
        labels = term.get("podAffinityTerm", term)["labelSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == name
    assert set(found["merge"]["affinity"]) == {"nodeAffinity"}


def test_workers_and_scorers_are_spread_over_zones_each_for_themselves() -> None:
    found = by_component()
    for name in ("worker", "score"):
        over = {
            one["topologyKey"]: one["labelSelector"]["matchLabels"] for one in found[name]["topologySpreadConstraints"]
        }
        assert set(over) == {"topology.kubernetes.io/zone", "kubernetes.io/hostname"}
        assert {labels["app.kubernetes.io/component"] for labels in over.values()} == {name}
    own = [{"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}]
    given = by_component(**{"topologySpread/constraints": own})
    assert given["worker"]["topologySpreadConstraints"] == own
    assert given["score"] == found["score"], "a list for workers selects workers"
    without = by_component(**{"topologySpread/enabled": False})
    assert not {name for name, pod in without.items() if "topologySpreadConstraints" in pod}


def test_a_drain_takes_one_scorer_at_a_time_as_it_does_workers() -> None:
    answer = render(with_values(**SCORE))
    workers, scorers = (answer.one("PodDisruptionBudget", ending)["spec"] for ending in ("-stream", "-score"))
    assert workers["maxUnavailable"] == scorers["maxUnavailable"] == 1
    assert scorers["selector"] == answer.one("Deployment", "-score")["spec"]["selector"]
    assert "PodDisruptionBudget" not in render(with_values(**SCORE, **{"podDisruptionBudget/enabled": False})).kinds()


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


def test_scorers_are_a_deployment_of_their_own_by_choice() -> None:
    assert "score" not in {pod["containers"][0]["name"] for pod in pods(with_values(**MERGE, **TOPICS))}
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
