"""Our lists of librdkafka's properties agree with librdkafka."""

from __future__ import annotations

from sfd_stream.config import kafka_properties as properties
from sfd_stream.kafka import properties as owned


def test_librdkafka_knows_every_name_that_we_may_suggest() -> None:
    complaints = {name: properties._complaint(name, "\x01") for name in properties.KNOWN}
    assert not [name for name, text in complaints.items() if text and "not a librdkafka property" in text]


def test_no_property_is_both_owned_and_suggested_or_for_one_client_and_the_other() -> None:
    assert not properties.KNOWN & owned.OWNED.keys()
    assert not owned.CONSUMER_ONLY & owned.PRODUCER_ONLY


def test_what_the_protocol_owns_is_refused_with_a_reason() -> None:
    found = dict(properties.problems(dict.fromkeys(owned.OWNED, "x")))
    assert found.keys() == owned.OWNED.keys()
    assert all(text.startswith("can't be set: ") and len(text) > 40 for text in found.values())


def test_each_client_gets_what_it_takes() -> None:
    given = {"bootstrap.servers": "h:1", "group.id": "g", "linger.ms": 5}
    assert owned.for_producer(given) == {"bootstrap.servers": "h:1", "linger.ms": 5}
    assert owned.for_consumer(given) == {"bootstrap.servers": "h:1", "group.id": "g"}
    assert owned.for_admin(given) == {"bootstrap.servers": "h:1"}


def test_environment_names_lead_back_to_every_property() -> None:
    for name in properties.KNOWN:
        assert properties.property_of(name.upper().replace(".", "_")) == name
    assert properties.property_of("SOME_NEW_THING") == "some.new.thing"
