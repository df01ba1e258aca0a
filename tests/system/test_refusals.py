"""States that must not be used are refused before they are claimed; the refusal names the command that repairs it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from sfd_stream.cli.build import store_of
from sfd_stream.errors import BrokerRefusedError, RefusedStateError, StoreError
from sfd_stream.state.manifest import encode_manifest, manifest_key
from sfd_stream.storage.contract import partition_prefix
from sfd_stream.wire.frames import CHECKSUM_BYTES, checksum
from tests.support.kafka import Broker, free_ports
from tests.support.seaweed import SeaweedServer
from tests.system.conftest import MakeRun, on_disk_and_s3
from tests.system.runs import Rows, Run, assert_counts


def half_read(broker: Broker, make_run: MakeRun, rows: Rows | None = None, **given: Any) -> Run:
    """A run that has a checkpoint at the end of what is in its topic."""
    topic = broker.create_topic()
    (rows or Rows.random(400, rows_per_message=None)).produce(broker, topic)
    run = make_run(broker, topic, **given)
    run.inside()
    return run


def refused(run: Run, match: str, **changes: Any) -> RefusedStateError:
    before = run.newest(0)
    with pytest.raises(RefusedStateError, match=match) as caught:
        run.inside(**changes)
    assert run.newest(0) == before, "nothing is claimed that is refused"
    assert caught.value.exit_code == 3
    return caught.value


@on_disk_and_s3
def test_a_topic_deleted_and_made_again_is_another_topic(kafka: Broker, make_run: MakeRun, store: str) -> None:
    run = half_read(kafka, make_run, store=store)
    kafka.delete_topic(run.topic)
    kafka.create_topic(name=run.topic)
    Rows.random(1000, rows_per_message=None).produce(kafka, run.topic)
    refused(run, f'deleted and created again.*"sfd-stream checkpoint reset {run.topic}/0 --to earliest"')


@pytest.mark.parametrize("rows", [100, 1000])
def test_a_topic_deleted_and_made_again_under_a_running_worker_stops_it(
    kafka: Broker, make_run: MakeRun, rows: int
) -> None:
    """With fewer rows than were read the position is outside the new log, which is not retention."""
    run = half_read(kafka, make_run)
    worker = run.begin()
    worker.until(lambda: 0 in worker.source.positions, "reading")
    kafka.delete_topic(run.topic)
    kafka.create_topic(name=run.topic)
    Rows.random(rows, rows_per_message=None).produce(kafka, run.topic)
    error = worker.end()
    assert isinstance(error, RefusedStateError | BrokerRefusedError), error
    assert "keep-sketch" not in str(error), "that would mix the rows of two topics"
    if isinstance(error, RefusedStateError):
        assert f"created again: the checkpoint of {run.topic}/0" in str(error)
        assert f'"sfd-stream checkpoint reset {run.topic}/0 --to earliest"' in str(error)
    newest = run.newest(0)
    assert newest is not None
    assert newest.next_offset == 400, "nothing of the other topic is counted"


@on_disk_and_s3
def test_retention_past_the_checkpoint_refuses(kafka: Broker, make_run: MakeRun, store: str) -> None:
    run = half_read(kafka, make_run, store=store)
    Rows.random(400, rows_per_message=None).produce(kafka, run.topic)
    kafka.delete_records(run.topic, 0, 600)
    repair = f'"sfd-stream checkpoint reset {run.topic}/0 --to earliest --keep-sketch"'
    refused(run, f"offsets 400 to 599 of {run.topic}/0 were removed by the topic's retention.*{repair}")


def test_a_committed_offset_without_a_checkpoint_refuses(kafka: Broker, make_run: MakeRun) -> None:
    run = half_read(kafka, make_run)
    elsewhere = make_run(kafka, run.topic, group=run.group)
    with pytest.raises(RefusedStateError, match=r"has committed offset 400 .*there is no checkpoint.*checkpoint\.url"):
        elsewhere.inside()
    assert elsewhere.newest(0) is None


@on_disk_and_s3
def test_a_newer_programs_manifest_is_refused_and_not_fenced(kafka: Broker, make_run: MakeRun, store: str) -> None:
    run = half_read(kafka, make_run, store=store)
    newest = run.newest(0)
    assert newest is not None
    prefix = partition_prefix(run.group, run.topic, 0)
    store = store_of(run.settings())
    key = manifest_key(prefix, newest.number + 1)
    store.create_if_absent(key, _of_version(encode_manifest(newest), 2))
    keys = store.list(prefix)
    with pytest.raises(RefusedStateError, match=r"format version 2.*run the newer sfd-stream"):
        run.inside()
    assert store.list(prefix) == keys, "no claim, nothing removed"


def _of_version(frame: bytes, version: int) -> bytes:
    front, payload = bytearray(frame[: 64 - CHECKSUM_BYTES]), frame[64:]
    struct.pack_into("<I", front, 8, version)
    return bytes(front) + checksum(bytes(front), payload) + payload


HASHED = {"input": {"columns": "hashed"}}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({}, {"sketch": {"d": 99}}, "d = 100"),
        ({}, HASHED, "columns = 'fixed'"),
        ({}, {"input": {"columns": "growing"}}, "columns = 'fixed'"),
        (HASHED, {"input": {"columns": "hashed", "hash_seed": 7}}, "hash_seed = 0"),
        (HASHED, {**HASHED, "sketch": {"d": 200}}, "d = 100"),
    ],
    ids=["smaller d", "hashed", "growing", "hash seed", "hashed to more"],
)
def test_settings_that_change_the_meaning_of_columns_are_refused(
    kafka: Broker, make_run: MakeRun, before: Any, after: Any, words: str
) -> None:
    run = half_read(kafka, make_run, Rows.random(100, rows_per_message=None), changes=before)
    refused(run, f'was made with {words}.*"sfd-stream checkpoint reset', **after)


@pytest.mark.parametrize(("ell", "d"), [(5, 100), (20, 100), (10, 150), (4, 128)])
def test_ell_may_change_and_d_may_grow_between_runs(kafka: Broker, make_run: MakeRun, ell: int, d: int) -> None:
    topic = kafka.create_topic()
    rows = Rows.random(8_000, d=100)
    messages = rows.messages(0)
    kafka.produce(topic, messages[:200])
    run = make_run(kafka, topic)
    run.inside()
    kafka.produce(topic, messages[200:])
    other = {"sketch": {"ell": ell, "d": d}}
    run.inside(**other)
    state = run.state(0, **other)
    assert (state.builder.parameters.ell, state.builder.d) == (ell, d)
    wider = rows.matrices[0].copy()
    wider.resize(wider.shape[0], d)
    assert_counts(state, wider)
    assert len(state.sketch().matrix) <= ell


def test_a_wrong_bucket_refuses_for_good(kafka: Broker, make_run: MakeRun, s3_server: SeaweedServer) -> None:
    run = make_run(kafka, kafka.create_topic(), store="s3", options=s3_server.options(secret_access_key="wrong"))
    with pytest.raises(StoreError) as caught:
        run.inside()
    assert caught.value.exit_code == 5


def test_a_broker_that_is_not_there_is_waited_for_and_then_given_up(kafka: Broker, make_run: MakeRun) -> None:
    run = make_run(kafka, "rows")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(BrokerRefusedError, match=f"{address} did not answer .*not for 2 s") as caught:
        run.inside(kafka={"bootstrap.servers": address}, checkpoint={"give_up_s": 2})
    assert caught.value.exit_code == 5


def test_a_topic_that_is_not_there_refuses(kafka: Broker, make_run: MakeRun) -> None:
    with pytest.raises(BrokerRefusedError, match="topic no-such does not exist"):
        make_run(kafka, "no-such").inside()
