"""Which inputs are rows of named features."""

from __future__ import annotations

import numpy as np
import pytest

from sfd_stream import HashedColumns
from sfd_stream.sketch.features import are_mappings, listed


def test_a_list_of_mappings_is_rows_by_name() -> None:
    assert are_mappings([{"sun": 1}], None)
    assert not are_mappings(np.eye(2), None)


def test_an_empty_list_is_rows_by_name_only_where_columns_have_names() -> None:
    assert are_mappings([], HashedColumns(8))
    assert not are_mappings([], None)


def test_iterators_and_arrays_of_objects_become_lists() -> None:
    rows = [{"sun": 1}, {"moon": 2}]
    assert listed(iter(rows)) == rows
    assert listed(np.array(rows, dtype=object)) == rows


def test_one_mapping_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"give a list of them, \[row\]"):
        listed({"sun": 1})
