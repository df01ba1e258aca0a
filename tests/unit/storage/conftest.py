"""Every kind of store that this machine can really run, each test with an empty one of its own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from tests.support.azurite import AzuriteServer
from tests.support.fake_gcs import GcsServer
from tests.support.seaweed import SeaweedServer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# In one worker of a parallel run, so that one server is enough, where pytest-xdist heeds groups: its 3.8 does
# not under pytest 9.2, and then each worker starts a server of its own.
S3 = [pytest.mark.real_s3, pytest.mark.xdist_group("s3")]
AZURE = [pytest.mark.slow, pytest.mark.real_s3, pytest.mark.xdist_group("azure")]
GCS = [pytest.mark.slow, pytest.mark.real_s3, pytest.mark.xdist_group("gcs")]


@dataclass(frozen=True)
class Place:
    """Where a store is: enough for another process to open the same one."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> Store:
        return open_store(self.url, self.options)

    def impatient(self) -> Place:
        """The same place with a short timeout, where there is one: see `racer`."""
        return replace(self, options=dict(self.options) | {"timeout_s": "3"}) if self.options else self


def _s3_place(request: pytest.FixtureRequest) -> Place:
    server: SeaweedServer = request.getfixturevalue("s3_server")
    return Place(server.new_url(), server.options())


def _azure_place(request: pytest.FixtureRequest) -> Place:
    server: AzuriteServer = request.getfixturevalue("azurite")
    return Place(server.new_url(), server.options())


def _gcs_place(request: pytest.FixtureRequest) -> Place:
    server: GcsServer = request.getfixturevalue("gcs_server")
    return Place(server.new_url(), server.options())


NETWORK_STORES = {"s3": _s3_place, "azure": _azure_place, "gcs": _gcs_place}
ON_NETWORK = [pytest.param(kind, marks=marks) for kind, marks in (("s3", S3), ("azure", AZURE), ("gcs", GCS))]


@pytest.fixture(params=["memory", "disk", *ON_NETWORK])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param in NETWORK_STORES:
        return NETWORK_STORES[request.param](request)
    if request.param == "disk":
        return Place((tmp_path / "made later" / "store").as_uri())
    return Place(f"memory://{uuid.uuid4()}")


@pytest.fixture(params=["disk", *ON_NETWORK])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A store that other processes can open too."""
    if request.param in NETWORK_STORES:
        return NETWORK_STORES[request.param](request)
    return Place((tmp_path / "store").as_uri())


@pytest.fixture
def s3_place(request: pytest.FixtureRequest) -> Place:
    return _s3_place(request)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()
