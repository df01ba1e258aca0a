"""Counters and gauges for Prometheus: one registry per worker, no global state.

Events (rows, checkpoints, shrinks) are counted when they happen. Gauges (offsets, ages, delta) are read from the
worker's status at each scrape. `exposition` returns both, with the labels of the worker.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import confluent_kafka
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, metrics_core
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from sfd_stream.observe import metrics as m
from sfd_stream.observe.metrics import Metric
from sfd_stream.observe.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Family: TypeAlias = metrics_core.Metric
"""The samples of one metric."""


class MetricsRegistry:
    """Counters and histograms by declaration. Any thread may use it."""

    def __init__(self, service: m.Service = "worker") -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._counters: dict[Metric, Counter] = {}
        self._histograms: dict[Metric, Histogram] = {}
        for metric in m.declared(service):
            if metric.kind == "counter" and metric not in READ_OFF:
                self._counters[metric] = counter = Counter(
                    metric.name, metric.help, metric.labels, registry=self.registry
                )
                for value in metric.values:
                    counter.labels(value)
            elif metric.kind == "histogram":
                self._histograms[metric] = Histogram(
                    metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry
                )

    def add(self, metric: Metric, amount: float = 1, *labels: object) -> None:
        counter = self._counters[metric]
        (counter.labels(*labels) if labels else counter).inc(amount)

    def observe(self, metric: Metric, value: float) -> None:
        self._histograms[metric].observe(value)


def exposition(meter: MetricsRegistry, status: Status, idle_s: float) -> bytes:
    """The metrics of one worker in Prometheus' text format."""
    labels = {"worker": status.worker, "group": status.group, "topic": status.topic}
    return labelled(meter, lambda: _read_off(READ_OFF, status, idle_s), labels)


def labelled(meter: MetricsRegistry, gauges: Callable[[], Iterable[Family]], labels: Mapping[str, str]) -> bytes:
    """All counters and gauges, with these labels on every series."""
    return generate_latest(_Labelled(meter.registry, gauges, labels))


class _Labelled(Collector):
    """All families with the worker's labels on every sample, without the client library's `_created` series."""

    def __init__(
        self, registry: CollectorRegistry, more: Callable[[], Iterable[Family]], labels: Mapping[str, str]
    ) -> None:
        self._registry = registry
        self._more = more
        self._labels = labels

    def collect(self) -> Iterator[Family]:
        for families in (self._registry.collect(), self._more()):
            for family in families:
                family.samples = [
                    sample._replace(labels={**self._labels, **sample.labels})
                    for sample in family.samples
                    if not sample.name.endswith("_created")
                ]
                if family.samples:
                    yield family


# Read from the status at each scrape

T = TypeVar("T")
Values = Iterable[tuple[tuple[str, ...], float | None]]


class Process(Protocol):
    """The values that every service exports."""

    @property
    def version(self) -> str: ...
    @property
    def started_at_s(self) -> float: ...


_BUILD = (platform.python_version(), confluent_kafka.libversion()[0])
_PAGE_BYTES = resource.getpagesize()


def _each(name: str) -> Callable[[Status, float], Values]:
    """The same field of every partition."""
    return lambda status, _: [((str(part.partition),), getattr(part, name)) for part in status.partitions]


def _one(read: Callable[[Status, float], float | None]) -> Callable[[Status, float], Values]:
    return lambda status, idle_s: [((), read(status, idle_s))]


def _states(status: Status, _: float) -> Values:
    counts = dict.fromkeys(m.STATES, 0)
    for part in status.partitions:
        counts[part.state] += 1
    return [((state,), float(count)) for state, count in counts.items()]


OF_PROCESS: Mapping[Metric, Callable[[Process, float], Values]] = {
    m.LOOP_IDLE: lambda _, idle_s: [((), idle_s)],
    m.MEMORY: lambda *_: [((), resident_bytes())],
    m.CPU_SECONDS: lambda *_: [((), _cpu_s())],
    m.START_TIME: lambda process, _: [((), process.started_at_s)],
    m.UP: lambda *_: [((), 1.0)],
    m.BUILD_INFO: lambda process, _: [((process.version, *_BUILD), 1.0)],
}
READ_OFF: Mapping[Metric, Callable[[Status, float], Values]] = {
    m.APPLIED_OFFSET: _each("applied"),
    m.COMMITTED_OFFSET: _each("committed"),
    m.END_OFFSET: _each("end"),
    m.LAG: _each("lag"),
    m.STUCK: _each("stuck_s"),
    m.PARTITIONS: _states,
    m.DELTA_RATIO: _each("delta_ratio"),
    m.FAILURE_PROBABILITY: _each("failure_probability"),
    m.PROMISED_RATIO: _one(lambda status, _: status.promised_ratio),
    m.DRIFT: _each("drift"),
    m.BUFFER_FILL: _each("buffer_fill"),
    m.CHECKPOINT_AGE: _each("checkpoint_age_s"),
    m.MANIFEST_NUMBER: _each("number"),
    m.MANIFEST_EPOCH: _each("epoch"),
    m.SNAPSHOT_BYTES: _each("snapshot_bytes"),
    m.SNAPSHOT_AGE: _each("snapshot_age_s"),
    m.BROKER_AWAY: _one(lambda status, _: status.broker_away_s),
    m.OUTSIDE_GROUP: _one(lambda status, _: status.outside_group_s),
    m.MEMORY_RESERVED: _one(lambda status, _: status.memory_reserved_bytes),
    m.MEMORY_MAX: _one(lambda status, _: status.memory_max_bytes),
    m.KAFKA_RTT: lambda status, _: [((broker,), rtt) for broker, rtt in status.kafka.rtt_s.items()],
    m.KAFKA_FETCH_QUEUE: _one(lambda status, _: status.kafka.fetch_queue),
    m.KAFKA_TRANSMIT_ERRORS: lambda status, _: [
        ((broker,), float(errors)) for broker, errors in status.kafka.transmit_errors.items()
    ],
    **OF_PROCESS,
}


def of_process(process: Process, idle_s: float) -> Iterator[Family]:
    return _read_off(OF_PROCESS, process, idle_s)


def _read_off(what: Mapping[Metric, Callable[[T, float], Values]], status: T, idle_s: float) -> Iterator[Family]:
    return (family_of(metric, read(status, idle_s)) for metric, read in what.items())


def family_of(metric: Metric, values: Values) -> Family:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values:
        if value is not None:
            family.add_metric(labels, float(value))
    return family


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system
