"""The contract, run on every store: memory, a real disk, a real S3 server, emulators of Azure and Google Cloud."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from sfd_stream.errors import ObjectExistsError, ObjectMissingError, StoreRefusedError
from sfd_stream.storage.contract import Store, key_part
from sfd_stream.storage.probe import probe_store
from tests.unit.storage.racer import race

if TYPE_CHECKING:
    from tests.unit.storage.conftest import Place

ODD_NAMES = [
    "rows",
    "a/b",
    "..",
    ".",
    " ",
    "%",
    "%2F",
    "naïve",
    "日本",
    "a\\b",
    "a:b*c?d",
    "~",
    "\x00\n",
    "UPPER",
    "upper",
]


def test_what_was_created_is_read_back(store: Store) -> None:
    store.create_if_absent("group/topic/0/1", b"one")
    assert store.get("group/topic/0/1") == b"one"


def test_what_was_put_is_read_back_by_another_opening_of_the_same_place(place: Place) -> None:
    place.open().put("a/b", b"data")
    assert place.open().get("a/b") == b"data"


def test_create_never_replaces(store: Store) -> None:
    store.create_if_absent("a/1", b"first")
    with pytest.raises(ObjectExistsError, match="a/1"):
        store.create_if_absent("a/1", b"second")
    assert store.get("a/1") == b"first"


def test_create_does_not_replace_what_was_put(store: Store) -> None:
    store.put("a/1", b"put")
    with pytest.raises(ObjectExistsError):
        store.create_if_absent("a/1", b"created")
    assert store.get("a/1") == b"put"


def test_a_deleted_key_can_be_created_again(store: Store) -> None:
    store.create_if_absent("a/1", b"first")
    store.delete("a/1")
    store.create_if_absent("a/1", b"second")
    assert store.get("a/1") == b"second"


def test_put_replaces_the_whole(store: Store) -> None:
    store.put("a/1", b"a long first content")
    store.put("a/1", b"short")
    assert store.get("a/1") == b"short"


def test_a_bounded_read_ends_one_byte_after_its_bound(store: Store) -> None:
    store.put("a", b"0123456789")
    found = {limit: store.get("a", max_bytes=limit) for limit in (0, 5, 9, 10, 11)}
    assert found == {limit: b"0123456789"[: limit + 1] for limit in found}


def test_a_missing_object_is_named(store: Store) -> None:
    store.put("a/b/1", b"")
    for key in ["a/2", "a/b", "a", "a/b/1/c", "none/at/all"]:
        with pytest.raises(ObjectMissingError, match=key):
            store.get(key)


def test_deleting_is_seen_and_deleting_nothing_is_no_error(store: Store) -> None:
    store.put("a/1", b"x")
    store.delete("a/1")
    store.delete("a/1")
    store.delete("never/there")
    with pytest.raises(ObjectMissingError):
        store.get("a/1")
    assert store.list("a") == []


@pytest.mark.parametrize("verb", ["create_if_absent", "put"])
@pytest.mark.parametrize("size_bytes", [0, 1, 8 * 2**20])
def test_any_size_comes_back_bit_by_bit(store: Store, verb: str, size_bytes: int) -> None:
    data = (bytes(range(256)) * (size_bytes // 256 + 1))[:size_bytes]
    getattr(store, verb)("blob", data)
    assert store.get("blob") == data


def test_a_put_in_parts_comes_back_bit_by_bit(store: Store) -> None:
    data = bytes(range(256)) * (33 * 2**20 // 256)
    store.put("blob", data)
    assert store.get("blob") == data


def test_list_gives_all_keys_below_a_folder_and_no_neighbours(store: Store) -> None:
    for key in ["a/1", "a/sub/2", "a-b/3", "ab/4", "b/5", "a.b/6"]:
        store.put(key, b"")
    assert store.list("a") == ["a/1", "a/sub/2"]
    assert store.list("a/") == ["a/1", "a/sub/2"]
    assert store.list("") == ["a-b/3", "a.b/6", "a/1", "a/sub/2", "ab/4", "b/5"]


def test_list_is_sorted_by_the_whole_key(store: Store) -> None:
    keys = ["a/1/x", "a/1-2", "a/10", "a/9", "a/Z", "a/_", "a/a", "a/~", "a/%41"]
    for key in reversed(keys):
        store.put(key, b"")
    assert store.list("a") == sorted(keys)


def test_list_of_a_missing_folder_is_empty(store: Store) -> None:
    assert store.list("nothing/here") == []
    assert store.list("") == []


def test_list_starts_after_any_key_there_or_not(store: Store) -> None:
    for number in range(5):
        store.put(f"m/{number:04d}", b"")
    assert store.list("m", start_after="m/0002") == ["m/0003", "m/0004"]
    assert store.list("m", start_after="m/0002x") == ["m/0003", "m/0004"]
    assert store.list("m", start_after="m/0004") == []
    assert store.list("m", start_after="a") == store.list("m")
    assert store.list("m", start_after="z") == []


def test_list_sees_more_than_a_page(store: Store) -> None:
    keys = [f"m/{number:06d}" for number in range(1_010)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put(key, b"x"), keys))
    assert store.list("m") == keys
    assert store.list("m", start_after=keys[50]) == keys[51:]


def test_list_sees_each_write_and_delete_at_once(store: Store) -> None:
    for number in range(20):
        store.create_if_absent(f"m/{number:04d}", b"x")
        assert store.list("m")[-1] == f"m/{number:04d}"
    for number in range(20):
        store.delete(f"m/{number:04d}")
        assert f"m/{number:04d}" not in store.list("m")


def test_odd_names_make_different_keys_that_work(store: Store) -> None:
    for name in ODD_NAMES:
        store.create_if_absent(f"{key_part(name)}/0/1", name.encode())
    assert [store.get(f"{key_part(name)}/0/1").decode() for name in ODD_NAMES] == ODD_NAMES
    assert store.list("") == sorted(f"{key_part(name)}/0/1" for name in ODD_NAMES)


def test_the_longest_name_works(store: Store) -> None:
    key = "/".join([key_part("x" * 255), key_part("日" * 28), "0", "1"])
    store.create_if_absent(key, b"x")
    assert store.get(key) == b"x"
    assert store.list(key_part("x" * 255)) == [key]


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        "..",
        "a/../b",
        "./a",
        "a b",
        "a\0",
        ".tmp-1",
        "a/.nfs1",
        "é",
        "x" * 256,
        "x/" * 600 + "x",
    ],
)
def test_an_unsafe_key_reaches_no_store(store: Store, key: str) -> None:
    for call in (
        store.get,
        store.delete,
        lambda key: store.put(key, b""),
        lambda key: store.create_if_absent(key, b""),
    ):
        with pytest.raises(StoreRefusedError):
            call(key)
    assert store.list("") == []


def test_the_probe_finds_the_contract_kept_and_leaves_nothing(store: Store) -> None:
    probe_store(store, "nonce")
    probe_store(store, "nonce")
    assert store.list("") == []


def test_of_50_racing_threads_one_creates(place: Place) -> None:
    store = place.impatient().open()
    winners = race(store, "race/1", [f"writer-{at}" for at in range(50)])
    assert len(winners) == 1
    assert store.get("race/1") == winners[0].encode()


def test_of_50_racing_writers_in_5_processes_one_creates(shared_place: Place) -> None:
    command = [sys.executable, "-m", "tests.unit.storage.racer", shared_place.url, "race/1"]
    racers = [
        subprocess.Popen([*command, f"p{at}", "10"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for at in range(5)
    ]
    for racer in racers:
        _say(racer, json.dumps(dict(shared_place.impatient().options)))
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        _say(racer, "go")
    winners = [name for racer in racers for name in json.loads(racer.communicate(timeout=60)[0])]
    assert len(winners) == 1
    assert shared_place.open().get("race/1") == winners[0].encode()


def _say(racer: subprocess.Popen[str], line: str) -> None:
    assert racer.stdin is not None
    racer.stdin.write(f"{line}\n")
    racer.stdin.flush()


def test_readers_never_see_half_a_put(store: Store) -> None:
    contents = [bytes([at]) * 200_000 for at in range(4)]
    store.put("blob", contents[0])

    def write(at: int) -> None:
        store.put("blob", contents[at % 4])

    with ThreadPoolExecutor(4) as pool:
        writing = [pool.submit(write, at) for at in range(40)]
        seen = {store.get("blob") for _ in range(40)}
        for one in writing:
            one.result()
    assert seen <= set(contents)


def test_what_a_store_shows_of_itself_holds_no_secret(place: Place) -> None:
    store = place.open()
    secret = place.options.get("secret_access_key", "never")
    assert store.url == place.url
    assert store.url in repr(store)
    assert secret not in repr(store) + store.url + str(vars(store))
