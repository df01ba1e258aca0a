"""Records on a real Kafka with a real schema registry: every format gives the same sketch, whatever is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.support.kafka import Broker
from tests.support.proxy import LossyProxy
from tests.support.registry import Registry
from tests.support.slow import smoke_first
from tests.system.conftest import MakeRun
from tests.system.runs import assert_same
from tests.unit.wire.formats.events import (
    AVRO_SCHEMA,
    EVENT_INDEXES,
    FEATURES,
    MESSAGE,
    PROTO,
    as_avro,
    as_json,
    as_protobuf,
    by_name,
    descriptor_set,
    events,
    framed,
)

SKETCH = {"d": 1024, "ell": 10, "buffer_max_bytes": 200_000}
JSON_SCHEMA = json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "Event", "type": "object"})
KILLED_AT = ("after-manifest", "after-claim", "before-CreateIfAbsent", "before-Put", "before-commit", "after-commit")
Changes = dict[str, dict[str, Any]]
pytestmark = pytest.mark.xdist_group("registry")  # one registry is enough


@dataclass(frozen=True)
class Way:
    """How events are written, and the settings that read them."""

    write: Callable[[dict[str, Any]], bytes]
    changes: Changes


def registered(url: str, kind: str, text: str) -> int:
    with SchemaRegistryClient({"url": url, "timeout": 30}) as client:
        return int(client.register_schema(f"events-{kind.lower()}-value", Schema(text, kind)))


def ways(url: str, folder: Path) -> Mapping[str, Way]:
    avro, proto = folder / "event.avsc", folder / "event.desc"
    avro.write_text(json.dumps(AVRO_SCHEMA))
    proto.write_bytes(descriptor_set())
    texts = {"AVRO": json.dumps(AVRO_SCHEMA), "PROTOBUF": PROTO, "JSON": JSON_SCHEMA}
    ids = {kind: registered(url, kind, text) for kind, text in texts.items()}
    asked: Changes = {"schema_registry": {"url": url, "timeout": 2}}

    def changed(name: str, more: Mapping[str, Any], others: Changes | None = None) -> Changes:
        given = {"columns": "hashed", "format": name, "features": FEATURES, "max_name_bytes": 512, **more}
        return {"input": given, "sketch": SKETCH, **(others or {})}

    return {
        "msgpack": Way(by_name, {"input": {"columns": "hashed", "max_name_bytes": 512}, "sketch": SKETCH}),
        "json": Way(as_json, changed("json", {})),
        "json-registry": Way(lambda event: framed(ids["JSON"], as_json(event)), changed("json", {}, asked)),
        "avro": Way(as_avro, changed("avro", {"schema": str(avro)})),
        "avro-registry": Way(lambda event: framed(ids["AVRO"], as_avro(event)), changed("avro", {}, asked)),
        "protobuf": Way(as_protobuf, changed("protobuf", {"schema": str(proto), "message": MESSAGE})),
        "protobuf-registry": Way(
            lambda event: framed(ids["PROTOBUF"], as_protobuf(event), EVENT_INDEXES), changed("protobuf", {}, asked)
        ),
    }


@pytest.mark.parametrize("count", smoke_first([2_000, 20_000]))
def test_every_format_gives_the_same_sketch_to_the_last_bit(
    kafka: Broker, registry: Registry, make_run: MakeRun, tmp_path: Path, count: int
) -> None:
    data = events(count)
    states = {}
    for name, way in ways(registry.url, tmp_path).items():
        topic = kafka.create_topic()
        kafka.produce(topic, [way.write(event) for event in data])
        run = make_run(kafka, topic, changes=way.changes)
        run.inside()
        states[name] = run.state(0)
    for name, state in states.items():
        assert state.rows == count, name
        assert_same(state, states["msgpack"])
    assert states["json"].builder.shrinks > 1


@pytest.mark.slow
def test_while_the_registry_is_unavailable_reading_waits_and_nothing_is_lost(
    kafka: Broker, registry: Registry, make_run: MakeRun, tmp_path: Path
) -> None:
    """Killed under load, and started again; schemas are registered again before the worker can ask."""
    where = urlsplit(registry.url)
    with LossyProxy(f"http://{where.netloc}") as proxy:
        way = ways(registry.url, tmp_path)["avro-registry"]
        seen = {"schema_registry": {"url": f"{proxy.endpoint}{where.path}", "timeout": 2}}
        topic, letters = kafka.create_topic(), kafka.create_topic()
        run = make_run(kafka, topic, changes=way.changes | seen | {"dead_letters": {"topic": letters}})
        later = {**AVRO_SCHEMA, "fields": AVRO_SCHEMA["fields"][::-1]}
        second = registered(registry.url, "AVRO", json.dumps(later))
        data = events(3_000)
        kafka.produce(topic, [way.write(event) for event in data[:1000]])
        companion = run.begin()
        companion.until(lambda: run.durable_offset(0) == 1000, "the first schema's rows")

        registry.kill()
        proxy.refusing.set()
        kafka.produce(topic, [framed(second, as_avro(event, later)) for event in data[1000:2000]])
        kafka.produce(topic, [way.write(event) for event in data[2000:]])
        companion.until(
            lambda: companion.worker.watch.status.doing.startswith("waiting for the schema registry:"), "the outage"
        )
        registry.start()
        ways(registry.url, tmp_path)
        assert registered(registry.url, "AVRO", json.dumps(later)) == second
        assert run.durable_offset(0) == 1000
        proxy.refusing.clear()
        companion.until(lambda: run.durable_offset(0) == 3000, "all rows")
        companion.stop()
    assert companion.worker.intake.decoder.outage is None
    state = run.state(0)
    assert (state.rows, state.bad) == (3_000, 0)
    assert kafka.end_offset(letters) == 0

    undisturbed = kafka.create_topic()
    kafka.produce(undisturbed, [as_json(event) for event in data])
    other = make_run(kafka, undisturbed, changes=ways(registry.url, tmp_path)["json"].changes)
    other.inside()
    assert_same(state, other.state(0))


def test_an_unknown_schema_is_a_bad_message_and_the_others_count(
    kafka: Broker, registry: Registry, make_run: MakeRun, tmp_path: Path
) -> None:
    way = ways(registry.url, tmp_path)["avro-registry"]
    topic, letters = kafka.create_topic(), kafka.create_topic()
    good = [way.write(event) for event in events(10)]
    kafka.produce(topic, [*good[:5], framed(4711, b"\x00"), *good[5:]])
    run = make_run(kafka, topic, changes=way.changes | {"dead_letters": {"topic": letters}})
    worker = run.inside()
    state = run.state(0)
    assert (state.rows, state.bad) == (10, 1)
    assert kafka.end_offset(letters) == 1
    assert worker.watch._letters == {"unknown_schema": 1}


@pytest.mark.parametrize(
    "name",
    [
        "json",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("avro-registry", "protobuf-registry", "msgpack", "json-registry", "avro", "protobuf")
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("deaths", smoke_first([3, 3 * len(KILLED_AT)]))
def test_killed_at_any_point_each_record_counts_once(
    kafka: Broker, registry: Registry, make_run: MakeRun, tmp_path: Path, name: str, deaths: int
) -> None:
    """One worker after the other dies at a point of the protocol; records keep coming."""
    way = ways(registry.url, tmp_path)[name]
    topic, points = kafka.create_topic(), (KILLED_AT * 3)[:deaths]
    messages = [way.write(event) for event in events(800 * (len(points) + 1))]
    run = make_run(kafka, topic, changes=way.changes)
    for number, point in enumerate(points):
        kafka.produce(topic, messages[800 * number : 800 * (number + 1)])
        worker = run.start(die_at=point)
        assert worker.wait() == -signal.SIGKILL, worker.log()
    kafka.produce(topic, messages[800 * len(points) :])
    run.to_the_end()
    undisturbed = make_run(kafka, topic, changes=way.changes)
    undisturbed.to_the_end()
    state = run.state(0)
    assert (state.rows, state.bad) == (len(messages), 0)
    assert_same(state, undisturbed.state(0))
