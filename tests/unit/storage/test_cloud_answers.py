"""What S3, Google and Azure say when they say no, from a server on loopback to the real client library.

Emulators of Azure and Google Cloud run the contract (test_contract.py); their errors are not those of the clouds.
"""

from __future__ import annotations

import traceback

import pytest

from sfd_stream.errors import (
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from tests.support.answers import OneAnswer

KINDS = ["s3", "gs", "az"]
AZURE_BATCH_NOT_FOUND = (
    "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\n"
    "HTTP/1.1 404 The specified blob does not exist.\r\nx-ms-error-code: BlobNotFound\r\n"
    "Content-Length: 0\r\n\r\n\r\n--b--\r\n"
)
SAS = "sv=2024-01-01&ss=b&srt=sco&sp=rwdlc&se=2099-01-01T00%3A00%3A00Z&sig=hush"


def open_on(kind: str, endpoint: str, **more: str) -> Store:
    common = {"allow_http": "true", "max_retries": "0", "timeout_s": "5"}
    own = {
        "s3": {"endpoint": endpoint, "skip_signature": "true"},
        # A made-up token: Google's writes want one even unsigned, and would ask the machine for its own.
        "gs": {"base_url": endpoint, "bearer_token": "made-up"},
        "az": {"endpoint": endpoint, "account_name": "account", "skip_signature": "true"},
    }[kind]
    return open_store(f"{kind}://bucket/prefix", common | own | more)


def _xml(code: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>words</Message></Error>'


@pytest.mark.parametrize(
    ("kind", "status", "code", "error"),
    [
        ("s3", 412, "PreconditionFailed", ObjectExistsError),
        ("gs", 412, "PreconditionFailed", ObjectExistsError),
        ("az", 409, "BlobAlreadyExists", ObjectExistsError),
        ("s3", 409, "ConditionalRequestConflict", StoreUnavailableError),
        ("s3", 409, "OperationAborted", StoreUnavailableError),
        ("s3", 501, "NotImplemented", StoreRefusedError),
        ("s3", 400, "RequestTimeout", StoreUnavailableError),
        ("s3", 400, "ExpiredToken", StoreRefusedError),
    ],
)
def test_a_create_is_exists_unknown_or_refused(kind: str, status: int, code: str, error: type[StoreError]) -> None:
    with OneAnswer(status, _xml(code)) as server, pytest.raises(error):
        open_on(kind, server.endpoint).create_if_absent("a/1", b"x")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, StoreRefusedError),
        (403, StoreRefusedError),
        (408, StoreUnavailableError),
        (429, StoreUnavailableError),
        (500, StoreUnavailableError),
        (503, StoreUnavailableError),
    ],
)
def test_every_verb_says_what_waiting_would_bring(kind: str, status: int, error: type[StoreError]) -> None:
    with OneAnswer(status, _xml("Whatever")) as server:
        store = open_on(kind, server.endpoint)
        for call in (
            lambda: store.create_if_absent("a/1", b"x"),
            lambda: store.put("a/1", b"x"),
            lambda: store.get("a/1"),
            lambda: store.list("a"),
            lambda: store.delete("a/1"),
        ):
            with pytest.raises(error):
                call()


@pytest.mark.parametrize("kind", KINDS)
def test_not_found_is_a_missing_object_to_a_read_and_a_missing_bucket_to_a_write(kind: str) -> None:
    with OneAnswer(404, _xml("BlobNotFound" if kind == "az" else "NoSuchKey")) as server:
        store = open_on(kind, server.endpoint)
        with pytest.raises(ObjectMissingError):
            store.get("a/1")
        for call in (store.put, store.create_if_absent):
            with pytest.raises(StoreRefusedError, match="create the bucket"):
                call("a/1", b"x")


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_deleting_what_is_not_there_is_done(kind: str) -> None:
    with OneAnswer(404, _xml("NoSuchKey")) as server:
        open_on(kind, server.endpoint).delete("a/1")
        assert [request.split()[0] for request in server.requests] == ["DELETE"]


def test_deleting_what_is_not_there_is_done_on_azure_which_answers_in_a_batch() -> None:
    with OneAnswer(202, AZURE_BATCH_NOT_FOUND, **{"content-type": "multipart/mixed; boundary=b"}) as server:
        open_on("az", server.endpoint).delete("a/1")
        assert "comp=batch" in server.requests[0]


@pytest.mark.parametrize(
    ("kind", "code"), [("s3", "NoSuchBucket"), ("gs", "NoSuchBucket"), ("az", "ContainerNotFound")]
)
def test_a_missing_bucket_is_refused_by_every_verb(kind: str, code: str) -> None:
    with OneAnswer(404, _xml(code)) as server:
        store = open_on(kind, server.endpoint)
        for call in (
            lambda: store.create_if_absent("a/1", b"x"),
            lambda: store.put("a/1", b"x"),
            lambda: store.get("a/1"),
            lambda: store.list("a"),
            lambda: store.delete("a/1"),
        ):
            with pytest.raises(StoreRefusedError, match="create the bucket"):
                call()


def test_another_region_is_refused_in_words() -> None:
    with (
        OneAnswer(301, _xml("PermanentRedirect")) as server,
        pytest.raises(StoreRefusedError, match="region"),
    ):
        open_on("s3", server.endpoint).get("a/1")


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_signature_in_the_requests_url_never_reaches_a_log(status: int) -> None:
    with OneAnswer(status, _xml("Whatever")) as server:
        store = open_on("az", server.endpoint, skip_signature="false", sas_key=SAS)
        with pytest.raises(StoreError) as caught:
            store.get("a/1")
        assert "hush" in server.requests[0], "else this test could not fail"
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_no_query_of_a_request_reaches_a_log() -> None:
    with OneAnswer(500, _xml("Whatever")) as server:
        with pytest.raises(StoreError) as caught:
            open_on("s3", server.endpoint).list("a")
        assert "list-type=2" in server.requests[0]
    assert "list-type=2" not in "".join(traceback.format_exception(caught.value))


def test_s3_itself_is_asked_to_start_the_list_later() -> None:
    empty = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
    with OneAnswer(200, empty) as server:
        assert open_on("s3", server.endpoint).list("a", start_after="a/41") == []
        assert "start-after=prefix%2Fa%2F41" in server.requests[0]


def test_a_server_error_is_tried_again_within_the_limits() -> None:
    with OneAnswer(503, _xml("SlowDown")) as server:
        store = open_on("s3", server.endpoint, max_retries="2", retry_s="10")
        with pytest.raises(StoreUnavailableError):
            store.get("a/1")
        assert len(server.requests) == 3
