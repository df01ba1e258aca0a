"""The store in this process keeps the contract (`test_contract.py`), and is one for each name."""

from __future__ import annotations

from typing import Any

from sfd_stream.storage.memory import MemoryStore, shared_memory_store


def test_there_is_one_shared_store_of_a_name() -> None:
    store = shared_memory_store("a name")
    store.put("p/key", b"data")
    assert shared_memory_store("a name") is store
    assert shared_memory_store("another name").list("p") == []


def test_a_store_of_its_own_shares_nothing_with_one_of_the_same_name() -> None:
    shared_memory_store("mine").put("p/key", b"data")
    assert MemoryStore("mine").list("p") == []


def test_bytes_that_the_caller_changes_later_are_kept_as_they_were() -> None:
    store = MemoryStore("copies")
    data: Any = bytearray(b"before")
    store.put("p/put", data)
    store.create_if_absent("p/created", data)
    data[:] = b"after!"
    assert (store.get("p/put"), store.get("p/created")) == (b"before", b"before")


def test_it_is_printed_with_the_url_that_settings_give_it() -> None:
    assert repr(MemoryStore("trial")) == "MemoryStore('memory://trial')"
