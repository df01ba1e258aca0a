"""Commits of offsets, on a scripted client: an older one never lands after a newer one, a failed one is sent again."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from sfd_stream.kafka.commits import Committed


def test_an_older_commit_that_the_client_retries_does_not_land_after_a_newer_one(play: Any) -> None:
    """The older one met COORDINATOR_LOAD_IN_PROGRESS and went to librdkafka's back-off queue."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.source.commit({0: 7})
    played.source.commit({0: 9}, metadata="last")
    while client.requests:
        played.poll(lambda: client.land(len(client.requests) - 1))
    assert client.committed_offsets == {0: (9, "last")}
    assert played.source.last_committed == {0: 9}


def test_a_commit_that_fails_does_not_hold_up_the_one_that_waits_for_it(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.commit({0: 5, 1: 3})
    played.source.commit({0: 7})
    played.poll(lambda: client.land(error=KafkaError(KafkaError.REBALANCE_IN_PROGRESS)))
    played.poll(client.land)
    assert client.committed_offsets == {0: (7, "")}


@pytest.mark.parametrize("fails", ["unpublished", ""])
def test_a_commit_that_failed_is_sent_again_unless_a_newer_one_replaced_it(play: Any, fails: str) -> None:
    """Also one of the same offset: the metadata says whether the rows are published, so the newest must arrive."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    for metadata in ("unpublished", ""):
        played.source.commit({0: 5}, metadata)
    for metadata in ("unpublished", ""):
        error = KafkaError(KafkaError.REQUEST_TIMED_OUT) if metadata == fails else None
        played.poll(lambda error=error: client.land(error=error))
    assert played.source.acknowledged_commits == ({} if fails == "" else {0: (5, "")})
    assert client.requests == [], "not at once"
    played.poll_for(2)
    assert len(client.requests) == (fails == "")
    if client.requests:
        played.poll(client.land)
    assert client.committed_offsets == {0: (5, "")}
    assert played.source.acknowledged_commits == {0: (5, "")}
    played.source.commit({0: 5})
    assert client.requests == [], "it is acknowledged already"


def test_a_failed_commit_of_a_partition_that_left_is_not_sent_again(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.poll(lambda: client.revoke_from_it(0))
    played.poll(lambda: client.land(error=KafkaError(KafkaError.REBALANCE_IN_PROGRESS)))
    played.poll(lambda: client.assign_to_it(0))
    played.poll_for(2)
    assert client.requests == []


def test_a_commit_that_the_group_has_lost_is_sent_again_unless_it_is_old(play: Any) -> None:
    """The coordinator lets every member commit every partition: one that lost this one unawares came last."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1, 2))
    played.source.commit({0: 5, 1: 5, 2: 5})
    played.poll(client.land)
    asked = played.source.acknowledged_commits
    played.source.commit({1: 7})
    found = {0: Committed(3, "", None), 1: Committed(3, "", None), 2: Committed(9, "", None)}
    assert played.source.renew_commits(asked, found) == [0]
    played.poll()
    assert [[(tp.partition, tp.offset) for tp in request] for request in client.requests] == [[(1, 7)], [(0, 5)]]


def test_partitions_do_not_wait_for_each_others_commits(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0, 1))
    played.source.commit({0: 5})
    played.source.commit({1: 7})
    played.poll(lambda: client.land(1))
    assert client.committed_offsets == {1: (7, "")}


def test_a_commit_of_an_earlier_tenure_is_waited_for_when_the_partition_comes_back(play: Any) -> None:
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.poll(lambda: client.lose_from_it(0))
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 9})
    while client.requests:
        played.poll(lambda: client.land(len(client.requests) - 1))
    assert client.committed_offsets == {0: (9, "")}


def test_the_last_commit_of_a_partition_that_is_revoked_does_not_wait(play: Any) -> None:
    """It could only be sent after the partition is gone, which the broker refuses."""
    played = play()
    client = played.client
    played.poll(lambda: client.assign_to_it(0))
    played.source.commit({0: 5})
    played.source.commit({0: 6})
    played.diary.in_revoke = lambda _: played.source.commit({0: 7})
    played.poll(lambda: client.revoke_from_it(0))
    assert [[tp.offset for tp in request] for request in client.requests] == [[5], [7]]
    played.poll(client.land)
    played.poll(client.land)
    assert client.committed_offsets == {0: (7, "")}
    assert client.requests == [], "6 was overtaken"
