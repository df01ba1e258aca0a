"""Checks the way to the brokers: name resolution, connection, TLS and login."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import KafkaError

from sfd_stream.doctor.check import Check, Finding, failed, good, skipped, warning
from sfd_stream.doctor.context import Patient
from sfd_stream.kafka.admin import BUILT_IN
from sfd_stream.kafka.properties import redacted

_PORT: Final = 9092
_CONNECT_S: Final = 5.0
_NODE: Final = re.compile(r":\d+/\d+: ")
"""Marks a broker that is known by its id, from metadata. librdkafka calls the configured addresses bootstrap."""


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Parses `a:9092, PLAINTEXT://b` as librdkafka does."""
    found = []
    for part in filter(None, (each.strip().rpartition("://")[2] for each in bootstrap.split(","))):
        host, colon, port = part.rpartition(":")
        has_port = colon and port.isdigit()
        found.append((host.strip("[]"), int(port)) if has_port else (part.strip("[]"), _PORT))
    return found


def names(patient: Patient) -> Finding:
    places = addresses(str(patient.properties["bootstrap.servers"]))
    unknown = [f"{host} ({words})" for host, port in places if (words := _unresolved(host, port))]
    remedy = "correct kafka.bootstrap.servers, or the name service of this machine"
    return _some(unknown, len(places), "does not resolve", f"all of {len(places)} resolve", remedy)


def connection(patient: Patient) -> Finding:
    places = addresses(str(patient.properties["bootstrap.servers"]))
    unreached = [f"{host}:{port} ({words})" for host, port in places if (words := _unreached(host, port))]
    remedy = "start the broker, correct the port in kafka.bootstrap.servers, or open the firewall or network policy"
    return _some(unreached, len(places), "can't be reached", f"all of {len(places)} accept connections", remedy)


def _unresolved(host: str, port: int) -> str | None:
    return _error_of(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))


def _unreached(host: str, port: int) -> str | None:
    return _error_of(lambda: socket.create_connection((host, port), _CONNECT_S).close())


def _error_of(attempt: Callable[[], object]) -> str | None:
    try:
        attempt()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _some(missing: list[str], wanted: int, what: str, otherwise: str, remedy: str) -> Finding:
    if not missing:
        return good(otherwise)
    words = f"{', '.join(missing)} {what}"
    return failed(words, remedy) if len(missing) == wanted else warning(f"{words}; others do", remedy)


def tls(patient: Patient) -> Finding:
    remedy = "check ssl.ca.location, the certificate's names, and ssl.certificate.location"
    code = KafkaError._SSL  # noqa: SLF001 - librdkafka's own codes
    return _secured(patient, "SSL", code, remedy, "the broker's certificate is trusted")


def login(patient: Patient) -> Finding:
    remedy = "check sasl.mechanism and the credentials"
    code = KafkaError._AUTHENTICATION  # noqa: SLF001 - librdkafka's own codes
    return _secured(patient, "SASL", code, remedy, "the broker accepts the credentials")


def _secured(patient: Patient, part: str, code: int, remedy: str, otherwise: str) -> Finding:
    """Whether the client reported no error of this code, if the protocol has this part."""
    if part not in _protocol(patient):
        return skipped(f"security.protocol is {_protocol(patient)}")
    error = patient.answer.error(code)
    if patient.answer.metadata is None and error is not None:
        return failed(_client_error(patient, error), remedy)
    return good(otherwise)


def broker(patient: Patient) -> Finding:
    """A broker answers, and the addresses that the brokers advertise are reachable."""
    errors = [_client_error(patient, error) for error in patient.answer.errors]
    misled = [words for words in errors if _NODE.search(words)]
    metadata = patient.answer.metadata
    if metadata is not None:
        given = [(each.host, each.port) for each in metadata.brokers.values()]
        misled = [f"{host}:{port}: {words}" for host, port in given if (words := _unreached(host, port))]
    if misled:
        return failed(
            f"answers, but advertises an address that cannot be reached from here ({misled[0]})",
            "correct the broker's advertised.listeners, or make that address reachable from here",
        )
    if metadata is None:
        return failed(
            f"accepts connections, but does not answer {_protocol(patient)}"
            f" ({errors[0] if errors else f'nothing within {patient.timeout_s:g} s'})",
            "set kafka.security.protocol to the protocol of that port: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        )
    if metadata.cluster_id.startswith(BUILT_IN):
        return failed(
            "is the one built into the client, for demos and tests: it keeps nothing on disk and has no permissions",
            "set kafka.bootstrap.servers to a Kafka cluster",
        )
    return good(f"cluster {metadata.cluster_id}, with {len(metadata.brokers)} brokers, all reachable")


def _protocol(patient: Patient) -> str:
    return str(patient.properties.get("security.protocol", "plaintext")).upper()


def _client_error(patient: Patient, error: KafkaError) -> str:
    return f"{error.name()}: {redacted(error.str(), patient.properties)}"


def checks() -> Iterator[Check]:
    yield Check("name resolution", names, "")
    yield Check("connection", connection, "", after=("name resolution",))
    yield Check("TLS", tls, "check the ssl.* properties", after=("connection",))
    yield Check("login", login, "check the sasl.* properties", after=("TLS",))
    yield Check("broker", broker, "check kafka.bootstrap.servers", after=("login",))
