"""Values as users really write them: the same label twice, null, a parent chart's condition, numbers of any size."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.chart import CHART, Answer, helm, render, values_file
from tests.deploy.test_chart import ON_DISK, with_values
from tests.deploy.test_chart_values import MERGE, SCORE, TOPICS
from tests.support.slow import smoke_first
from tests.support.trees import RELEASED, NoHistoryError, extract

PARTS_OF_HELM = ("nil pointer", "error calling", "wrong type", "YAML parse error", "can't evaluate")


def test_the_same_label_may_be_given_for_all_objects_and_for_some() -> None:
    """What is given for fewer objects holds; no key is written twice."""
    more = {"labels": {"release": "prometheus", "team": "watch"}}
    values = with_values(
        commonLabels={"team": "data", "release": "all", "app.kubernetes.io/version": "mine"},
        podLabels={"team": "stream"},
        podAnnotations={"checksum/settings": "x"},
        podMonitor={"enabled": True, **more},
        prometheusRule={"enabled": True, **more},
        dashboard={"enabled": True, **more},
        **MERGE,
        **TOPICS,
    )
    answer = render(values)
    for kind in ("PodMonitor", "PrometheusRule"):
        labels = answer.one(kind)["metadata"]["labels"]
        assert (labels["team"], labels["release"]) == ("watch", "prometheus")
    template = answer.one("Deployment", "-stream")["spec"]["template"]["metadata"]
    assert (template["labels"]["team"], template["labels"]["release"]) == ("stream", "all")
    assert template["annotations"]["checksum/settings"] != "x", "other settings must be other pods"
    assert answer.one("ServiceAccount")["metadata"]["labels"]["team"] == "data"


@pytest.mark.parametrize("value", ["commonLabels", "podLabels"])
@pytest.mark.parametrize("label", ["name", "instance", "component"])
def test_a_label_by_which_pods_are_selected_is_refused(value: str, label: str) -> None:
    name = f"app.kubernetes.io/{label}"
    answer = render(with_values(**{value: {name: "other"}}))
    assert f"{value} has {name}, by which the chart selects its pods" in answer.said


def paths(node: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in node.items():
        yield above + name
        if isinstance(value, dict) and name != "settings":
            yield from paths(value, f"{above}{name}/")


DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
WITH_SWITCHES = {
    "partitions": 4,
    **MERGE,
    **SCORE,
    **{f"{name}/enabled": True for name in ("keda", "podMonitor", "prometheusRule", "dashboard")},
    "topics/create": True,
}


def nulled(*names: str) -> Answer:
    changes = {name: WITH_SWITCHES[name] for name in WITH_SWITCHES if not name.startswith(names)}
    return render(with_values(**changes, **dict.fromkeys(names)))


@pytest.mark.parametrize("name", smoke_first([name for name in paths(DEFAULTS) if name != "settings"], smoke=0))
def test_null_takes_a_default_away_or_is_refused_by_name(name: str) -> None:
    """As `helm install --set name=null`. An error of a template says nothing to the user."""
    answer = nulled(name)
    assert answer.ok or not any(words in answer.said for words in PARTS_OF_HELM), answer.said
    assert not answer.ok or answer.manifests()


EMPTY = (
    "keda/fallback", "keda/advanced", "keda/metadata", "keda/annotations", "affinity", "strategy", "commonLabels",
    "commonAnnotations", "extraObjects", "extraEnv", "sidecars", "imagePullSecrets", "merge/extraArgs", "global",
    "podSecurityContext", "securityContext", "networkPolicy/extraPorts", "prometheusRule/thresholds",
)  # fmt: skip


def test_what_is_empty_by_default_may_be_null() -> None:
    assert nulled(*EMPTY).manifests()


def test_a_security_context_without_numbers_is_taken_as_openshift_wants_it() -> None:
    numbers = ("runAsUser", "runAsGroup", "fsGroup")
    values = with_values(podSecurityContext=dict.fromkeys(numbers))
    context = render(values).one("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert context["runAsNonRoot"]
    assert not set(numbers) & set(context)


def test_an_object_given_as_a_map_stays_as_it_is_and_a_text_is_a_template() -> None:
    """An ExternalSecret or a rule has braces of its own, which are not helm's."""
    summary = "{{ $labels.pod }} of {{ .Release.Name }}"
    kept = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}, "data": {"summary": summary}}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: rendered}\ndata: {summary: '{{ .Release.Name }}'}"
    answer = render(with_values(extraObjects=[kept, text]))
    assert answer.one("ConfigMap", "kept") == kept
    assert answer.one("ConfigMap", "rendered")["data"]["summary"] == "sketch"


def test_large_whole_numbers_stay_whole_numbers() -> None:
    """Helm reads numbers as floating point and would print a million as 1e+06."""
    changes = {"keda/enabled": True, "keda/cooldownPeriod": 1000000, "keda/pollingInterval": 2000000}
    spec = render(with_values(partitions=4, revisionHistoryLimit=3000000, **changes)).one("ScaledObject")["spec"]
    assert (spec["cooldownPeriod"], spec["pollingInterval"]) == (1000000, 2000000)


