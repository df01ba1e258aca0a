"""What a store behind a network can do wrong, on a real S3 server: rights, lost answers, a dead server."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from sfd_stream.errors import (
    ObjectExistsError,
    ObjectMissingError,
    SettingsError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from tests.support.proxy import LossyProxy
from tests.support.seaweed import (
    ACCESS_KEY,
    READ_ONLY_ACCESS_KEY,
    READ_ONLY_SECRET_KEY,
    SECRET_KEY,
    SeaweedServer,
    free_ports,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.real_s3, pytest.mark.xdist_group("s3"), pytest.mark.timeout(120)]

VERBS: dict[str, Callable[[Store], object]] = {
    "create": lambda store: store.create_if_absent("a/2", b"x"),
    "put": lambda store: store.put("a/2", b"x"),
    "get": lambda store: store.get("a/1"),
    "list": lambda store: store.list("a"),
    "delete": lambda store: store.delete("a/1"),
}
IMPATIENT = {"timeout_s": "1", "connect_timeout_s": "1", "retry_s": "1", "max_retries": "0"}


@pytest.fixture
def proxy(s3_server: SeaweedServer) -> Iterator[LossyProxy]:
    with LossyProxy(s3_server.endpoint) as one:
        yield one


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"access_key_id": "hush-nobody"},
        {"secret_access_key": "hush-wrong"},
    ],
    ids=["unknown key", "wrong secret"],
)
def test_wrong_credentials_are_refused_at_once_and_not_repeated(
    s3_server: SeaweedServer, verb: str, wrong: dict[str, str]
) -> None:
    store = open_store(s3_server.new_url(), s3_server.options(**wrong))
    with pytest.raises(StoreRefusedError, match="check the credentials") as caught:
        VERBS[verb](store)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("verb", ["create", "put", "delete"])
def test_without_the_right_to_write_writes_are_refused_and_reads_work(s3_server: SeaweedServer, verb: str) -> None:
    url = s3_server.new_url()
    open_store(url, s3_server.options()).put("a/1", b"x")
    reader = s3_server.options(access_key_id=READ_ONLY_ACCESS_KEY, secret_access_key=READ_ONLY_SECRET_KEY)
    with pytest.raises(StoreRefusedError, match="Access Denied"):
        VERBS[verb](open_store(url, reader))
    assert open_store(url, reader).get("a/1") == b"x"
    assert open_store(url, reader).list("a") == ["a/1"]


@pytest.mark.parametrize("verb", ["get", "list", "delete"])
def test_a_missing_bucket_is_no_missing_object(s3_server: SeaweedServer, verb: str) -> None:
    store = open_store("s3://no-such-bucket/x", s3_server.options())
    with pytest.raises(StoreRefusedError, match="create the bucket"):
        VERBS[verb](store)


@pytest.mark.parametrize("verb", VERBS)
def test_a_refused_connection_may_pass(s3_server: SeaweedServer, verb: str) -> None:
    (port,) = free_ports(1)
    options = s3_server.options(endpoint=f"http://127.0.0.1:{port}", **IMPATIENT | {"max_retries": "2"})
    with pytest.raises(StoreUnavailableError, match=r"in s3://.*\(connect\)"):
        VERBS[verb](open_store(s3_server.new_url(), options))


def test_plain_http_must_be_allowed_explicitly(s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    options = s3_server.options(allow_http="false")
    with pytest.raises(SettingsError, match="allow_http=true"):
        open_store(s3_server.new_url(), options)
    monkeypatch.setenv("AWS_ENDPOINT_URL", options.pop("endpoint"))
    with pytest.raises(StoreRefusedError, match="region and endpoint"):
        open_store(s3_server.new_url(), options).get("a/1")


def test_credentials_and_endpoint_may_come_from_the_environment(
    s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    store = open_store(s3_server.new_url(), {"allow_http": "true"})
    store.create_if_absent("a/1", b"x")
    assert store.get("a/1") == b"x"


def test_a_create_whose_answer_is_lost_is_unknown_and_done(s3_server: SeaweedServer, proxy: LossyProxy) -> None:
    url = s3_server.new_url()
    store = open_store(url, s3_server.options(endpoint=proxy.endpoint, **IMPATIENT))
    proxy.cut_answers(1)
    with pytest.raises(StoreUnavailableError):
        store.create_if_absent("a/1", b"nonce")
    assert proxy.answers_lost == 1
    assert store.get("a/1") == b"nonce"


def test_a_create_that_the_library_repeats_meets_its_own_write(s3_server: SeaweedServer, proxy: LossyProxy) -> None:
    store = open_store(s3_server.new_url(), s3_server.options(endpoint=proxy.endpoint))
    proxy.cut_answers(1)
    with pytest.raises(ObjectExistsError):
        store.create_if_absent("a/1", b"nonce")
    assert proxy.answers_lost == 1
    assert store.get("a/1") == b"nonce"


def test_reads_and_overwrites_are_repeated_until_an_answer_comes(s3_server: SeaweedServer, proxy: LossyProxy) -> None:
    store = open_store(s3_server.new_url(), s3_server.options(endpoint=proxy.endpoint))
    for call in (lambda: store.put("a/1", b"x"), lambda: store.get("a/1"), lambda: store.list("a")):
        proxy.cut_answers(2)
        call()
    assert proxy.answers_lost == 6


def test_a_silent_server_ends_in_an_unknown_answer(s3_server: SeaweedServer, proxy: LossyProxy) -> None:
    url = s3_server.new_url()
    store = open_store(url, s3_server.options(endpoint=proxy.endpoint, **IMPATIENT))
    proxy.hold_answers()
    with pytest.raises(StoreUnavailableError, match=r"\(timeout\)"):
        store.create_if_absent("a/1", b"nonce")
    with pytest.raises(StoreUnavailableError):
        store.get("a/1")
    assert open_store(url, s3_server.options()).get("a/1") == b"nonce"


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_killed_server_and_the_rest_is_whole_or_absent(
    s3_server: SeaweedServer,
) -> None:
    store = open_store(s3_server.new_url(), s3_server.options(**IMPATIENT))
    content = b"x" * 50_000
    done: list[str] = []
    unknown: list[str] = []
    some_done, killed = threading.Event(), threading.Event()

    def write(writer: int) -> None:
        for number in range(10_000):
            key = f"a/{writer}-{number:05d}"
            try:
                store.create_if_absent(key, content)
            except StoreUnavailableError:
                unknown.append(key)
                if killed.is_set():
                    return
            else:
                done.append(key)
                if len(done) >= 20:
                    some_done.set()

    writers = [threading.Thread(target=write, args=(at,)) for at in range(3)]
    for one in writers:
        one.start()
    try:
        assert some_done.wait(60)
        s3_server.kill()
        killed.set()
        for one in writers:
            one.join()
    finally:
        s3_server.restart()
    assert unknown
    again = open_store(store.url, s3_server.options())
    assert {again.get(key) for key in done} == {content}
    for key in unknown:
        try:
            assert again.get(key) == content
        except ObjectMissingError:
            again.create_if_absent(key, content)
    assert again.list("a") == sorted(done + unknown)
