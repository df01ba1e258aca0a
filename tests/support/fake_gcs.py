"""A server with the conditional writes of Google Cloud Storage: fake-gcs-server on loopback, built once by Go.

    with GcsServer.start(folder) as server:
        open_store(server.new_url(), server.options())

obstore writes and lists by the XML API. fake-gcs-server knows that API for reads and deletes, refuses uploads by it
(400, "invalid uploadType"), and lists by it without pages. `_XmlApi` stands before the server and makes of these
requests those of the JSON API, which has the same preconditions. So the generations, the comparison and its lock are
the server's; the spelling of a PUT and of a list is ours, after Google's documentation.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

import pytest

from tests.support.seaweed import DIES_WITH_US, free_ports
from tests.support.tools import go_program

# Without gRPC's modules, which only Google's own client uses: a fifth of the packages less to build.
PROGRAM = ("github.com/fsouza/fake-gcs-server@v1.56.1", "-tags", "disable_grpc_modules")
BUCKET = "checkpoints"
READY_WITHIN_S = 60.0
_KEPT = ("last-modified", "etag", "x-goog-generation", "content-range", "content-type")
"""Headers of the server's answers that are passed on."""


@dataclass
class GcsServer:
    """One running server. `folder` holds its data and its log."""

    folder: Path
    port: int
    front: _Front
    process: subprocess.Popen[bytes] | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def start(cls, folder: Path) -> Self:
        go_program(*PROGRAM)  # before anything is started: it may skip the test
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        server = cls(folder, port, _Front(port))
        threading.Thread(target=server.front.serve_forever, args=(0.02,), daemon=True).start()
        server.restart()
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.front.shutdown()
        self.front.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.front.server_address[1]}"

    def options(self, **changes: str) -> dict[str, str]:
        """What `open_store` needs to reach this server; a change replaces one of them."""
        # Without a token obstore asks the machine for one before each write, even unsigned.
        own = {"base_url": self.endpoint, "bearer_token": "made-up", "allow_http": "true"}
        return own | changes

    def new_url(self) -> str:
        """A place in the bucket that nobody else has."""
        return f"gs://{BUCKET}/{os.getpid()}-{next(self._numbers)}"

    def restart(self) -> None:
        """Start (again) on the same port and data, and wait until there is a bucket."""
        assert self.process is None, "kill it first"
        with (self.folder / "gcs.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            self._create_bucket()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """As `kill -9` does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _command(self) -> list[str]:
        address = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        data = ["-public-host", f"127.0.0.1:{self.port}", "-filesystem-root", str(self.folder / "data")]
        return [*DIES_WITH_US, str(go_program(*PROGRAM)), *address, *data, "-log-level", "warn"]

    def _create_bucket(self) -> None:
        body = json.dumps({"name": BUCKET}).encode()
        url, end = f"http://127.0.0.1:{self.port}/storage/v1/b", time.monotonic() + READY_WITHIN_S
        request = urllib.request.Request(url, body, {"content-type": "application/json"})
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5):  # noqa: S310 - as above
                    return
            except urllib.error.HTTPError as error:
                if error.code == 409:  # a bucket that was kept
                    return
                raise
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                assert self.process is not None
                if self.process.poll() is not None or time.monotonic() > end:
                    log = (self.folder / "gcs.log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"fake-gcs-server did not get ready: {error}\n{log}") from error
                time.sleep(0.1)


class _Front(ThreadingHTTPServer):
    """Takes obstore's requests for the server behind it. A multipart upload is kept here until it is complete."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _XmlApi)
        self.behind = behind
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.numbers = itertools.count(1)

    def handle_error(self, *_: Any) -> None:
        """A client that went away is no event here."""


class _XmlApi(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Front

    def do_PUT(self) -> None:
        if "uploadId" in self._query():
            part = int(self._query()["partNumber"])
            self.server.uploads[self._query()["uploadId"]][part] = self._body()
            return self._answer(200, b"", {"etag": f'"{part}"'})
        wanted = self.headers.get("x-goog-if-generation-match")
        return self._upload(self._body(), {} if wanted is None else {"ifGenerationMatch": wanted}, b"")

    def do_POST(self) -> None:
        body = self._body()
        if "uploads" in self._query():
            upload = str(next(self.server.numbers))
            self.server.uploads[upload] = {}
            return self._xml("InitiateMultipartUploadResult", f"<UploadId>{upload}</UploadId>")
        if "uploadId" not in self._query():
            return self._pass_on(body)
        parts = self.server.uploads[self._query()["uploadId"]]
        whole = b"".join(parts[part] for part in sorted(parts))
        done = b"<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>"
        return self._upload(whole, {}, done)

    def do_GET(self) -> None:
        return self._list() if self._query().get("list-type") == "2" else self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        if "uploadId" not in self._query():
            return self._pass_on()
        self.server.uploads.pop(self._query()["uploadId"], None)
        return self._answer(204, b"", {})

    def _upload(self, data: bytes, conditions: Mapping[str, str], done: bytes) -> None:
        bucket, _, key = unquote(urlsplit(self.path).path).removeprefix("/").partition("/")
        query = urlencode({"uploadType": "media", "name": key} | conditions)
        found = self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", data)
        if found is None:
            return None
        response, answer = found
        if response.status != 200:
            return self._answer(response.status, answer, {})
        attributes = json.loads(answer)
        headers = {"etag": f'"{attributes["etag"]}"', "x-goog-generation": attributes["generation"]}
        return self._answer(200, done, headers)

    def _list(self) -> None:
        asked, bucket = self._query(), unquote(urlsplit(self.path).path).strip("/")
        wanted = {"prefix": asked.get("prefix", ""), "maxResults": asked.get("max-keys", "1000")}
        if "start-after" in asked:
            wanted["startOffset"] = asked["start-after"] + "\0"
        if "continuation-token" in asked:
            wanted["pageToken"] = asked["continuation-token"]
        found = self._ask("GET", f"/storage/v1/b/{quote(bucket)}/o?{urlencode(wanted)}", b"")
        if found is None:
            return None
        response, answer = found
        if response.status != 200:
            return self._answer(response.status, answer, {})
        page = json.loads(answer)
        entries = "".join(_entry(item) for item in page.get("items", ()))
        token = page.get("nextPageToken", "")
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        return self._xml(
            "ListBucketResult", f"{entries}<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{following}"
        )

    def _pass_on(self, body: bytes = b"") -> None:
        ranges = {"range": self.headers["range"]} if "range" in self.headers else {}
        found = self._ask(self.command, self.path, body, ranges)
        if found is not None:
            response, answer = found
            headers = {name: response.headers[name] for name in _KEPT if name in response.headers}
            length = response.headers.get("content-length") if self.command == "HEAD" else None
            self._answer(response.status, answer, headers, length)

    def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> tuple[HTTPResponse, bytes] | None:
        """The server's answer. Where it gives none the client gets none either: its connection ends."""
        behind = HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        with contextlib.closing(behind):
            try:
                behind.request(method, path, body or None, dict(headers or {}))
                response = behind.getresponse()
                return response, response.read()
            except (OSError, HTTPException):
                self.close_connection = True
                return None

    def _xml(self, name: str, inner: str) -> None:
        self._answer(200, f"<{name}>{inner}</{name}>".encode(), {"content-type": "application/xml"})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str], length: str | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def log_message(self, *_: Any) -> None:
        pass


def _entry(item: Mapping[str, str]) -> str:
    parts = {"Key": item["name"], "LastModified": item["updated"], "ETag": item["etag"], "Size": item.get("size", "0")}
    return f"<Contents>{''.join(f'<{name}>{escape(value)}</{name}>' for name, value in parts.items())}</Contents>"


@pytest.fixture(scope="session")
def gcs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """One server for all tests of a worker."""
    with GcsServer.start(tmp_path_factory.mktemp("gcs")) as server:
        yield server
