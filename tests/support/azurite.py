"""A real Azure Blob Storage server for tests: Microsoft's Azurite on loopback, fetched once by npm.

    with AzuriteServer.start(folder) as server:
        open_store(server.new_url(), server.options())

It keeps its data in memory, so that a server that was killed comes back empty.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import pytest

from tests.support.seaweed import DIES_WITH_US, free_ports
from tests.support.tools import need, npm_packages

VERSION = "3.35.0"
CONTAINER = "checkpoints"
ACCOUNT = "devstoreaccount1"
# The key of every emulator; its makers publish it.
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
READY_WITHIN_S = 60.0
_API = "2021-08-06"


@dataclass
class AzuriteServer:
    port: int
    process: subprocess.Popen[bytes]
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def start(cls, folder: Path) -> Self:
        home = npm_packages(f"azurite-{VERSION}", [f"azurite@{VERSION}"])
        folder.mkdir(parents=True, exist_ok=True)
        (port,) = free_ports(1)
        program = home / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--inMemoryPersistence", "--silent"]
        with (folder / "azurite.log").open("wb") as log:
            process = subprocess.Popen(
                [*DIES_WITH_US, need("node"), str(program), *options, "--disableTelemetry", "--skipApiVersionCheck"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, start_new_session=True,
            )  # fmt: skip
        server = cls(port, process)
        try:
            server._create_container(folder / "azurite.log")
        except BaseException:
            server.kill()
            raise
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/{ACCOUNT}"

    def options(self, **changes: str) -> dict[str, str]:
        """What `open_store` needs to reach this server; a change replaces one of them."""
        own = {"endpoint": self.endpoint, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY, "allow_http": "true"}
        return own | changes

    def new_url(self) -> str:
        """A place in the container that nobody else has."""
        return f"az://{CONTAINER}/{os.getpid()}-{next(self._numbers)}"

    def _create_container(self, log: Path) -> None:
        end = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                with urllib.request.urlopen(self._creation(), timeout=5):  # noqa: S310 - our own server
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"Azurite did not get ready: {error}\n{log.read_text()[-2000:]}") from error
                time.sleep(0.1)

    def _creation(self) -> urllib.request.Request:
        """A signed request: obstore has none for containers."""
        now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        headers = f"x-ms-date:{now}\nx-ms-version:{_API}"
        signed = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        digest = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
        return urllib.request.Request(  # noqa: S310 - as above
            f"{self.endpoint}/{CONTAINER}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": now,
                "x-ms-version": _API,
                "Content-Length": "0",
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteServer]:
    """One server for all tests of a worker (3 s to start)."""
    with AzuriteServer.start(tmp_path_factory.mktemp("azurite")) as server:
        yield server