@pytest.mark.parametrize(
    ("fallback", "words"),
    [
        ({"replicas": 4}, "keda.fallback: Has a dependency on failureThreshold"),
        ({"failureThreshold": 3}, "keda.fallback: Has a dependency on replicas"),
        ({"failureThreshold": 3, "replicas": 2, "replica": 2}, "Additional property replica is not allowed"),
    ],
)
def test_a_fallback_that_keda_would_refuse_is_refused(fallback: dict[str, int], words: str) -> None:
    values = with_values(partitions=4, **{"keda/enabled": True, "keda/fallback": fallback})
    assert words in render(values).said


def test_workers_may_be_stopped_by_the_number_of_replicas() -> None:
    assert render(with_values(replicas=0)).one("Deployment")["spec"]["replicas"] == 0


def test_a_strategy_without_a_type_is_a_rolling_update() -> None:
    answer = render(with_values(**ON_DISK, replicas=1, strategy={"rollingUpdate": {"maxSurge": 1}}))
    assert "strategy.type RollingUpdate needs persistence.accessMode ReadWriteMany" in answer.said


@pytest.mark.parametrize(
    "change",
    [
        {"extraEnv": [{"name": "TZ", "value": "UTC"}]},
        {"podLabels": {"a": "b"}},
        {"helperResources/requests/cpu": "200m"},
        {"hostAliases": [{"ip": "10.0.0.7", "hostnames": ["kafka"]}]},
    ],
    ids=str,
)
def test_a_job_whose_pod_changes_is_another_job(change: dict[str, Any]) -> None:
    """Kubernetes refuses to change the pod of a Job: an upgrade within a day of the last would fail."""
    before, after = (render(with_values(**TOPICS, **more)).one("Job") for more in ({}, change))
    assert before["spec"] != after["spec"]
    assert before["metadata"]["name"] != after["metadata"]["name"]


MSK = {
    "partitions": 4,
    "keda/enabled": True,
    "settings/kafka_oauth_callback": "msk_tokens:token",
    "settings/kafka/security.protocol": "SASL_SSL",
    "settings/kafka/sasl.mechanism": "OAUTHBEARER",
}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "keda.metadata.saslTokenProvider aws_msk_iam needs a role"),
        ({"identityOwner": "operator"}, ""),
    ],
)
def test_keda_reads_the_lag_of_msk_by_a_role_of_its_own(more: dict[str, str], words: str) -> None:
    """Without a TriggerAuthentication KEDA asks for an access key, unless the operator's own role is named."""
    metadata = {"saslTokenProvider": "aws_msk_iam", "awsRegion": "eu-central-1", **more}
    answer = render(with_values(**MSK, **{"keda/metadata": metadata}))
    assert answer.ok is not bool(words), answer.said
    assert words in answer.said
    with_reference = {"keda/authenticationRef": "msk", "keda/metadata": {**metadata}}
    assert render(with_values(**MSK, **with_reference)).ok


IMMUTABLE = ("selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates", "clusterIP", "accessModes")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smallest", "everything"])
def test_a_release_of_the_older_chart_can_be_upgraded_with_its_own_values(name: str, tmp_path: Path) -> None:
    """No value that was taken is refused, no object but the Job is renamed, no field that can't be changed differs."""
    try:
        old = extract(RELEASED, tmp_path) / "helm" / CHART.name
    except NoHistoryError as error:
        pytest.skip(str(error))
    values = yaml.safe_load((old / "ci" / f"{name}-values.yaml").read_text())
    before, after = (
        {(one["kind"], one["metadata"]["name"]): one for one in answer.manifests() if one["kind"] != "Job"}
        for answer in (helm("template", "sketch", str(old), "--namespace", "data", values=values), render(values))
    )
    assert set(before) == set(after)
    for key, manifest in before.items():
        was, now = manifest.get("spec", {}), after[key].get("spec", {})
        assert [was.get(field) for field in IMMUTABLE] == [now.get(field) for field in IMMUTABLE], key


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A chart that has this one as a dependency, as a platform team's own chart does."""
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    dependency = {"name": CHART.name, "version": version, "condition": f"{CHART.name}.enabled"}
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    return tmp_path


def test_a_parent_chart_can_switch_it_on_and_off_and_name_a_registry(parent: Path) -> None:
    def of(enabled: bool) -> Answer:
        mine = {**values_file("smallest"), "enabled": enabled}
        everyone = {"imageRegistry": "mirror.example.com", "imagePullSecrets": ["pull"], "storageClass": "fast"}
        return helm("template", "p", str(parent), values={CHART.name: mine, "global": everyone})

    pod = of(enabled=True).one("Deployment")["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].startswith("mirror.example.com/sfd-stream:")
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert of(enabled=False).manifests() == []
    assert "enabled" in render(with_values(enabled=False)).said, "nothing would follow from it"
