"""Addresses as librdkafka reads them."""

from __future__ import annotations

import pytest

from sfd_stream.doctor.broker import addresses


@pytest.mark.parametrize(
    ("bootstrap", "found"),
    [
        ("a:1,b:2", [("a", 1), ("b", 2)]),
        (" a:1 , ", [("a", 1)]),
        ("a", [("a", 9092)]),
        ("SSL://a:1", [("a", 1)]),
        ("[::1]:1", [("::1", 1)]),
    ],
)
def test_addresses_have_a_port_each(bootstrap: str, found: list[tuple[str, int]]) -> None:
    assert addresses(bootstrap) == found
