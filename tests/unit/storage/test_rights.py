"""The policies in docs/guides/deploying.md are enough, and no more than enough.

S3's is tried as it stands on a server that judges by such policies. Of Google's and Azure's stores none can be run
here: the requests that the client library makes are recorded, and the rights that each takes, by the providers' own
tables, must be those in the role.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pytest

from sfd_stream.errors import ObjectMissingError, StoreError, StoreRefusedError
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from tests.deploy.test_document import block
from tests.support.answers import Answer, Answers
from tests.support.seaweed import BUCKET, SeaweedServer, key_of
from tests.unit.storage.test_cloud_answers import KINDS, open_on

LARGE = b"x" * (17 << 20)
"""Goes up in parts."""


def missing(store: Store) -> None:
    with pytest.raises(ObjectMissingError):
        store.get("g/t/0/nothing")


CALLS: dict[str, Callable[[Store], Any]] = {
    "create": lambda store: store.create_if_absent("g/t/0/1", b"x"),
    "write": lambda store: store.put("g/t/0/2", b"x"),
    "write in parts": lambda store: store.put("g/t/0/3", LARGE),
    "read": lambda store: store.get("g/t/0/2"),
    "read what is not there": missing,
    "list": lambda store: store.list("g/t/0"),
    "delete": lambda store: store.delete("g/t/0/2"),
}


def refused(store: Store) -> set[str]:
    found = set()
    for name, call in CALLS.items():
        try:
            call(store)
        except StoreRefusedError:
            found.add(name)
        except ObjectMissingError:  # it could not be written before
            pass
    return found


# S3, on a real server

POLICY: dict[str, Any] = json.loads(block("policy s3").replace("acme-sketches", BUCKET))
READER: dict[str, Any] = json.loads(block("policy s3-reader").replace("acme-sketches", BUCKET))
ACTIONS = {
    action
    for statement in POLICY["Statement"]
    for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
}
NEEDED = {
    "s3:ListBucket": {"list"},
    "s3:GetObject": {"read"},
    "s3:PutObject": {"create", "write", "write in parts"},
    "s3:DeleteObject": {"delete"},
}


def without(action: str) -> dict[str, Any]:
    policy = copy.deepcopy(POLICY)
    for statement in policy["Statement"]:
        given = statement["Action"]
        statement["Action"] = [one for one in ([given] if isinstance(given, str) else given) if one != action]
    policy["Statement"] = [statement for statement in policy["Statement"] if statement["Action"]]
    return policy


def name_of(action: str) -> str:
    return action.partition(":")[2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    policies = {"documented": POLICY, "reader": READER} | {name_of(action): without(action) for action in NEEDED}
    with SeaweedServer.start(tmp_path_factory.mktemp("rights"), policies) as server:
        yield server


def opened(server: SeaweedServer, prefix: str, policy: str) -> Store:
    options = server.options(access_key_id=key_of(policy), max_retries="0")
    return open_store(f"s3://{BUCKET}/{prefix}", options)


@pytest.mark.real_s3
def test_the_documented_policy_is_enough_below_its_prefix(server: SeaweedServer) -> None:
    assert refused(opened(server, "clicks", "documented")) == set()


@pytest.mark.real_s3
@pytest.mark.parametrize("prefix", ["other", "clicks2", ""])
def test_the_documented_policy_gives_nothing_elsewhere(server: SeaweedServer, prefix: str) -> None:
    assert refused(opened(server, prefix, "documented")) == set(CALLS)


@pytest.mark.real_s3
@pytest.mark.parametrize("action", NEEDED)
def test_each_right_is_needed(server: SeaweedServer, action: str) -> None:
    found = refused(opened(server, f"clicks/{name_of(action)}", name_of(action)))
    assert NEEDED[action] <= found < set(CALLS)


@pytest.mark.real_s3
def test_the_policy_of_readers_reads_snapshots_and_nothing_else(server: SeaweedServer) -> None:
    worker, reader = opened(server, "clicks", "documented"), opened(server, "clicks", "reader")
    names = {kind: f"g/t/0/blobs/00000000000000000001-1-ab-{kind}" for kind in ("snapshot", "sketch")}
    for key in names.values():
        worker.put(key, b"data")
    assert reader.get(names["snapshot"], max_bytes=4) == b"data"
    missing(reader)
    assert {"create", "write", "write in parts", "delete"} <= refused(reader)
    with pytest.raises(StoreRefusedError):
        reader.get(names["sketch"])
    with pytest.raises(StoreRefusedError):
        opened(server, "other", "reader").list("g")


def test_the_roles_of_readers_hold_no_right_to_write() -> None:
    gcs, azure = json.loads(block("role gcs-reader")), json.loads(block("role azure-reader"))
    assert set(gcs["includedPermissions"]) == {"storage.objects.list", "storage.objects.get"}
    assert (azure["Actions"], azure["DataActions"]) == ([], [f"{BLOBS}read"])


# By the requests that are made

RIGHTS: dict[str, list[tuple[str, set[str]]]] = {
    # Method, and what the path and query look like; the first that fits counts.
    "s3": [
        (r"GET /bucket\?.*list-type=2", {"s3:ListBucket"}),
        (r"GET /bucket/prefix/[^?]+$", {"s3:GetObject"}),
        (r"PUT /bucket/prefix/[^?]+(\?partNumber=\d+&uploadId=u)?$", {"s3:PutObject"}),
        (r"POST /bucket/prefix/[^?]+\?(uploads|uploadId=u)", {"s3:PutObject"}),
        (r"DELETE /bucket/prefix/[^?]+\?uploadId=u$", {"s3:AbortMultipartUpload"}),
        (r"DELETE /bucket/prefix/[^?]+$", {"s3:DeleteObject"}),
    ],
    # Writing over an object takes the right to delete it.
    "gs": [
        (r"GET /bucket\?.*list-type=2", {"storage.objects.list"}),
        (r"GET /bucket/prefix/[^?]+$", {"storage.objects.get"}),
        (r"PUT /bucket/prefix/[^?]+$", {"storage.objects.create", "storage.objects.delete"}),
        (
            r"(PUT /bucket/prefix/[^?]+\?partNumber=\d+&uploadId=u|POST /bucket/prefix/[^?]+\?(uploads|uploadId=u))",
            {"storage.multipartUploads.create", "storage.objects.create", "storage.objects.delete"},
        ),
        (r"DELETE /bucket/prefix/[^?]+\?uploadId=u$", {"storage.multipartUploads.abort"}),
        (r"DELETE /bucket/prefix/[^?]+$", {"storage.objects.delete"}),
    ],
    "az": [
        (r"GET /bucket\?.*comp=list", {"read"}),
        (r"GET /bucket/prefix/[^?]+$", {"read"}),
        (r"PUT /bucket/prefix/[^?]+(\?.*comp=block(list)?.*)?$", {"write"}),
        (r"POST /bucket\?.*comp=batch", {"delete"}),
    ],
}
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/"


def documented(kind: str) -> set[str]:
    if kind == "s3":
        return ACTIONS
    if kind == "gs":
        return set(json.loads(block("role gcs"))["includedPermissions"])
    role = json.loads(block("role azure"))
    assert role["Actions"] == []
    return {action.removeprefix(BLOBS) for action in role["DataActions"]}


def rights_of(kind: str, asked: str) -> set[str]:
    for pattern, rights in RIGHTS[kind]:
        if re.match(pattern, unquote(asked)):
            return rights
    raise AssertionError(f"{kind}: {asked}: which right does that take?")


STAMP = {"etag": '"e"', "last-modified": "Mon, 16 Nov 2026 00:00:00 GMT"}
BATCH = "--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n--b--\r\n"
WELL: list[tuple[str, Answer]] = [
    (r".*list-type=2", (200, "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", {})),
    (r".*comp=list", (200, '<EnumerationResults ContainerName="b"><Blobs/><NextMarker/></EnumerationResults>', {})),
    (r".*comp=batch", (202, BATCH, {"content-type": "multipart/mixed; boundary=b"})),
    (
        r"POST .*\?uploads",
        (200, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>", {}),
    ),
    (r"POST ", (200, "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>", {})),
    (r"PUT ", (201, "", STAMP)),
    (r"", (200, "", STAMP)),
]
PARTS = re.compile(r"PUT .*(partNumber=|comp=block&)")


def answer(asked: str, *, parts_fail: bool) -> Answer:
    """As the providers do where all is well, or where parts of a large object can't be taken."""
    if parts_fail and PARTS.match(asked):
        return 400, "", {}
    return next(said for pattern, said in WELL if re.match(pattern, asked))


