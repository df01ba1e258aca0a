"""Schemas by id: looked up in the background, kept, and asked for again as long as the registry does not answer."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from sfd_stream.config import load
from sfd_stream.config.describe import effective_rows
from sfd_stream.errors import SettingsError
from sfd_stream.kafka import schema_registry as module
from sfd_stream.kafka.schema_registry import RegisteredSchema, SchemaRegistry, open_registry

NOT_FOUND = 40403


class RefusedError(Exception):
    """As confluent-kafka's SchemaRegistryError."""

    def __init__(self, status: int, code: int, words: str) -> None:
        super().__init__(words)
        self.http_status_code, self.error_code, self.error_message = status, code, words


@dataclass
class Client:
    """`answers` by id: a schema, or what is raised, one after the other."""

    answers: dict[int, list[Any]] = field(default_factory=dict)
    versions: dict[tuple[str, int], Any] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)
    closed: threading.Event = field(default_factory=threading.Event)

    def get_schema(self, schema_id: int, fmt: str | None = None) -> Any:
        assert fmt is None
        self.asked.append(schema_id)
        self.threads.add(threading.current_thread().name)
        answers = self.answers.get(schema_id, [RefusedError(404, NOT_FOUND, "no such schema")])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def get_version(self, subject: str, version: int, fmt: str | None = None) -> Any:
        assert fmt is None
        return SimpleNamespace(schema=self.versions[subject, version])

    def __exit__(self, *_: object) -> None:
        self.closed.set()


@dataclass
class Log:
    lines: list[str] = field(default_factory=list)

    def info(self, event: str, **_: Any) -> None:
        self.lines.append(event)

    warning = info


def schema(text: str, *references: tuple[str, str, int], kind: str = "AVRO") -> Any:
    named = [SimpleNamespace(name=name, subject=subject, version=version) for name, subject, version in references]
    return SimpleNamespace(schema_str=text, schema_type=kind, references=named)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[SchemaRegistry, Client, Log]]]:
    monkeypatch.setattr(module, "BACKOFF_S", (0.001, 0.002))
    registries = []

    def make(**given: Any) -> tuple[SchemaRegistry, Client, Log]:
        client, log = Client(**given), Log()
        registries.append(SchemaRegistry(client, log, clock=lambda: now[0]))
        return registries[-1], client, log

    now = [0.0]
    make.now = now  # type: ignore[attr-defined]
    yield make
    for each in registries:
        each.close()


