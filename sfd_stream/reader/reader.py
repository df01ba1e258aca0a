"""`SnapshotReader`: the live sketch of a topic, read from the topic of its snapshots.

It keeps the newest snapshot of every partition by (epoch, number) and never goes back: a late snapshot of a worker that
lost its partition is dropped. It joins no group and commits nothing. One thread at a time may use it.

Any client with write permission can write anything to the topic. A message that is not a snapshot is skipped, counted
and logged. References are followed only to trusted stores. Sizes are checked before memory is allocated.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Self
from urllib.parse import unquote

from sfd_stream.errors import (
    FormatError,
    NoSnapshotError,
    ObjectMissingError,
    RefusedStateError,
    RowDecodeError,
    SettingsError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sfd_stream.kafka.errors import Hooks
from sfd_stream.kafka.records import Record
from sfd_stream.kafka.topic_reader import Tail
from sfd_stream.reader.merged import MergedSketch, merge, read_later
from sfd_stream.reader.newest import Newest, half_of_the_memory
from sfd_stream.storage.contract import Store
from sfd_stream.storage.open import open_store
from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.rows.decode import decode_one
from sfd_stream.wire.snapshot_ids import SnapshotId
from sfd_stream.wire.snapshots import MAX_BYTES, Reference, Snapshot, resolve

_LOG = logging.getLogger("sfd_stream.reader")
_TURN_S = 0.5
_WITHOUT_OPTIONS = ("file:", "memory:")
_UNDERSCORED = frozenset({"log_level"})


class SnapshotReader:
    """Reads the snapshots of `topic` at the brokers `bootstrap`.

    `group` selects one consumer group's sketches if a topic holds several. Reading has no time limit, but it fails if
    nothing arrives for `timeout_s`. Other keywords are librdkafka's properties, with `_` for `.`:

        SnapshotReader("host:9093", "sketches", security_protocol="SSL", ssl_ca_location="ca.pem")

    `oauth_cb` is confluent-kafka's: a function that gets `sasl.oauthbearer.config` and returns a token and the time in
    seconds at which it expires.

    Snapshots that are too large for a message are in the checkpoint store, and the topic has references to them. They
    are read from `store_url`, or from the store in the reference if it is one of `trusted_stores`, and from no other.
    `store_options` are the store's credentials, as in `checkpoint.options`.

    `max_snapshot_bytes` is the largest snapshot that is decoded. `max_total_bytes` is the maximum memory for all of
    them together (None: half of the memory of the machine or container).

    `requesting` is a context manager around each request to a store. A caller can use it to exit without waiting for
    such requests.

    >>> from sfd_stream import SnapshotReader
    >>> reader = SnapshotReader("localhost:9092", "sketches")
    >>> reader.merged().rows
    9
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
        trusted_stores: Collection[str] = (),
        max_snapshot_bytes: int = MAX_BYTES,
        max_total_bytes: int | None = None,
        wall_clock: Callable[[], float] = time.time,
        hooks: Hooks | None = None,
        oauth_cb: Callable[[str], tuple[Any, ...]] | None = None,
        requesting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        **librdkafka: Any,
    ) -> None:
        if not isinstance(bootstrap, str):
            raise SettingsError(
                f'bootstrap must be a text like "host:9092" or "one:9092,two:9092", not {type(bootstrap).__name__}'
            )
        if not isinstance(topic, str):
            raise SettingsError(f"topic must be a text, not {type(topic).__name__}")
        properties = {dotted(name): value for name, value in librdkafka.items()}
        self.topic = topic
        self.group = group
        hooks = hooks or Hooks()
        hooks = hooks if oauth_cb is None else replace(hooks, oauth_token=oauth_cb)
        self._tail = Tail({**properties, "bootstrap.servers": bootstrap}, topic, hooks=hooks)
        self.max_total_bytes = half_of_the_memory() if max_total_bytes is None else max_total_bytes
        self.max_snapshot_bytes = max_snapshot_bytes
        self._newest = self._empty()
        self._log_at = 1
        self._missed = False
        self._timeout_s = timeout_s
        self._stores: dict[str, Store] = {}
        self._store_url = store_url
        self._store_options = dict(store_options or {})
        self._trusted = {_plain(url): url for url in trusted_stores}
        self._wall_clock = wall_clock
        self._requesting = requesting
        self._closed = False

    def __repr__(self) -> str:
        return f"SnapshotReader({self.topic!r}, {len(self._newest)} partitions)"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A `with` block does it too.

        >>> with SnapshotReader("localhost:9092", "sketches") as other:
        ...     other.merged().rows
        9
        """
        if not self._closed:
            self._closed = True
            self._tail.close()

    def latest(self) -> list[Snapshot]:
        """The newest snapshot of every partition, having read to the topic's end. NoSnapshotError if there is none.

        >>> [(snapshot.id.topic, snapshot.id.partition, snapshot.sketch.rows) for snapshot in reader.latest()]
        [('rows', 0, 9)]
        """
        self.refresh()
        try:
            return self.held()
        except ObjectMissingError:
            # Retention removed the object because a newer snapshot replaced it. That one is in the topic by now.
            self.refresh()
            return self.held()

    def merged(self) -> MergedSketch:
        """One sketch of all partitions. It names its partitions, their ages, and the missing ones.

        >>> [name for name, weight in reader.merged().top(1, columns=2)[0]]
        ['sun', 'sea']
        """
        return self._merge(self.latest())

    def watch(self, *, every_s: float = 1.0, unchanged: bool = False) -> Iterator[MergedSketch]:
        """Yields the merged sketch now and after each change, at most once per `every_s`, until `close`.

        With `unchanged` it is yielded every time, with new ages. Waits while the topic is empty. After the first result
        it also waits out broker and store outages. Permanent errors are raised.

        >>> for merged in reader.watch(every_s=0.1):
        ...     print(merged.rows)
        ...     break  # a service goes on
        9
        """
        self.refresh()
        if not len(self._newest) and self._looks_like_rows():
            raise self._nothing()
        changed, last = True, None
        while not self._closed:
            if changed and len(self._newest) and (merged := self._merged_or_later()) is not None:
                changed, last = False, merged
                yield merged
            elif unchanged and last is not None:
                yield read_later(last, self._wall_clock())
            changed |= self.wait(every_s)

    def held(self) -> list[Snapshot]:
        """The newest snapshots read so far. Does not read from the topic.

        A missing object raises ObjectMissingError once, because a newer message may follow. If it is still missing at
        the next call, its reference is skipped.

        >>> changed = reader.refresh()
        >>> len(reader.held())
        1
        """
        try:
            found = self._resolved(self._newest, final=self._missed)
        except ObjectMissingError:
            self._missed = True
            raise
        finally:
            self._log_skipped()
        self._missed = False
        return found

    @property
    def skipped(self) -> int:
        """The number of messages read so far that are not a snapshot of their key, or refer to one that is missing."""
        return self._newest.skipped

    @property
    def cluster_id(self) -> str | None:
        """The id of the brokers' cluster; None before the first read."""
        return self._tail.cluster_id

    @property
    def ids(self) -> Mapping[str, SnapshotId]:
        """By key: the id of the newest snapshot read so far."""
        return self._newest.ids

    def refresh(self, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Reads to the topic's end; returns whether a newer snapshot arrived. Ends early when `go_on` returns False.

        >>> changed = reader.refresh()
        >>> reader.refresh()
        False
        """
        self._check_open()
        changed = False
        for records in self._tail.catch_up(self._timeout_s):
            changed |= self._offer(records)
            if not go_on():
                break
        return changed

    def wait(self, seconds: float) -> bool:
        """Reads for this long; returns whether a newer snapshot arrived.

        >>> changed = reader.refresh()
        >>> reader.wait(0.1)
        False
        """
        until, changed = time.monotonic() + seconds, False
        while not self._closed and (left := until - time.monotonic()) > 0:
            changed |= self._offer(self._tail.poll(min(left, _TURN_S)))
        return changed

    def history(self, points: int = 100) -> Iterator[MergedSketch]:
        """The merged sketch at up to `points` moments since every partition had a snapshot, in order of time.

        A compacted topic holds the snapshots published since the last compaction. All of them are kept in memory.

        >>> [merged.rows for merged in reader.history(points=10)]
        [9]
        """
        self._check_open()
        self._tail.rewind()
        seen = self._empty()
        found, kept_bytes = [], 0
        for batch in self._tail.catch_up(self._timeout_s):
            self._offer(batch)
            fresh = [record for record in batch if seen.offer(record.key, record.value, record.headers)]
            found += fresh
            kept_bytes += sum(len(record.value or b"") for record in fresh)
            if kept_bytes > self.max_total_bytes:
                raise RefusedStateError(
                    f"the history of topic {self.topic} takes more than {self.max_total_bytes:,} bytes of memory; "
                    "raise max_total_bytes"
                )
        records = sorted(found, key=lambda record: record.timestamp_ms or 0)
        chosen = _thinned(self._moments(records), points)
        past = self._empty()
        for at, record in enumerate(records):
            past.offer(record.key, record.value, record.headers)
            if at in chosen:
                # Objects of replaced snapshots may be deleted, and damaged ones may have been repaired.
                with contextlib.suppress(ObjectMissingError, FormatError):
                    yield self._merge(self._resolved(past, final=False))

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("this SnapshotReader is closed; create another")

    def _moments(self, records: list[Record]) -> list[int]:
        """The positions of newer snapshots, from where every partition that has a snapshot now had one."""
        past, wanted = self._empty(), set(self.ids)
        news = [past.offer(record.key, record.value, record.headers) and wanted <= set(past.ids) for record in records]
        return [at for at, one in enumerate(news) if one]

    def _empty(self) -> Newest:
        return Newest(self.group, self.max_snapshot_bytes, self.max_total_bytes)

    def _offer(self, records: list[Record]) -> bool:
        news = [self._newest.offer(record.key, record.value, record.headers) for record in records]
        self._log_skipped()
        return any(news)

    def _log_skipped(self) -> None:
        """Logs the first skipped message, then each time that their number has doubled."""
        if self._newest.skipped >= self._log_at:
            self._log_at = 2 * self._newest.skipped
            _LOG.warning(
                "skipped messages of topic %s that can't be used: %d so far, the last one: %s",
                self.topic,
                self._newest.skipped,
                self._newest.error,
            )

    def _merged_or_later(self) -> MergedSketch | None:
        """None if a referenced snapshot can't be fetched now: a newer one may follow, or the store may come back."""
        try:
            return self._merge(self.held())
        except (ObjectMissingError, StoreUnavailableError) as error:
            _LOG.warning("snapshot fetch failed, will retry: %s", error)
            return None

    def _merge(self, snapshots: list[Snapshot]) -> MergedSketch:
        return merge(snapshots, self._wall_clock(), max_bytes=self.max_total_bytes)

    def _resolved(self, newest: Newest, *, final: bool) -> list[Snapshot]:
        if not len(newest):
            raise self._nothing()
        return [found for found in newest.all(self._fetch, final=final) if isinstance(found, Snapshot)]

    def _nothing(self) -> Exception:
        """Why there is no snapshot."""
        if self._looks_like_rows():
            return NoSnapshotError(
                f"topic {self.topic} holds rows, not snapshots: it is the input of a worker; read the topic that the "
                "worker publishes to, snapshot.topic"
            )
        if self._newest.error is not None:
            return self._newest.error
        of_group = "" if self.group is None else f" of group {self.group}"
        return NoSnapshotError(
            f"topic {self.topic} has no snapshot{of_group}: none has been published yet, or it is another topic"
        )

    def _looks_like_rows(self) -> bool:
        if not self._newest.sample:
            return False
        try:
            return bool(decode_one(self._newest.sample, HashedColumns(1 << 20, 0)).block.rows)
        except RowDecodeError:
            return False

    def _fetch(self, reference: Reference) -> Snapshot:
        url = self._trusted_url(reference)
        limit = self.max_snapshot_bytes
        if reference.size > limit:
            raise FormatError(
                f"it refers to {reference.size:,} bytes in {url}, more than the {limit:,} that the reader allows; if "
                "it is what you expect, raise max_snapshot_bytes (snapshot.read_max_bytes)"
            )
        if url not in self._stores:
            options = {} if url.startswith(_WITHOUT_OPTIONS) else self._store_options
            self._stores[url] = open_store(url, options)
        try:
            with self._requesting():
                blob = self._stores[url].get(reference.key, max_bytes=reference.size)
        except ObjectMissingError:
            raise ObjectMissingError(
                f"the snapshot {reference.id} refers to {url}/{reference.key}, which does not exist; if the store has "
                "another address from here, give it as store_url"
            ) from None
        return resolve(reference, blob, store=url, max_bytes=limit)

    def _trusted_url(self, reference: Reference) -> str:
        """The trusted address to read from. Any client with write permission can write any address into a reference."""
        if self._store_url is not None:
            return self._store_url
        found = self._trusted.get(_plain(reference.store))
        if found is None:
            raise StoreRefusedError(
                f"it is in the store {reference.store!r:.300}, which this reader does not trust; if it is your "
                "checkpoint store, give its address as store_url, or in trusted_stores (--store-url, checkpoint.url "
                "or snapshot.trusted_stores)"
            )
        return found


def _plain(url: str) -> str:
    """The normal form of a URL."""
    return unquote(url).rstrip("/")


def dotted(name: str) -> str:
    """A keyword as a librdkafka property: `security_protocol` is `security.protocol`."""
    return name if "." in name or name in _UNDERSCORED else name.replace("_", ".")


def _thinned(moments: list[int], count: int) -> set[int]:
    """About `count` of the moments, evenly, with the first and the last."""
    if len(moments) <= count:
        return set(moments)
    return {moments[at * (len(moments) - 1) // max(count - 1, 1)] for at in range(count)}
