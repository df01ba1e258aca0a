"""Schemas by id from a registry with Confluent's API, looked up in the background and kept.

Guarantees:
- `find` and `request` never wait. A thread asks the registry for as long as any schema is wanted.
- If the registry does not answer, refuses the login or gives a bad answer, it is asked again, without end.
- Only the registry's own answer "no such schema" makes an id unknown, and only for `UNKNOWN_S`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sfd_stream.errors import SettingsError

UNKNOWN_S: Final = 60.0
"""How long "no such schema" is believed: the schema may be registered later."""
UNKNOWN_MAX: Final = 10_000
"""Maximum number of unknown ids that are kept. Ids come from messages, so their number has no other bound."""
BACKOFF_S: Final = (0.1, 10.0)
LOG_EVERY_S: Final = 30.0
TIMEOUT_S: Final = 10
REFERENCES_MAX: Final = 100
_UNKNOWN_CODES: Final = (40401, 40402, 40403)  # no such subject, version, schema
_NUMBERS: Final = (
    "timeout", "cache.capacity", "cache.latest.ttl.sec", "max.retries", "retries.wait.ms", "retries.max.wait.ms",
)  # fmt: skip


class _UnusableError(Exception):
    """The registry has the schema, but it can't be used: asking again does not help."""


class RegistryLog(Protocol):
    def info(self, event: str, **context: Any) -> Any: ...
    def warning(self, event: str, **context: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema and all that it refers to, each under the name by which it is used, after those it needs itself."""

    kind: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class SchemaRegistry:
    """`client` is confluent-kafka's SchemaRegistryClient. `text_format`: the form in which schemas are requested."""

    def __init__(
        self,
        client: Any,
        log: RegistryLog,
        *,
        text_format: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._log = log
        self._format = text_format
        self._clock = clock
        self._found: dict[int, RegisteredSchema] = {}
        self._unknown: OrderedDict[int, tuple[float, str]] = OrderedDict()
        self._wanted: OrderedDict[int, None] = OrderedDict()
        self._change = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._failing_since: float | None = None
        self._failure = ""

    # Called by any thread

    def find(self, schema_id: int) -> RegisteredSchema | str | None:
        """The schema; a sentence if the registry does not have it; None if it is not known yet."""
        found = self._found.get(schema_id)
        if found is not None:
            return found
        with self._change:
            at_s, words = self._unknown.get(schema_id, (float("-inf"), ""))
        return words if self._clock() - at_s < UNKNOWN_S else None

    def request(self, schema_ids: Iterable[int]) -> None:
        """Looks these schemas up in the background."""
        with self._change:
            self._wanted.update(dict.fromkeys(schema_ids))
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="schema-registry", daemon=True)
                self._thread.start()
            self._change.notify()

    @property
    def outage(self) -> str | None:
        """Why a schema is still awaited, and since when; None while the registry answers."""
        since = self._failing_since
        return None if since is None else f"{self._failure}, for {self._clock() - since:.0f} s"

    def close(self) -> None:
        """The thread ends after its current request, and closes its connections. It does not keep the process alive."""
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is None:
            self._disconnect()

    def _disconnect(self) -> None:
        self._client.__exit__(None, None, None)

    # The thread

    def _run(self) -> None:
        try:
            self._serve()
        finally:
            self._disconnect()

    def _serve(self) -> None:
        pause_s, logged_s = BACKOFF_S[0], float("-inf")
        while (schema_id := self._next_wanted()) is not None:
            try:
                self._look_up(schema_id)
            except Exception as error:  # noqa: BLE001 - whatever it is, reading waits and it is asked again
                self._failure = words_of(error)
                self._failing_since = self._clock() if self._failing_since is None else self._failing_since
                if self._clock() - logged_s >= LOG_EVERY_S:
                    logged_s = self._clock()
                    self._log.warning(
                        "schema registry request failed, will retry", schema=schema_id, reason=self._failure
                    )
                self._wait(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, BACKOFF_S[1])
                continue
            if self._failing_since is not None:
                self._failing_since, logged_s = None, float("-inf")
                self._log.info("schema registry available again")
            pause_s = BACKOFF_S[0]

    def _next_wanted(self) -> int | None:
        """The next id to look up. It goes to the end of the queue: an id that always fails does not delay others."""
        with self._change:
            while not self._wanted and not self._closed:
                self._change.wait()
            if self._closed:
                return None
            schema_id = next(iter(self._wanted))
            self._wanted.move_to_end(schema_id)
            return schema_id

    def _wait(self, seconds: float) -> None:
        with self._change:
            if not self._closed:
                self._change.wait_for(lambda: self._closed, seconds)

    def _look_up(self, schema_id: int) -> None:
        try:
            given = self._client.get_schema(schema_id, fmt=self._format)
            references = self._references(given.references)
        except Exception as error:
            if getattr(error, "error_code", None) not in _UNKNOWN_CODES and not isinstance(error, _UnusableError):
                raise
            self._settle(schema_id, words_of(error))
            return
        kind = given.schema_type or "AVRO"
        self._found[schema_id] = RegisteredSchema(kind, given.schema_str or "", references)
        self._settle(schema_id, None)

    def _settle(self, schema_id: int, unknown: str | None) -> None:
        with self._change:
            self._wanted.pop(schema_id, None)
            self._unknown.pop(schema_id, None)
            if unknown is not None:
                self._unknown[schema_id] = self._clock(), unknown
                while len(self._unknown) > UNKNOWN_MAX:
                    self._unknown.popitem(last=False)

    def _references(self, given: Iterable[Any] | None) -> tuple[tuple[str, RegisteredSchema], ...]:
        """All schemas that these refer to, each after the schemas it refers to itself."""
        found: dict[str, RegisteredSchema] = {}
        self._gather(given, found, 0)
        return tuple(found.items())

    def _gather(self, given: Iterable[Any] | None, found: dict[str, RegisteredSchema], depth: int) -> None:
        for reference in given or ():
            if reference.name in found:
                continue
            if len(found) >= REFERENCES_MAX or depth >= REFERENCES_MAX:
                raise _UnusableError(f"a schema refers to more than {REFERENCES_MAX} others")
            version = self._client.get_version(reference.subject, reference.version, fmt=self._format)
            self._gather(version.schema.references, found, depth + 1)
            kind = version.schema.schema_type or "AVRO"
            found[reference.name] = RegisteredSchema(kind, version.schema.schema_str or "")


def words_of(error: BaseException) -> str:
    """Why a request failed, in one line."""
    status = getattr(error, "http_status_code", None)
    text = str(getattr(error, "error_message", error))
    place = f"HTTP {status}: " if status is not None else f"{type(error).__name__}: "
    return (place + " ".join(text.split()))[:200]


def open_registry(properties: Mapping[str, Any], log: RegistryLog, *, kind: str, extra: str) -> SchemaRegistry:
    """A registry by the properties of confluent-kafka's own client. SettingsError where it cannot be made."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise SettingsError(
            f"schema_registry needs {error.name}, which is not installed; run: pip install 'sfd-stream[{extra}]'"
        ) from None
    settings: dict[str, Any] = {"timeout": TIMEOUT_S, "max.retries": 0, **properties}
    try:
        settings |= {name: float(settings[name]) for name in _NUMBERS if name in settings}
        client = SchemaRegistryClient(settings)
    except (ValueError, TypeError, OSError) as error:
        raise SettingsError(f"schema_registry is not right: {error}; check its properties") from None
    # Some registries can send Protobuf schemas as descriptors; the others send the text.
    return SchemaRegistry(client, log, text_format="serialized" if kind == "PROTOBUF" else None)
