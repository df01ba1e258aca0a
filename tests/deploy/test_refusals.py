"""Each bad value is refused with words that say which, why, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.chart import render
from tests.deploy.test_chart import ON_DISK, with_values

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
    ({"settings/kafka/ssl.key.password": "x"}, "settings.kafka.ssl.key.password is a secret"),
    ({"settings/kafka/sasl.oauthbearer.config": "x"}, "settings.kafka.sasl.oauthbearer.config is a secret"),
    ({"settings/checkpoint/options": {"secret_access_key": "x"}}, "use a workload identity"),
    ({"settings/checkpoint/options": {"account_key": "x"}}, "use a workload identity"),
    ({"terminationGracePeriodSeconds": 10}, "must be above settings.checkpoint.revoke_budget_s (10 s)"),
    ({"settings/http": {"port": 0}}, "settings.http.port must not be 0 here"),
    ({"settings/sketch/seed": 2**53 + 2}, "settings.sketch.seed is beyond 2^53"),
    ({"keda/enabled": True}, "keda.enabled needs partitions"),
    ({"partitions": 4, "keda/enabled": True, "keda/maxReplicas": 5}, "keda.maxReplicas is above partitions (4)"),
    ({"partitions": 4, "keda/enabled": True, "keda/minReplicas": 5}, "keda.minReplicas is above"),
    ({"partitions": 1}, "replicas is above partitions (1): a replica beyond"),
    ({"topics/create": True}, "topics.create needs partitions"),
    ({"merge/enabled": True}, "merge.enabled needs settings.merge.topic"),
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
    ({"replicas": 0}, "replicas: Must be greater than or equal to 1"),
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
