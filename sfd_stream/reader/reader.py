"""`SnapshotReader`: the live sketch of a topic, read from the topic of its snapshots.

It keeps the newest snapshot of every partition by (epoch, number) and never goes back: what a worker that lost its
partition publishes late is dropped. It joins no group and commits nothing. One thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self

from sfd_stream.errors import FormatError, NoSnapshotError, ObjectMissingError, StoreUnavailableError
from sfd_stream.kafka.faults import Hooks
from sfd_stream.kafka.records import Record
from sfd_stream.kafka.tail import Tail
from sfd_stream.reader.merged import MergedSketch, merge
from sfd_stream.reader.newest import Newest
from sfd_stream.storage.contract import Store
from sfd_stream.storage.opening import open_store
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import Reference, Snapshot, resolve

_LOG = logging.getLogger("sfd_stream.reader")
_TURN_S = 0.5
_WITHOUT_OPTIONS = ("file:", "memory:")
_UNDERSCORED = frozenset({"log_level"})


class SnapshotReader:
    """Reads the snapshots of `topic` at the brokers `bootstrap`.

    `group` chooses one consumer group's sketches where a topic holds several. Reading takes as long as it takes; it
    fails when nothing comes for `timeout_s`. Snapshots too large for a message rest in the checkpoint store:
    `store_options` are for its credentials as in `checkpoint.options`, `store_url` is for a store that has another
    address from here. Other keywords are librdkafka's properties, with `_` for `.`:

        SnapshotReader("host:9093", "sketches", security_protocol="SSL", ssl_ca_location="ca.pem")

    `oauth_cb` is confluent-kafka's: a function that is given `sasl.oauthbearer.config` and returns a token and the
    time in seconds at which it expires.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        group: str | None = None,
        timeout_s: float = 30.0,
        store_url: str | None = None,
        store_options: Mapping[str, str] | None = None,
        wall_clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        oauth_cb: Callable[[str], tuple[Any, ...]] | None = None,
        **librdkafka: Any,
    ) -> None:
        properties = {dotted(name): value for name, value in librdkafka.items()}
        self.topic = topic
        self.group = group
        hooks = hooks or Hooks()
        hooks = hooks if oauth_cb is None else replace(hooks, oauth_token=oauth_cb)
        self._tail = Tail({**properties, "bootstrap.servers": bootstrap}, topic, hooks=hooks)
        self._newest = Newest(group)
        self._timeout_s = timeout_s
        self._stores: dict[str, Store] = {}
        self._store_url = store_url
        self._store_options = dict(store_options or {})
        self._wall_clock = wall_clock
        self._closed = False

    def __repr__(self) -> str:
        return f"SnapshotReader({self.topic!r}, {len(self._newest)} partitions)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._tail.close()

    def latest(self) -> list[Snapshot]:
        """The newest snapshot of every partition, having read to the topic's end. NoSnapshotError if there is none."""
        self.refresh()
        try:
            return self._resolved(self._newest)
        except ObjectMissingError:
            # Retention removed what a newer snapshot has replaced: that one is in the topic by now.
            self.refresh()
            return self._resolved(self._newest)

    def merged(self) -> MergedSketch:
        """One sketch of all partitions, which says what it has of how many, and how old."""
        return self._merge(self.latest())

    def watch(self, *, every_s: float = 1.0, unchanged: bool = False) -> Iterator[MergedSketch]:
        """The merged sketch as it is and then whenever it has changed, at most once in `every_s`; ends with `close`.

        `unchanged` gives it every time, with its new ages. An empty topic is waited for, and once begun a broker or
        store that is away; what waiting does not mend raises.
        """
        self.refresh()
        changed, last = True, None
        while not self._closed:
            if changed and len(self._newest) and (merged := self._merged_or_later()) is not None:
                changed, last = False, merged
                yield merged
            elif unchanged and last is not None:
                yield replace(last, read_at_s=self._wall_clock())
            changed |= self.wait(every_s)

    def held(self) -> list[Snapshot]:
        """The newest snapshots read so far, without reading on."""
        return self._resolved(self._newest)

    @property
    def cluster_id(self) -> str | None:
        """The brokers' cluster, once something was read."""
        return self._tail.cluster_id

    @property
    def ids(self) -> Mapping[str, SnapshotId]:
        """Whose snapshots have been read so far, by key: the newest id of each."""
        return self._newest.ids

    def refresh(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Reads on to the topic's end; says whether a newer snapshot came. Ends early when `go_on` says no."""
        changed = False
        for records in self._tail.catch_up(self._timeout_s):
            changed |= self._offer(records)
            if not go_on():
                break
        return changed

    def wait(self, seconds: float) -> bool:
        """Reads for this long; says whether a newer snapshot came."""
        until, changed = time.monotonic() + seconds, False
        while not self._closed and (left := until - time.monotonic()) > 0:
            changed |= self._offer(self._tail.poll(min(left, _TURN_S)))
        return changed

    def history(self, points: int = 100) -> Iterator[MergedSketch]:
        """The merged sketch at up to `points` moments since every partition had a snapshot, in order of their times.

        A compacted topic holds what was published since the last compaction. All of it is kept in memory meanwhile.
        """
        self._tail.rewind()
        found = [record for batch in self._tail.catch_up(self._timeout_s) for record in batch]
        self._offer(found)
        records = sorted(found, key=lambda record: record.timestamp_ms or 0)
        chosen = _thinned(self._moments(records), points)
        past = Newest(self.group)
        for at, record in enumerate(records):
            past.offer(record.key, record.value, record.headers)
            if at in chosen:
                # The bytes of what was replaced long ago may be gone, and what was damaged may have been mended since.
                with contextlib.suppress(ObjectMissingError, FormatError):
                    yield self._merge(self._resolved(past))

    def _moments(self, records: list[Record]) -> list[int]:
        """Where a newer snapshot came, from when on there was one of each partition that has one now."""
        past, wanted = Newest(self.group), set(self.ids)
        news = [past.offer(record.key, record.value, record.headers) and wanted <= set(past.ids) for record in records]
        return [at for at, one in enumerate(news) if one]

    def _offer(self, records: list[Record]) -> bool:
        news = [self._newest.offer(record.key, record.value, record.headers) for record in records]
        return any(news)

    def _merged_or_later(self) -> MergedSketch | None:
        """None when a referenced snapshot can't be had now: a newer one is on its way, or the store comes back."""
        try:
            return self._merge(self._resolved(self._newest))
        except (ObjectMissingError, StoreUnavailableError) as error:
            _LOG.warning("a snapshot can't be fetched now, trying again: %s", error)
            return None

    def _merge(self, snapshots: list[Snapshot]) -> MergedSketch:
        return merge(snapshots, self._wall_clock())

    def _resolved(self, newest: Newest) -> list[Snapshot]:
        if not len(newest):
            of_group = "" if self.group is None else f" of group {self.group}"
            raise NoSnapshotError(
                f"topic {self.topic} has no snapshot{of_group}: none has been published yet, or it is another topic"
            )
        found = []
        for item in newest.all():
            if isinstance(item, Reference):
                item = self._fetch(item)  # noqa: PLW2901 - what it refers to, in its place
                newest.put(item)
            found.append(item)
        return found

    def _fetch(self, reference: Reference) -> Snapshot:
        url = self._store_url or reference.store
        if url not in self._stores:
            options = {} if url.startswith(_WITHOUT_OPTIONS) else self._store_options
            self._stores[url] = open_store(url, options)
        try:
            blob = self._stores[url].get(reference.key)
        except ObjectMissingError:
            raise ObjectMissingError(
                f"the snapshot {reference.id} refers to {url}/{reference.key}, which is not there; if the store has "
                "another address from here, give it as store_url"
            ) from None
        return resolve(reference, blob)


def dotted(name: str) -> str:
    """A keyword as librdkafka's property: `security_protocol` is `security.protocol`."""
    return name if "." in name or name in _UNDERSCORED else name.replace("_", ".")


def _thinned(moments: list[int], count: int) -> set[int]:
    """About evenly, with the first and the last."""
    if len(moments) <= count:
        return set(moments)
    return {moments[at * (len(moments) - 1) // max(count - 1, 1)] for at in range(count)}