@pytest.mark.parametrize("kind", KINDS)
def test_the_requests_that_are_made_take_the_documented_rights_and_no_others(kind: str) -> None:
    taken: set[str] = set()
    for parts_fail in (False, True):
        with Answers(lambda asked, fail=parts_fail: answer(asked, parts_fail=fail)) as server:  # type: ignore[misc]
            store = open_on(kind, server.endpoint)
            for name, call in CALLS.items():
                if name != "read what is not there":
                    with suppress(StoreError):
                        call(store)
        taken |= set().union(*(rights_of(kind, asked) for asked in server.requests))
    assert taken == documented(kind)


def test_what_s3_hides_behind_a_refusal_is_missing_if_the_list_says_so() -> None:
    """S3 answers 403, not 404, for a missing object, to a user who may list only below a prefix."""
    listed = (
        "<Contents><Key>prefix/a/1</Key><Size>1</Size><LastModified>2026-11-16T00:00:00.000Z</LastModified></Contents>"
    )

    def says(asked: str) -> Answer:
        if "list-type=2" in asked:
            return 200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>", {}
        return 403, "<Error><Code>AccessDenied</Code></Error>", {}

    with Answers(says) as server:
        store = open_on("s3", server.endpoint)
        with pytest.raises(ObjectMissingError, match="there is no a/2 in s3://bucket/prefix"):
            store.get("a/2")
        with pytest.raises(StoreRefusedError, match="can't read a/1"):
            store.get("a/1")
