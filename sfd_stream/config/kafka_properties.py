"""Checks the `kafka:` section: properties that the protocol sets itself, or that librdkafka refuses.

librdkafka validates names and values. The list here is used to suggest the nearest valid property.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sfd_stream.kafka.properties import CONSUMER_ONLY, PRODUCER_ONLY, owned_reason

_COMMON: Final = frozenset(
    """
    api.version.fallback.ms api.version.request api.version.request.timeout.ms bootstrap.servers
    broker.address.family broker.address.ttl broker.version.fallback builtin.features client.dns.lookup
    client.id client.rack client.software.name client.software.version connections.max.idle.ms
    debug enable.metrics.push
    enable.random.seed enable.sasl.oauthbearer.unsecure.jwt enable.sparse.connections
    enable.ssl.certificate.verification https.ca.location https.ca.pem internal.termination.signal
    log.connection.close log.thread.name log_level max.in.flight max.in.flight.requests.per.connection
    message.copy.max.bytes message.max.bytes metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms
    metadata.recovery.strategy plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms
    reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name sasl.mechanism sasl.mechanisms sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.jwt.template.file
    sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type
    sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method sasl.oauthbearer.scope
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password sasl.username
    security.protocol socket.connection.setup.timeout.ms socket.keepalive.enable socket.max.fails
    socket.nagle.disable socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
    ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem
    ssl.cipher.suites ssl.crl.location ssl.curves.list ssl.endpoint.identification.algorithm ssl.engine.id
    ssl.engine.location ssl.key.location ssl.key.password ssl.key.pem ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms topic.blacklist
    topic.metadata.propagation.max.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """.split()  # noqa: SIM905 - a table of names reads better than 200 quoted ones
)
KNOWN: Final = _COMMON | CONSUMER_ONLY | PRODUCER_ONLY

_BY_ENVIRONMENT_NAME: Final = {name.replace(".", "_"): name for name in KNOWN}
_SENTINEL: Final = "sfd.no.such.property"


def property_of(environment_key: str) -> str:
    """`BOOTSTRAP_SERVERS` -> `bootstrap.servers`. Properties that contain an underscore are listed."""
    key = environment_key.lower()
    return _BY_ENVIRONMENT_NAME.get(key, key.replace("_", "."))


def problems(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(property, problem) for each property that the protocol sets itself or that librdkafka refuses."""
    for name, value in properties.items():
        reason = owned_reason(name)
        if reason is not None:
            yield name, f"can't be set: {reason}"
        elif complaint := _complaint(name, value):
            yield name, complaint


def _complaint(name: str, value: Any) -> str | None:
    """The error of librdkafka for the property. No client is created, because the next property does not exist."""
    from confluent_kafka import KafkaException, Producer  # noqa: PLC0415 - loads librdkafka only where needed

    try:
        Producer({name: value, _SENTINEL: ""})
    except (KafkaException, TypeError, ValueError) as error:
        text = error.args[0].str() if isinstance(error, KafkaException) else str(error)
    if _SENTINEL in text:
        return None
    if text.startswith("No such configuration property"):
        nearest = difflib.get_close_matches(name, KNOWN, n=1)
        return "is not a librdkafka property" + (f"; did you mean kafka.{nearest[0]}?" if nearest else "")
    allowed = re.search(r"outside allowed range (\S+)", text)
    return f"must be in {allowed[1]}" if allowed else "has a value that librdkafka does not accept"
