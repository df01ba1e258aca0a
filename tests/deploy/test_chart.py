"""The chart, rendered by a real helm: what it promises, whatever the values."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfd_stream.config import load
from sfd_stream.config.model import CheckpointSettings, HttpSettings
from sfd_stream.merge import FLUSH_S as MERGE_FLUSH_S
from sfd_stream.worker.worker import FLUSH_S, LEAVE_S
from tests.deploy.chart import (
    CHART,
    COPIES,
    GOLDEN,
    ROOT,
    fresh_chart,
    fresh_readme,
    fresh_schema,
    fresh_secrets,
    helm,
    render,
    values_file,
)

NAMES = ("smallest", "everything")


def with_values(base: str = "smallest", **changes: Any) -> dict[str, Any]:
    """Values with changes under dotted names: `with_values(**{"keda.enabled": True})`."""
    found = copy.deepcopy(values_file(base))
    for path, value in changes.items():
        *above, last = path.split("/")
        node = found
        for part in above:
            node = node.setdefault(part, {})
        node[last] = value
    return found


ON_DISK = {"settings/checkpoint/url": "file:///var/lib/sfd-stream/rows", "persistence/enabled": True}
MATRIX: dict[str, dict[str, Any]] = {
    "smallest": with_values(),
    "everything": with_values("everything"),
    "deployment of everything": with_values("everything", kind="Deployment"),
    "stateful": with_values(kind="StatefulSet"),
    "on disk, alone": with_values(**ON_DISK, replicas=1),
    "on disk, shared": with_values(**ON_DISK, **{"persistence/accessMode": "ReadWriteMany"}),
    "on a given claim": with_values(**ON_DISK, **{"persistence/existingClaim": "mine"}, replicas=1),
    "service monitor": with_values(**{"serviceMonitor/enabled": True}),
    "nothing around it": with_values(
        **{"podDisruptionBudget/enabled": False, "networkPolicy/enabled": False, "serviceAccount/create": False}
    ),
    "keda with defaults": with_values(partitions=8, **{"keda/enabled": True}),
    "soft anti-affinity, in turn": with_values(
        podAntiAffinityPreset="soft", strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    ),
    "own spread": with_values(
        **{
            "topologySpread/constraints": [
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
            ]
        }
    ),
    "azure, growing columns": with_values(
        **{
            "settings/checkpoint/url": "az://sketches/rows",
            "settings/input/columns": "growing",
            "settings/sketch": {"ell": 20},
        }
    ),
}
matrix = pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())


def worker(values: dict[str, Any]) -> dict[str, Any]:
    """The pod of a Deployment's workers."""
    found: dict[str, Any] = render(values).one("Deployment", "-stream")["spec"]["template"]["spec"]
    return found


