"""Stores and machines that are not what a worker needs: a real S3, real disks, a real process's processors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sfd_stream.doctor import Finding, Verdict
from sfd_stream.doctor.store import file_system, folder_of, room, swept
from tests.support.proxy import LossyProxy
from tests.support.seaweed import READ_ONLY_ACCESS_KEY, READ_ONLY_SECRET_KEY, SeaweedServer
from tests.unit.doctor.clinic import attempt
from tests.unit.doctor.patients import patient

if TYPE_CHECKING:
    from collections.abc import Iterator

S3 = (pytest.mark.real_s3, pytest.mark.xdist_group("s3"))


def judged(found: Finding) -> tuple[str, int]:
    return found.verdict.value, found.exit_code


def on_s3(server: SeaweedServer, name: str, folder: Path, **changes: str) -> Finding:
    options = {f"checkpoint.options.{key}": value for key, value in server.options(**changes).items()}
    return attempt(name, folder, **{"checkpoint.url": server.new_url(), **options})


def test_only_a_store_on_disk_has_a_folder_and_an_end() -> None:
    one = patient()
    assert folder_of(one) is None
    assert room(one).verdict is Verdict.SKIPPED


def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert file_system(Path("/proc/self")) == "proc"


def test_folders_that_were_created_meanwhile_are_removed_unless_they_hold_something(tmp_path: Path) -> None:
    store = tmp_path / "new" / "store"
    with swept(store):
        store.mkdir(parents=True)
    assert list(tmp_path.iterdir()) == []
    with swept(store):
        store.mkdir(parents=True)
        (store / "checkpoint").touch()
    assert (store / "checkpoint").exists()


@pytest.mark.parametrize("name", ["store", "conditional create", "fsync", "free space", "BLAS threads", "memory"])
def test_a_good_disk_and_machine_are_good_and_left_as_they_were(name: str, tmp_path: Path) -> None:
    assert judged(attempt(name, tmp_path)) == ("good", 0)
    assert list(tmp_path.iterdir()) == []


def test_what_was_in_the_store_stays(tmp_path: Path) -> None:
    (tmp_path / "store" / "g").mkdir(parents=True)
    assert judged(attempt("conditional create", tmp_path)) == ("good", 0)
    assert list(tmp_path.rglob("*")) == [tmp_path / "store", tmp_path / "store" / "g"]


@pytest.mark.real_s3
@pytest.mark.xdist_group("s3")
class TestS3:
    def test_a_good_bucket_is_good_and_left_empty(self, s3_server: SeaweedServer, tmp_path: Path) -> None:
        from sfd_stream.storage.open import open_store

        url = s3_server.new_url()
        options = {f"checkpoint.options.{key}": value for key, value in s3_server.options().items()}
        for name in ("store", "conditional create"):
            assert judged(attempt(name, tmp_path, **{"checkpoint.url": url, **options})) == ("good", 0)
        assert open_store(url, s3_server.options()).list("") == []

    def test_a_wrong_key_is_refused(self, s3_server: SeaweedServer, tmp_path: Path) -> None:
        found = on_s3(s3_server, "store", tmp_path, secret_access_key="wrong")
        assert judged(found) == ("failed", 5)
        assert "credentials" in found.remedy

    def test_a_user_who_may_only_read(self, s3_server: SeaweedServer, tmp_path: Path) -> None:
        user = {"access_key_id": READ_ONLY_ACCESS_KEY, "secret_access_key": READ_ONLY_SECRET_KEY}
        assert judged(on_s3(s3_server, "store", tmp_path, **user)) == ("good", 0)
        assert judged(on_s3(s3_server, "conditional create", tmp_path, **user)) == ("failed", 5)

    def test_a_gateway_that_says_yes_to_every_create(self, s3_server: SeaweedServer, tmp_path: Path) -> None:
        with YesToAll(s3_server.endpoint) as gateway:
            found = on_s3(s3_server, "conditional create", tmp_path, endpoint=gateway.endpoint)
        assert judged(found) == ("failed", 5)
        assert "racing writers" in found.reason


class YesToAll(LossyProxy):
    """A real server behind a gateway that does not pass on the refusal of a conditional create."""

    def changed(self, answer: bytes) -> bytes:
        return answer.replace(b"HTTP/1.1 412 Precondition Failed\r\n", b'HTTP/1.1 200 OK\r\nETag: "1"\r\n')


@pytest.fixture
def closed_folder(tmp_path: Path) -> Iterator[Path]:
    """A real disk that takes no new file, not even root's."""
    folder = tmp_path / "store"
    folder.mkdir()
    made = subprocess.run(["chattr", "+i", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"needs the right to make a folder immutable: {made.stderr.strip()}")
    yield tmp_path
    subprocess.run(["chattr", "-i", str(folder)], check=True)


def test_a_folder_that_takes_no_file(closed_folder: Path) -> None:
    found = attempt("conditional create", closed_folder)
    assert judged(found) == ("failed", 5)


def test_a_folder_in_memory_is_not_durable() -> None:
    folder = Path("/dev/shm") / f"sfd-{uuid.uuid4().hex}"
    found = attempt("fsync", folder)
    assert judged(found) == ("warning", 1)
    assert "tmpfs" in found.reason
    assert not folder.exists()


def test_a_disk_without_room_for_the_checkpoints(tmp_path: Path) -> None:
    found = attempt("free space", tmp_path, **{"sketch.d": "1000000000", "sketch.ell": "10000"})
    assert judged(found) == ("failed", 5)


def test_more_memory_than_there_is(tmp_path: Path) -> None:
    assert judged(attempt("memory", tmp_path, **{"worker.memory_max_bytes": "1000TiB"})) == ("warning", 1)
    one = attempt("memory", tmp_path, **{"sketch.d": "100000000", "sketch.ell": "100"})
    assert judged(one) == ("failed", 2)
    assert "100000000 columns needs at least 160 GB" in one.reason
    one = attempt("memory", tmp_path, **{"sketch.d": "1000000", "sketch.ell": "50", "worker.memory_max_bytes": "2GiB"})
    assert judged(one) == ("warning", 1)
    assert "a partition may need up to" in one.reason


def test_more_threads_than_processors(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from tests.unit.doctor.clinic import attempt; from pathlib import Path;"
        "found = attempt('BLAS threads', Path(sys.argv[1]), **{'worker.blas_threads': '2'});"
        "import json; print(json.dumps([found.verdict, found.reason]))"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, env=environment
    )
    verdict, reason = json.loads(done.stdout)
    assert verdict == Verdict.WARNING
    assert "quota is 1 CPUs" in reason
