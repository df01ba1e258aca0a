"""Hashing is what the world calls feature hashing, and a number is hashed as its text."""

from __future__ import annotations

import mmh3
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.hashing import hash_decimals, signed_columns
from sfd_stream.wire.rows.decode import decode
from sfd_stream.wire.rows.encode import encode_row

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_packed_numbers_hash_as_their_text_does(numbers: list[int], seed: int) -> None:
    hashes = hash_decimals(np.array(numbers, dtype=np.uint32), seed)
    assert hashes.tolist() == [mmh3.hash(str(number), seed, signed=False) for number in numbers]


def test_packed_numbers_hash_as_their_text_does_at_every_count_of_digits() -> None:
    edges = [number for power in range(10) for number in (10**power - 1, 10**power)]
    numbers = np.array([*edges, 2**32 - 1], dtype=np.uint32)
    assert hash_decimals(numbers, 0).tolist() == [mmh3.hash(str(number), 0, signed=False) for number in numbers]


@given(st.lists(words, min_size=1, max_size=20), st.integers(1, 5000))
@example(["akqlrggi"], 1000)
@settings(max_examples=50, deadline=None)
def test_with_seed_0_columns_are_those_of_scikit_learn(features: list[str], d: int) -> None:
    values = list(range(1, len(features) + 1))
    theirs = FeatureHasher(d, input_type="pair").transform([list(zip(features, values, strict=True))]).toarray()
    ours = decode([encode_row(features, values, packed=False)], HashedColumns(d)).block.csr().toarray()
    assert np.array_equal(ours, theirs)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_an_integer_and_its_text_are_the_same_feature_in_every_form(numbers: list[int]) -> None:
    columns = HashedColumns(97, 5)
    forms = [
        encode_row(numbers),
        encode_row(numbers, packed=False),
        encode_row([str(number) for number in numbers], packed=False),
    ]
    batch = decode(forms, columns)
    dense = batch.block.csr().toarray()
    assert (dense == dense[0]).all()
    assert len({tuple(decode([form], columns).columns.names.items()) for form in forms}) == 1


def test_the_hash_whose_magnitude_is_no_int32_has_its_column() -> None:
    assert mmh3.hash("akqlrggi", 0) == -(2**31)
    columns, signs = signed_columns(["akqlrggi"], 1000, 0)
    assert (columns.tolist(), signs.tolist()) == ([2**31 % 1000], [-1.0])