def pods(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pod's spec, of whatever makes it."""
    found = []
    for manifest in render(values).manifests():
        if manifest["kind"] == "Pod":
            found.append(manifest["spec"])
        elif "template" in manifest.get("spec", {}):
            found.append(manifest["spec"]["template"]["spec"])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_helm_has_nothing_against_it(name: str) -> None:
    answer = helm("lint", "--strict", str(CHART), values=values_file(name))
    assert answer.ok, answer.out


def test_helm_lint_takes_the_chart_as_it_is_without_values() -> None:
    """As a linter of many charts runs it: `fail` is silent there, so that templates see what is required as missing."""
    answer = helm("lint", "--strict", str(CHART), values={})
    assert answer.ok, answer.out
    assert not render({}).ok, "an installation still needs them"


@pytest.mark.parametrize("name", NAMES)
def test_the_manifests_are_those_that_were_looked_at(name: str) -> None:
    """Fresh ones by `make chart`; look at the difference before you keep it."""
    assert render(values_file(name)).out == (GOLDEN / f"{name}.yaml").read_text()


@matrix
def test_the_program_itself_takes_the_settings(values: dict[str, Any], tmp_path: Path) -> None:
    rendered = render(values).one("ConfigMap", "sfd-stream")["data"]["settings.yaml"]
    file = tmp_path / "settings.yaml"
    file.write_text(rendered)
    found = load(file, environ={}).settings
    assert found.http.host == "0.0.0.0"  # noqa: S104 - in a pod
    given = tmp_path / "given.yaml"
    given.write_text(
        yaml.safe_dump({**values["settings"], "http": {**values["settings"].get("http", {}), "host": found.http.host}})
    )
    assert found == load(given, environ={}).settings


@matrix
def test_every_pod_is_locked_down(values: dict[str, Any]) -> None:
    for pod in pods(values):
        outer, container = pod["securityContext"], pod["containers"][0]
        inner = container["securityContext"]
        assert outer["runAsNonRoot"] is True
        assert outer["runAsUser"] == 10001
        assert outer["seccompProfile"] == {"type": "RuntimeDefault"}
        assert inner["readOnlyRootFilesystem"] is True
        assert inner["allowPrivilegeEscalation"] is False
        assert inner["capabilities"] == {"drop": ["ALL"]}
        assert pod["enableServiceLinks"] is False
        assert pod["automountServiceAccountToken"] is False
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


@matrix
def test_the_grace_is_above_the_revoke_budget(values: dict[str, Any]) -> None:
    budget = values["settings"]["checkpoint"].get("revoke_budget_s", 10)
    assert all(pod["terminationGracePeriodSeconds"] >= budget + 10 for pod in pods(values))


def test_what_is_not_given_is_as_the_program_has_it() -> None:
    """The chart and the image use the program's own defaults; the grace period has room for leaving the group, too."""
    revoke_s, port = (
        model.model_fields[name].default
        for model, name in ((CheckpointSettings, "revoke_budget_s"), (HttpSettings, "port"))
    )
    pod = render(with_values()).one("Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == revoke_s + 20 > revoke_s + LEAVE_S + FLUSH_S + 10
    assert pod["containers"][0]["ports"][0]["containerPort"] == port
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"EXPOSE {port}\n" in dockerfile
    assert f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}\n" in dockerfile


def test_a_probe_waits_longer_than_anything_that_a_loop_may_wait_for() -> None:
    stuck_s = HttpSettings.model_fields["stuck_after_s"].default
    assert stuck_s > MERGE_FLUSH_S
    for kind, ending in (("StatefulSet", "-stream"), ("Deployment", "-merge"), ("Deployment", "-score")):
        found = render(values_file("everything")).one(kind, ending)
        probe = found["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
        assert probe["timeoutSeconds"] >= 5
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 30


@matrix
def test_selectors_find_the_workers_and_nobody_else(values: dict[str, Any]) -> None:
    answer = render(values)
    labels = {
        m["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: m["spec"]["template"]["metadata"][
            "labels"
        ]
        for m in answer.manifests()
        if "template" in m.get("spec", {})
    }
    served = {"worker", "merge", "score"} & set(labels)
    for manifest in answer.manifests():
        kind, wanted = manifest["kind"], manifest.get("spec", {}).get("selector", {})
        if kind in ("PodDisruptionBudget", "PodMonitor", "ServiceMonitor", "Service"):
            found = {name for name, has in labels.items() if selects(wanted, has)}
            own = {manifest["metadata"]["labels"]["app.kubernetes.io/component"]}
            assert found == (served if kind.endswith("Monitor") else own), kind


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    exact = selector.get("matchLabels", selector)
    among = selector.get("matchExpressions", [])
    assert all(one["operator"] == "In" for one in among)
    return exact.items() <= labels.items() and all(labels.get(one["key"]) in one["values"] for one in among)


@matrix
def test_names_have_room_for_what_kubernetes_appends(values: dict[str, Any]) -> None:
    """63 letters: a Job's name is a label of its pods, a StatefulSet's gets a revision's hash."""
    answer = helm("template", "x" * 53, str(CHART), "--namespace", "data", values=values)
    room = {"StatefulSet": 52}
    for manifest in answer.manifests():
        assert len(manifest["metadata"]["name"]) <= room.get(manifest["kind"], 63), manifest["kind"]


@matrix
def test_what_the_chart_names_in_a_pod_is_there(values: dict[str, Any]) -> None:
    manifests = render(values).manifests()
    names = {(m["kind"], m["metadata"]["name"]) for m in manifests}
    for pod in pods(values):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} <= set(volumes)
        assert ("ConfigMap", volumes["settings"]["configMap"]["name"]) in names
        claim = volumes.get("checkpoints", {}).get("persistentVolumeClaim", {}).get("claimName")
        given = values.get("persistence", {}).get("existingClaim")
        assert claim in (None, given) or ("PersistentVolumeClaim", claim) in names


def test_other_settings_are_another_pod() -> None:
    def checksum(values: dict[str, Any]) -> str:
        return str(render(values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    assert checksum(with_values()) == checksum(with_values(replicas=1))
    assert checksum(with_values()) != checksum(with_values(**{"settings/sketch/ell": 51}))


@pytest.mark.parametrize(
    ("kind", "ending"), [("StatefulSet", "-stream"), ("Deployment", "-merge"), ("Deployment", "-score")]
)
def test_probes_ask_the_port_that_the_settings_name(kind: str, ending: str) -> None:
    found = render(with_values("everything", **{"settings/http": {"port": 9999}})).one(kind, ending)
    container, *_ = found["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 9999, "protocol": "TCP"}]
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_a_stateful_pods_name_is_its_group_instance_id() -> None:
    (container,) = render(with_values(kind="StatefulSet")).one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    named = {env["name"]: env for env in container["env"]}
    assert named["SFD_KAFKA__GROUP_INSTANCE_ID"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert "GROUP_INSTANCE_ID" not in render(with_values()).out


def test_secrets_come_by_reference_only() -> None:
    container, *_ = render(values_file("everything")).one("StatefulSet")["spec"]["template"]["spec"]["containers"]
    named = {env["name"]: env for env in container["env"]}
    assert named["SFD_KAFKA__SASL_PASSWORD"]["valueFrom"] == {
        "secretKeyRef": {"name": "kafka-login", "key": "password"}
    }


def test_scaling_never_goes_beyond_the_partitions() -> None:
    answer = render(with_values(partitions=8, **{"keda/enabled": True}))
    spec = answer.one("ScaledObject")["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 8)
    assert spec["triggers"][0]["metadata"]["limitToPartitionsWithLag"] == "true"
    assert "replicas" not in answer.one("Deployment")["spec"], "helm and KEDA would set it in turn"


KEDA = {"partitions": 8, "keda/enabled": True, "keda/authenticationRef": "login"}


@pytest.mark.parametrize(
    ("kafka", "metadata", "expected"),
    [
        ({}, {}, {}),
        ({"security.protocol": "PLAINTEXT"}, {}, {}),
        ({"security.protocol": "ssl"}, {}, {"tls": "enable"}),
        ({"security.protocol": "SASL_SSL"}, {}, {"tls": "enable", "sasl": "gssapi"}),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, {}, {"tls": "enable", "sasl": "plaintext"}),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanisms": "SCRAM-SHA-256"}, {}, {"sasl": "scram_sha256"}),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}, {}, {"sasl": "scram_sha512"}),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
            {},
            {"tls": "enable", "sasl": "oauthbearer"},
        ),
        # Given ones win: another listener for KEDA; or nothing, where the TriggerAuthentication says it.
        ({"security.protocol": "SASL_SSL"}, {"sasl": "none", "tls": "disable"}, {"sasl": "none", "tls": "disable"}),
        ({"security.protocol": "SASL_SSL"}, {"sasl": "", "tls": ""}, {}),
    ],
)
def test_keda_logs_in_as_the_worker_does(
    kafka: dict[str, Any], metadata: dict[str, Any], expected: dict[str, str]
) -> None:
    changes = {f"settings/kafka/{name}": value for name, value in kafka.items()}
    spec = render(with_values(**KEDA, **changes, **{"keda/metadata": metadata})).one("ScaledObject")["spec"]
    found = spec["triggers"][0]["metadata"]
    assert {name: found[name] for name in ("tls", "sasl") if name in found} == expected
    assert found["bootstrapServers"] == "kafka:9092"


def test_keda_can_be_given_another_listener_and_a_cloud_identity() -> None:
    changes = {
        **KEDA,
        "keda/authenticationRef": "",
        "settings/kafka/security.protocol": "SASL_SSL",
        "settings/kafka/sasl.mechanism": "OAUTHBEARER",
        "settings/kafka_oauth_callback": "acme:token",
        "keda/metadata": {
            "saslTokenProvider": "aws_msk_iam",
            "awsRegion": "eu-west-1",
            "identityOwner": "operator",
            "bootstrapServers": "other:9098",
        },
    }
    (trigger,) = render(with_values(**changes)).one("ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"]["bootstrapServers"] == "other:9098"
    assert (trigger["metadata"]["tls"], trigger["metadata"]["sasl"]) == ("enable", "oauthbearer")
    assert "authenticationRef" not in trigger


def test_a_claim_for_one_node_is_handed_over_not_shared() -> None:
    assert render(with_values(**ON_DISK, replicas=1)).one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}


def test_a_worker_that_is_down_anyway_does_not_hold_up_a_drain() -> None:
    new, old = (
        render(with_values(), "--kube-version", version).one("PodDisruptionBudget")["spec"]
        for version in ("1.27.0", "1.26.0")
    )
    assert new["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert "unhealthyPodEvictionPolicy" not in old


def test_only_who_needs_checkpoints_waits_for_the_claim() -> None:
    answer = render(with_values(**ON_DISK, replicas=1, partitions=4, **{"topics/create": True}))
    assert answer.out.count("claimName:") == 1
    names = [volume["name"] for volume in answer.one("Deployment")["spec"]["template"]["spec"]["volumes"]]
    assert "checkpoints" in names


def test_the_claim_outlives_the_release() -> None:
    claim = render(with_values(**ON_DISK, replicas=1)).one("PersistentVolumeClaim")
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def ports_out(values: dict[str, Any]) -> set[int]:
    """To anywhere: those to the release's own pods and to the node are left out."""
    egress = render(values).one("NetworkPolicy")["spec"]["egress"]
    assert all(rule.get("ports") or rule.get("to") for rule in egress), "a rule without either allows everything"
    return {port["port"] for rule in egress if "to" not in rule for port in rule["ports"]}


@pytest.mark.parametrize(
    ("changes", "ports"),
    [
        ({}, {53, 9092, 443}),
        ({"settings/kafka/bootstrap.servers": "kafka, [2001:db8::1]:9094"}, {53, 9092, 9094, 443}),
        (
            {"settings/checkpoint/options": {"endpoint": "http://minio:9000", "region": "eu:1", "allow_http": True}},
            {53, 9092, 443, 9000},
        ),
        ({"settings/checkpoint/options": {"endpoint": "http://minio"}}, {53, 9092, 443, 80}),
        ({**ON_DISK, "replicas": 1}, {53, 9092}),
        (
            {
                **ON_DISK,
                "replicas": 1,
                "settings/kafka/sasl.oauthbearer.token.endpoint.url": "https://issuer:8443/realms/acme/token",
            },
            {53, 9092, 443, 8443},
        ),
        ({**ON_DISK, "replicas": 1, "settings/kafka_oauth_callback": "acme:token"}, {53, 9092, 443}),
        ({"networkPolicy/extraPorts": [9095]}, {53, 9092, 9095, 443}),
        ({"settings/schema_registry/url": "https://one:8081, http://two:8082/x"}, {53, 9092, 8081, 8082, 443}),
    ],
)
def test_the_network_policy_lets_out_what_the_settings_need(changes: dict[str, Any], ports: set[int]) -> None:
    assert ports_out(with_values(**changes)) == ports


def test_helm_test_gets_through_a_policy_that_names_who_may_ask() -> None:
    (rule,) = render(values_file("everything")).one("NetworkPolicy")["spec"]["ingress"]
    test = render(values_file("everything")).one("Pod", "-test-worker")["metadata"]["labels"]
    assert any(selects(one.get("podSelector", {"matchLabels": {"no": "one"}}), test) for one in rule["from"])


def test_helm_test_asks_every_service_whether_it_is_ready() -> None:
    answer = render(values_file("everything"))
    services = {m["metadata"]["name"] for m in answer.manifests() if m["kind"] == "Service"}
    asked = {
        name: m["spec"]["containers"][0]["args"]
        for m in answer.manifests()
        if m["kind"] == "Pod" and (name := m["metadata"]["name"])
    }
    assert asked.pop("sketch-sfd-stream-test-settings") == ["config", "check"]
    assert {args[-1].removeprefix("http.host=") for args in asked.values()} == services
    assert len(services) == 3
    assert all(args[:2] == ["health", "--ready"] for args in asked.values())


def notes_of(values: dict[str, Any], tmp_path: Path) -> str:
    """Helm shows notes only after it has talked to a cluster, so they are rendered as a part of a copy of the chart."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "NOTES.txt").rename(chart / "notes.txt")
    (chart / "templates" / "notes.yaml").write_text('notes: {{ tpl (.Files.Get "notes.txt") . | quote }}\n')
    arguments = ("--namespace", "data", "--show-only", "templates/notes.yaml")
    return str(yaml.safe_load(helm("template", "sketch", str(chart), *arguments, values=values).out)["notes"])


def test_the_notes_report_a_deprecated_value(tmp_path: Path) -> None:
    values = with_values(**{"prometheusRule/runbookPrefix": "https://git.example.com"})
    assert "Deprecated: prometheusRule.runbookPrefix; use runbookBaseUrl." in notes_of(values, tmp_path)


def test_the_notes_say_what_to_look_at_next(tmp_path: Path) -> None:
    notes = notes_of(values_file("smallest"), tmp_path)
    assert "Deprecated" not in notes
    assert "helm test sketch -n data" in notes
    assert "sfd-stream checkpoint ls" in notes
    assert "-- sfd-stream doctor" in notes
    assert "sfd-stream size --epsilon 0.1 --k 10 --d 1000 --rate ROWS_PER_SECOND --partitions P --pods 2" in notes
    assert "Nothing scrapes it" in notes


def test_the_schema_of_values_holds_the_programs_own() -> None:
    written = json.loads((CHART / "values.schema.json").read_text())
    assert written == fresh_schema(), "stale: make chart"


def test_the_patterns_of_secrets_are_the_programs() -> None:
    assert (CHART / "files" / "secrets.yaml").read_text() == fresh_secrets(), "stale: make chart"


def test_the_readme_is_made_of_the_values() -> None:
    written = (CHART / "README.md").read_text()
    assert written == fresh_readme(), "stale: make chart"
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    below = [(name, part) for name, part in values.items() if isinstance(part, dict) and f"| `{name}` |  |" in written]
    assert {"image", "keda", "merge", "persistence"} <= {name for name, _ in below}
    assert all(f"| `{name}.{child}` |" in written for name, part in below for child in part)
    told = {line.split("`")[1].partition(".")[0] for line in written.splitlines() if line.startswith("| `")}
    assert told == set(yaml.safe_load((CHART / "values.yaml").read_text()))
    assert not re.findall(r"^\| `[^.`]+` .*\|  \|$", written, re.MULTILINE), "a value without a word about it"


FREE = {"global", "strategy"}
"""Of a parent chart; of Kubernetes."""


def test_every_value_is_in_the_schema_and_every_part_is_closed() -> None:
    written = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) | {"enabled"} == set(written["properties"])
    for name, part in written["properties"].items():
        if "properties" in part and name not in FREE:
            assert part["additionalProperties"] is False, name
            assert name == "settings" or set(values[name]) == set(part["properties"]), name


@pytest.mark.parametrize("copied", COPIES, ids=lambda path: path.name)
def test_copies_are_equal_to_their_originals(copied: Path) -> None:
    assert copied.read_bytes() == COPIES[copied].read_bytes(), "stale: make chart"


def test_the_versions_are_the_programs() -> None:
    from sfd_stream import __version__

    assert (CHART / "Chart.yaml").read_text() == fresh_chart(), "stale: make chart"
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
