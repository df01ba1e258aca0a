"""Each bad value is refused with words that say which, why, and what to do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfd_stream.config import kafka_properties
from sfd_stream.config.secrets import is_secret, mask_text
from tests.deploy.chart import CHART, helm, render, values_file
from tests.deploy.test_chart import ON_DISK, with_values

SECRET = "hunter2-hunter2"
KEDA = {"partitions": 4, "keda/enabled": True}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"settings/kafka": {"group.id": "g"}}, "settings.kafka.bootstrap.servers is required: the brokers"),
    ({"settings/kafka": {"bootstrap.servers": "b:1"}}, "settings.kafka.group.id is required: the consumer group"),
    ({"settings/input": {}}, "settings.input.topic is required"),
    ({"settings/sketch": {}}, "settings.sketch.d is required"),
    ({"settings/checkpoint": {}}, "settings.checkpoint.url is required: s3://bucket/prefix"),
    ({"settings/checkpoint/url": "memory://x"}, "would be lost with each pod"),
    ({"settings/checkpoint/url": "file:///var/lib/sfd-stream"}, "without persistence would be lost with each pod"),
    (ON_DISK, "ReadWriteMany, not ReadWriteOnce: the next owner of a partition could not see its checkpoints"),
    (
        {**ON_DISK, "partitions": 4, "replicas": 1, "keda/enabled": True},
        "the next owner of a partition could not see its checkpoints",
    ),
    ({**ON_DISK, "replicas": 1, "persistence/mountPath": "/data"}, "is not below persistence.mountPath /data"),
    ({**ON_DISK, "replicas": 1, "persistence/mountPath": "/var/lib/sfd"}, "is not below persistence.mountPath"),
    ({"settings/kafka/sasl.password": "x"}, "name that under secretEnv.SFD_KAFKA__SASL_PASSWORD"),
    (
        {"settings/schema_registry/basic.auth.user.info": "me:x"},
        "name that under secretEnv.SFD_SCHEMA_REGISTRY__BASIC_AUTH_USER_INFO",
    ),
    ({"settings/kafka/ssl.key.password": "x"}, "settings.kafka.ssl.key.password is a secret"),
    ({"settings/kafka/sasl.oauthbearer.config": "x"}, "settings.kafka.sasl.oauthbearer.config is a secret"),
    ({"settings/checkpoint/options": {"secret_access_key": "x"}}, "use a workload identity"),
    ({"settings/checkpoint/options": {"account_key": "x"}}, "use a workload identity"),
    ({"settings/checkpoint/options": {"master_key": "x"}}, "settings.checkpoint.options.master_key is a secret"),
    (
        {"settings/checkpoint/options": {"aws_sse_customer_key_base64": "x"}},
        "settings.checkpoint.options.aws_sse_customer_key_base64 is a secret",
    ),
    (
        {"settings/checkpoint/options": {"proxy_url": f"http://user:{SECRET}@proxy:3128"}},
        "settings.checkpoint.options.proxy_url holds a secret (a password, a key or a token in its text)",
    ),
    ({"settings/checkpoint/url": f"s3://key:{SECRET}@bucket/p"}, "settings.checkpoint.url holds a secret"),
    (
        {"settings/kafka/ssl.certificate.pem": f"-----BEGIN PRIVATE KEY-----\n{SECRET}"},
        "settings.kafka.ssl.certificate.pem holds a secret",
    ),
    (
        {"extraEnv": [{"name": "SFD_KAFKA__SASL_PASSWORD", "value": SECRET}]},
        "extraEnv SFD_KAFKA__SASL_PASSWORD is a secret, and readable in the pod's spec",
    ),
    (
        {"extraEnv": [{"name": "HTTPS_PROXY", "value": f"http://user:{SECRET}@proxy"}]},
        "extraEnv HTTPS_PROXY holds a secret",
    ),
    ({"keda/metadata": {"password": SECRET}}, "keda.metadata.password is a secret, and readable in the ScaledObject"),
    ({"keda/metadata": {"awsEndpoint": f"https://user:{SECRET}@host"}}, "keda.metadata.awsEndpoint holds a secret"),
    (
        {"merge/extraArgs": ["--set", f"kafka.sasl.password={SECRET}"]},
        "merge.extraArgs kafka.sasl.password is a secret",
    ),
    ({"score/extraArgs": [f"--set=kafka.sasl.password={SECRET}"]}, "score.extraArgs kafka.sasl.password is a secret"),
    ({"merge/extraArgs": [f"--set=kafka.sasl.password={SECRET}"]}, "merge.extraArgs kafka.sasl.password is a secret"),
    (
        {"merge/extraArgs": ["--set", f"checkpoint.options.proxy_url=http://u:{SECRET}@p"]},
        "merge.extraArgs checkpoint.options.proxy_url holds a secret",
    ),
    ({"terminationGracePeriodSeconds": 10}, "must be above settings.checkpoint.revoke_budget_s (10 s)"),
    ({"settings/http": {"port": 0}}, "settings.http.port must not be 0 here"),
    ({"settings/sketch/seed": 2**53 + 2}, "settings.sketch.seed is beyond 2^53"),
    ({"keda/enabled": True}, "keda.enabled needs partitions"),
    ({**KEDA, "keda/fallback": {"replicas": 5, "failureThreshold": 3}}, "keda.fallback.replicas is above"),
    (
        {"podAntiAffinityPreset": "soft", "affinity": {"podAntiAffinity": {"x": []}}},
        "podAntiAffinityPreset and affinity.podAntiAffinity say two things",
    ),
    ({"strategy": {"type": "OnDelete"}}, "strategy.type OnDelete is for a StatefulSet"),
    ({"kind": "StatefulSet", "strategy": {"type": "Recreate"}}, "strategy.type Recreate is for a Deployment"),
    (
        {**ON_DISK, "replicas": 1, "strategy": {"type": "RollingUpdate"}},
        "the new pod would wait for a claim that the old one holds",
    ),
    ({"partitions": 4, "keda/enabled": True, "keda/maxReplicas": 5}, "keda.maxReplicas is above partitions (4)"),
    ({"partitions": 4, "keda/enabled": True, "keda/minReplicas": 5}, "keda.minReplicas is above"),
    (
        {**KEDA, "settings/kafka/security.protocol": "SASL_SSL"},
        "keda.enabled with settings.kafka.security.protocol SASL_SSL needs keda.authenticationRef: KEDA has no login",
    ),
    (
        {**KEDA, "settings/kafka/security.protocol": "sasl_plaintext", "keda/metadata": {"sasl": "", "tls": ""}},
        "keda.enabled with settings.kafka.security.protocol SASL_PLAINTEXT needs keda.authenticationRef",
    ),
    (
        {**KEDA, "settings/kafka/security.protocol": "SSL", "settings/kafka/ssl.certificate.location": "/c.pem"},
        "keda.enabled with settings.kafka.ssl.certificate.location needs keda.authenticationRef",
    ),
    (
        {**KEDA, "settings/kafka/security.protocol": "SASL_SSL", "settings/kafka/sasl.mechanism": "PLAINN"},
        "settings.kafka.sasl.mechanism PLAINN is none that KEDA knows",
    ),
    (
        {
            **KEDA,
            "settings/kafka/security.protocol": "SASL_SSL",
            "settings/kafka/sasl.mechanism": "OAUTHBEARER",
            "keda/metadata": {"saslTokenProvider": "aws_msk_iam"},
        },
        "keda.metadata.saslTokenProvider aws_msk_iam needs keda.metadata.awsRegion",
    ),
    (
        {
            **KEDA,
            "settings/kafka/security.protocol": "SASL_PLAINTEXT",
            "settings/kafka/sasl.mechanism": "OAUTHBEARER",
            "keda/metadata": {"saslTokenProvider": "aws_msk_iam", "awsRegion": "eu-west-1"},
        },
        "keda.metadata.saslTokenProvider aws_msk_iam needs settings.kafka.security.protocol SASL_SSL",
    ),
    ({"partitions": 1}, "replicas is above partitions (1): a replica beyond"),
    ({"topics/create": True}, "topics.create needs partitions"),
    ({"merge/enabled": True}, "merge.enabled needs settings.merge.topic"),
    ({"score/enabled": True}, "score.enabled needs settings.score.topic"),
    (
        {
            "score/enabled": True,
            "settings/snapshot": {"topic": "s"},
            "settings/score": {"topic": "scores"},
            "score/replicas": 4,
            "partitions": 3,
        },
        "score.replicas is 4, but there are 3 partitions",
    ),
    (
        {"merge/enabled": True, "settings/merge": {"topic": "world"}},
        "merge.enabled needs settings.snapshot.topic, or settings.merge.topics",
    ),
    (
        {
            **ON_DISK,
            "replicas": 1,
            "merge/enabled": True,
            "settings/merge": {"topic": "world"},
            "settings/snapshot": {"topic": "s"},
        },
        "merge.enabled with settings.checkpoint.url file:// needs persistence.accessMode ReadWriteMany",
    ),
    ({"podMonitor/enabled": True, "serviceMonitor/enabled": True}, "would scrape each pod twice"),
    # values.schema.json, whose words are helm's
    ({"settings/sketch/elll": 5}, "settings.sketch: Additional property elll is not allowed"),
    ({"settings/sketch/ell": 0}, "settings.sketch.ell: Must be greater than or equal to 1"),
    ({"settings/input/columns": "floating"}, "settings.input.columns must be one of the following"),
    ({"setings": {}}, "Additional property setings is not allowed"),
    ({"kind": "DaemonSet"}, "kind must be one of the following"),
    ({"replicas": -1}, "replicas: Must be greater than or equal to 0"),
    ({"replicas": "two"}, "replicas: Invalid type"),
    ({"image/digest": "sha256:abc"}, "image.digest: Does not match pattern"),
    ({"persistence/accessMode": "ReadOnlyMany"}, "persistence.accessMode must be one of the following"),
    ({"secretEnv": {"SFD_KAFKA__SASL_PASSWORD": "hunter2"}}, "secretEnv.SFD_KAFKA__SASL_PASSWORD: Invalid type"),
    ({"secretEnv": {"A": {"name": "s"}}}, "secretEnv.A: key is required"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words[:50] for _, words in REFUSED])
def test_a_bad_value_is_refused_with_the_right_words(changes: dict[str, Any], words: str) -> None:
    answer = render(with_values(**changes))
    assert not answer.ok
    assert words in answer.said
    assert SECRET not in answer.said


TAKEN: list[dict[str, Any]] = [
    {"settings/checkpoint/options": {"application_credentials": "/var/run/gcp/key.json", "region": "eu"}},
    {"settings/checkpoint/options": {"proxy_url": "http://proxy:3128", "sse_kms_key_id": "alias/rows"}},
    {"settings/kafka/sasl.oauthbearer.client.credentials.client.id": "worker"},
    {"settings/kafka/sasl.oauthbearer.token.endpoint.url": "https://issuer/token"},
    {"settings/kafka/sasl.oauthbearer.config": "eu-west-1", "settings/kafka_oauth_callback": "acme:token"},
    {"extraEnv": [{"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/var/run/gcp/key.json"}]},
    {"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]},
    {"extraEnv": [{"name": "A_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    {"merge/extraArgs": ["--set", "sketch.ell=10"]},
]


@pytest.mark.parametrize("changes", TAKEN, ids=[str(changes)[:70] for changes in TAKEN])
def test_what_is_no_secret_is_taken(changes: dict[str, Any]) -> None:
    answer = render(with_values(**changes))
    assert answer.ok, answer.said


def test_chart_and_program_have_one_idea_of_a_secret(tmp_path: Path) -> None:
    """Go's regular expressions on every name and text give the program's own answer."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    names = sorted(
        {*kafka_properties.KNOWN, *STORE_OPTIONS, *(f"SFD_KAFKA__{n.upper()}" for n in kafka_properties.KNOWN)}
    )
    texts = [text.format(SECRET) for text in TEXTS]
    (chart / "files" / "asked.json").write_text(json.dumps({"names": names, "texts": texts}))
    (chart / "templates" / "asked.yaml").write_text(
        """judged:
{{- range $name := (.Files.Get "files/asked.json" | fromJson).names }}
- {{ include "sfd.secret" (dict "root" $ "name" $name "value" "x") | quote }}
{{- end }}
{{- range $text := (.Files.Get "files/asked.json" | fromJson).texts }}
- {{ include "sfd.secret" (dict "root" $ "name" "x" "value" $text) | quote }}
{{- end }}
"""
    )
    answer = helm("template", "x", str(chart), "--show-only", "templates/asked.yaml", values=values_file("smallest"))
    assert answer.ok, answer.said
    judged = [bool(words) for words in yaml.safe_load(answer.out)["judged"]]
    assert judged == [*map(is_secret, names), *(mask_text(text) != text for text in texts)]
    assert 20 < sum(judged[: len(names)]) < len(names) / 4
    assert sum(judged[len(names) :]) == 9


STORE_OPTIONS = """
    access_key access_key_id account_key account_name application_credentials authority_host
    aws_sse_customer_key_base64 bearer_token client_id client_secret container_authorization_token_file
    container_credentials_full_uri encryption_key endpoint fabric_session_token fabric_token_service_url
    federated_token_file master_key proxy_url region role_arn sas_key sas_token secret_access_key service_account
    service_account_key session_token sse_bucket_key_enabled sse_customer_key_base64 sse_kms_key_id tenant_id token
    tokens web_identity_token_file saslTokenProvider password
""".split()  # noqa: SIM905 - a table of names
TEXTS = [
    "https://user:{}@host:1/x?y=1", "https://{}@host/x", "password = '{}'", "https://blob/x?sv=1&sig={}&se=2",
    "Authorization: Bearer {}", "-----BEGIN RSA PRIVATE KEY-----\n{}", "aws_secret_access_key={} region=eu",
    "a 'sasl.password': '{}'", "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    "s3://bucket/{}", "rows/3 at 12:30, 5 tokens", "http://proxy:3128", "registry/image:tag@sha256:{}", "eu-west-1",
]  # fmt: skip
