"""Names become parts of keys without loss, and never anything that a store could take for a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfd_stream.errors import SettingsError, StoreRefusedError
from sfd_stream.storage.contract import check_key, check_prefix, key_part, part_text

names = st.text(min_size=1, max_size=25)


@given(names)
def test_a_name_comes_back_from_its_key_part(name: str) -> None:
    assert part_text(key_part(name)) == name


@given(names, names)
def test_different_names_have_different_parts(a: str, b: str) -> None:
    assert (key_part(a) == key_part(b)) == (a == b)


@given(names)
def test_a_part_is_always_a_safe_key_of_plain_ascii(name: str) -> None:
    part = key_part(name)
    assert check_key(part) == part
    assert part.isascii()
    assert "/" not in part


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("rows", "rows"),
        ("my.topic-1_x", "my.topic-1_x"),
        (".", "%2E"),
        ("..", "%2E."),
        (".tmp-1", "%2Etmp-1"),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("é", "%C3%A9"),
        ("\ud800", "%ED%A0%80"),
    ],
)
def test_parts_stay_as_they_are_for_ever_because_checkpoints_are_found_by_them(name: str, part: str) -> None:
    assert key_part(name) == part


def test_a_name_may_fill_a_part_and_not_more() -> None:
    assert len(key_part("x" * 255)) == 255
    assert len(key_part("é" * 42)) == 252
    with pytest.raises(SettingsError, match="takes 258 bytes"):
        key_part("é" * 43)
    with pytest.raises(SettingsError, match="shorten it"):
        key_part("x" * 256)
    with pytest.raises(SettingsError, match="empty"):
        key_part("")


def test_a_bad_key_is_named_with_its_bad_part() -> None:
    with pytest.raises(StoreRefusedError, match=r"'a/\.\./b'.*'\.\.'"):
        check_key("a/../b")
    with pytest.raises(StoreRefusedError, match="2047 bytes"):
        check_key("/".join("x" * 1024))


def test_a_prefix_may_end_with_a_slash_or_be_empty() -> None:
    assert check_prefix("a/b/") == check_prefix("a/b") == "a/b"
    assert check_prefix("") == check_prefix("/") == ""