def found(registry: SchemaRegistry, schema_id: int) -> Any:
    deadline = time.monotonic() + 30
    while (answer := registry.find(schema_id)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return answer


def test_a_schema_is_asked_for_once_and_by_its_own_thread(made: Any) -> None:
    registry, client, _ = made(answers={7: [schema("seven")]})
    assert registry.find(7) is None
    registry.request({7})
    assert found(registry, 7) == RegisteredSchema("AVRO", "seven")
    assert (client.asked, client.threads) == ([7], {"schema-registry"})


@pytest.mark.parametrize(
    "failure",
    [
        OSError("connection refused"),
        RefusedError(500, 50001, "store"),
        RefusedError(401, 40101, "who are you"),
        RefusedError(404, -1, "<html>"),
        ValueError("no JSON"),
    ],
    ids=lambda failure: f"{type(failure).__name__} {getattr(failure, 'http_status_code', '')}",
)
def test_a_registry_that_fails_is_asked_again_until_it_answers(made: Any, failure: Exception) -> None:
    """A wrong address answers 404 too, but not in the registry's own words."""
    registry, client, log = made(answers={7: [failure] * 5 + [schema("seven")], 8: [schema("eight")]})
    registry.request({7, 8})
    assert found(registry, 7).text == "seven"
    assert found(registry, 8).text == "eight"
    assert client.asked.count(7) == 6
    registry.request({8})
    registry.close()
    assert client.closed.wait(30)
    assert registry.outage is None
    assert log.lines == ["schema registry request failed, will retry", "schema registry available again"]


def test_an_outage_is_named_while_it_lasts(made: Any) -> None:
    registry, client, _ = made(answers={7: [OSError("connection refused")]})
    registry.request({7})
    deadline = time.monotonic() + 30
    while len(client.asked) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    made.now[0] = 65.0
    assert registry.outage == "OSError: connection refused, for 65 s"
    assert registry.find(7) is None


def test_an_unknown_id_is_believed_for_a_while(made: Any) -> None:
    registry, client, log = made()
    registry.request({9})
    assert found(registry, 9) == "HTTP 404: no such schema"
    made.now[0] = module.UNKNOWN_S - 1
    assert registry.find(9) is not None
    made.now[0] = module.UNKNOWN_S
    assert registry.find(9) is None
    client.answers[9] = [schema("nine")]
    registry.request({9})
    assert found(registry, 9).text == "nine"
    assert log.lines == []


def test_ever_new_unknown_ids_do_not_fill_the_memory(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNKNOWN_MAX", 10)
    registry, _, _ = made()
    for first in range(0, 50, 5):
        registry.request(range(first, first + 5))
        found(registry, first + 4)
    assert len(registry._unknown) == 10


def test_references_come_before_what_refers_to_them(made: Any) -> None:
    registry, _, _ = made(
        answers={1: [schema("main", ("b", "b-value", 2), ("a", "a-value", 1))]},
        versions={("b-value", 2): schema("B", ("a", "a-value", 1)), ("a-value", 1): schema("A")},
    )
    registry.request({1})
    assert [(name, each.text) for name, each in found(registry, 1).references] == [("a", "A"), ("b", "B")]


def test_a_schema_that_refers_to_too_many_others_is_not_asked_for_again(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REFERENCES_MAX", 3)
    chain = {(f"s{n}", 1): schema(f"{n}", (f"n{n + 1}", f"s{n + 1}", 1)) for n in range(9)}
    registry, client, _ = made(answers={1: [schema("main", ("n0", "s0", 1))]}, versions=chain)
    registry.request({1})
    assert "refers to more than 3 others" in found(registry, 1)
    assert client.asked == [1]


def test_closing_without_a_request_closes_the_client(made: Any) -> None:
    registry, client, _ = made()
    registry.close()
    assert client.closed.is_set()


# -- settings --------------------------------------------------------------------------------------------

GIVEN = [
    "kafka.bootstrap.servers=b:1", "kafka.group.id=g", "input.topic=t", "input.columns=hashed", "sketch.d=100",
    "checkpoint.url=memory://x",
]  # fmt: skip


def test_the_client_gets_its_own_properties_and_a_wrong_one_is_named() -> None:
    settings = {"url": "http://127.0.0.1:1", "timeout": "3", "basic.auth.user.info": "me:word"}
    registry = open_registry(settings, Log(), kind="PROTOBUF", extra="protobuf")
    assert registry._client._rest_client.auth == ("me", "word")
    assert registry._format == "serialized"
    registry.close()
    for wrong in ({"url": "ftp://x"}, {"url": "http://x", "tiemout": 3}, {"url": "http://x", "timeout": "soon"}):
        with pytest.raises(SettingsError, match="schema_registry is not right"):
            open_registry(wrong, Log(), kind="AVRO", extra="avro")


def test_without_the_packages_there_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(SettingsError, match=r"pip install 'sfd-stream\[avro\]'"):
        open_registry({"url": "http://x"}, Log(), kind="AVRO", extra="avro")


def test_settings_and_environment_reach_the_registry_and_secrets_are_masked() -> None:
    effective = load(
        None,
        environ={
            "SFD_SCHEMA_REGISTRY__BASIC_AUTH_USER_INFO": "me:verysecret",
            "SFD_INPUT__FEATURES": "{exclude: [id]}",
        },
        overrides=[*GIVEN, "input.format=avro", "schema_registry.url=https://r:8081"],
    )
    settings = effective.settings
    assert dict(settings.schema_registry) == {"url": "https://r:8081", "basic.auth.user.info": "me:verysecret"}
    assert "me:verysecret" in settings.secret_values()
    shown = {key: value for key, value, _ in effective_rows(effective)}
    assert shown["schema_registry.basic.auth.user.info"] == "***"
    assert shown["input.features"] == {"exclude": ["id"]}
    assert "verysecret" not in repr(settings) + str(settings.model_dump())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["input.format=json", "input.columns=fixed"], "input.columns must be hashed where input.format is json"),
        (["input.format=avro"], "input.schema is required where there is no schema_registry.url"),
        (["input.format=avro", "input.schema=a", "schema_registry.url=http://r"], "give one"),
        (["input.format=protobuf", "input.schema=a"], "input.message is required"),
        (["input.format=json", "input.schema=a"], "does nothing where input.format is json"),
        (["input.format=json", "input.message=a"], "input.message has an effect only for protobuf"),
        (["input.path=a"], "input.path does nothing where input.format is msgpack"),
        (["input.features={exclude: [id]}"], "input.features does nothing"),
        (["schema_registry.url=http://r"], "schema_registry does nothing"),
        (["input.format=json", "input.features={fields: {a: lgo1p}}"], "unknown option 'lgo1p'"),
        (["input.format=json", "input.features={["], "must be YAML or JSON"),
        (["input.format=jsn"], "did you mean json"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(overrides: list[str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, environ={}, overrides=[*GIVEN, *overrides])
    assert words in str(caught.value)
