"""A wrong checkpoint.url ends in a sentence that says how to write it, and never repeats a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfd_stream.errors import SettingsError
from sfd_stream.storage.disk import DiskStore
from sfd_stream.storage.memory import MemoryStore
from sfd_stream.storage.objects import ObjectStore
from sfd_stream.storage.open import open_store


def test_each_scheme_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store(tmp_path.as_uri()), DiskStore)
    assert isinstance(open_store("memory://x"), MemoryStore)
    assert isinstance(open_store("s3://bucket/prefix", {"region": "eu-west-1"}), ObjectStore)
    assert isinstance(open_store("gs://bucket/prefix", {"skip_signature": "true"}), ObjectStore)
    assert isinstance(open_store("az://box/prefix", {"account_name": "a", "skip_signature": "true"}), ObjectStore)


def test_memory_is_shared_by_name_within_the_process() -> None:
    open_store("memory://shared").put("a", b"x")
    assert open_store("memory://shared").get("a") == b"x"
    assert open_store("memory://another").list("") == []


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///var/x", "/var/x"),
        ("file:///var/x/", "/var/x"),
        ("file://localhost/var/x", "/var/x"),
        ("file:/var/x", "/var/x"),
        ("FILE:///var/x", "/var/x"),
        ("file:///var/my%20dir", "/var/my dir"),
    ],
)
def test_a_folder_may_be_written_in_all_ways_that_are_clear(url: str, path: str) -> None:
    assert open_store(url).url == Path(path).as_uri()


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("/var/x", "write 'file:///var/x'"),
        ("file://relative/x", "write 'file:///relative/x', or 'file:///.*/relative/x' for the folder below"),
        ("file://", "as in 'file:///var/lib/sfd-stream'"),
        ("file:///", "as in 'file:///var/lib/sfd-stream'"),
        ("file:relative", "as in 'file:///var/lib/sfd-stream'"),
        ("file:///a/../b", "without '..'"),
        ("file:///a?b", "after [?] or #"),
        ("", "has no scheme; write 'file:///"),
        ("relative/x", "has no scheme; write 'file:///.*/relative/x'"),
        ("gcs://bucket", "one of file:///folder, s3://bucket/prefix, gs://"),
        ("s3:///prefix", "write 's3://bucket/prefix'"),
        ("s3://bucket/a//b", "prefix that is not safe"),
        ("s3://bucket/../b", "prefix that is not safe"),
        ("memory://", "write 'memory://some-name'"),
        ("s3://[bad", "no URL"),
    ],
)
def test_a_wrong_url_is_answered_with_the_right_one(url: str, remedy: str) -> None:
    with pytest.raises(SettingsError, match=remedy):
        open_store(url)


@pytest.mark.parametrize(
    "url", ["s3://key:hush@bucket/x", "az://box/x?sig=hush", "https://u:hush@host/x", "s3://b/x#hush"]
)
def test_a_secret_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    assert "hush" not in str(caught.value)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(SettingsError, match="regoin"):
        open_store("s3://bucket", {"regoin": "eu-west-1"})


def test_a_folder_takes_no_options() -> None:
    with pytest.raises(SettingsError, match="takes no store options, but region is set"):
        open_store("file:///var/x", {"region": "x"})


@pytest.mark.parametrize(
    "options",
    [
        {"timeout_s": "soon"},
        {"timeout_s": "-1"},
        {"retry_s": "nan"},
        {"max_retries": "1e9"},
        {"allow_http": "maybe"},
    ],
)
def test_a_wrong_limit_is_named(options: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=next(iter(options))):
        open_store("s3://bucket", options)


def test_options_do_not_show_in_what_goes_to_a_log() -> None:
    options = {"access_key_id": "hush-id", "secret_access_key": "hush-key", "session_token": "hush-token"}
    store = open_store("s3://bucket/prefix", options)
    assert store.url == "s3://bucket/prefix"
    assert "hush" not in repr(store) + str(vars(store))
