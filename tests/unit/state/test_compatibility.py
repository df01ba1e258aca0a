"""A state goes on under other parameters while its columns keep their meaning. Else it is refused, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from sfd_stream import FeatureMap
from sfd_stream.state.compatibility import check_parameters
from sfd_stream.state.steps import Refused
from sfd_stream.wire.features import differences

FIXED = {"columns": "fixed", "d": 10, "ell": 4, "seed": 1}
GROWING = {"columns": "growing", "d": 64, "d_max": 128, "ell": 4}
HASHED = {"columns": "hashed", "d": 64, "hash_seed": 3}


@pytest.mark.parametrize(
    ("stored", "change"),
    [
        (FIXED, {"ell": 9}),
        (FIXED, {"d": 11}),
        (FIXED, {"seed": 2}),
        (FIXED, {}),
        (GROWING, {"d": 16}),
        (GROWING, {"d_max": 64}),
        (HASHED, {"half_life_rows": 5}),
    ],
)
def test_what_leaves_the_state_its_meaning_may_change(stored: dict[str, Any], change: dict[str, Any]) -> None:
    assert check_parameters(stored, stored | change, where="rows/0") is None


@pytest.mark.parametrize(
    ("stored", "change"),
    [
        (FIXED, {"d": 9}),
        (FIXED, {"columns": "growing"}),
        (GROWING, {"d_max": 63}),
        (HASHED, {"hash_seed": 4}),
        (HASHED, {"d": 128}),
        (HASHED, {"columns": "fixed"}),
    ],
)
def test_what_makes_the_state_meaningless_is_refused(stored: dict[str, Any], change: dict[str, Any]) -> None:
    verdict = check_parameters(stored, stored | change, where="rows/0")
    assert isinstance(verdict, Refused)
    assert next(iter(change)) in verdict.why
    assert "checkpoint reset rows/0" in verdict.remedy


def described(**settings: Any) -> dict[str, Any]:
    return FeatureMap.from_settings(settings).described()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (described(fields={"price": "log1p"}), described(fields={"price": {"scale": 0.01}}),
         "fields.price was log1p and is scale 0.01"),
        (described(), described(exclude=["id"]), "exclude was not set and is id"),
        (None, described(), "the state holds rows of msgpack and the settings ask for records with input.features"),
        ({"path": "a"}, {}, "input.path was a and is not set"),
    ],
)  # fmt: skip
def test_another_mapping_for_a_state_is_refused_with_the_difference_and_the_command(
    old: Any, new: Any, words: str
) -> None:
    stored = {"columns": "hashed", "hash_seed": 0, "d": 10}
    refused = check_parameters(
        stored if old is None else stored | {"features": old}, stored | {"features": new}, where="rows/0"
    )
    assert isinstance(refused, Refused)
    assert words in refused.why
    assert 'or start again by "sfd-stream checkpoint reset rows/0 --to earliest"' in refused.remedy
    assert differences(old, new) in refused.why


def test_the_same_mapping_written_in_another_order_goes_on() -> None:
    one = described(fields={"a": "text", "b": {"scale": 2, "clip": [0, 1]}})
    other = described(fields={"b": {"clip": [0, 1.0], "scale": 2.0}, "a": {"text": True}})
    stored = {"columns": "hashed", "hash_seed": 0, "d": 10}
    assert check_parameters(stored | {"features": one}, stored | {"features": other}, where="rows/0") is None
