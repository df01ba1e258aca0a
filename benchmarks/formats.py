"""What decoding each format costs, beside what one would write by hand, and how many rows a second a worker reads.

    python -m benchmarks.formats [--only decoding|shares|worker] [--rounds 5] [--seconds 1] [--rows 200000]
                                 [--formats json avro] [--json FILE] [--paste] [--no-run]

- decoding: batches of 1,000 messages to CSR on one thread; CPU time, the best of runs in turns. "by hand" is what one
  would write: a parser or the deserializer of confluent-kafka, then scikit-learn's FeatureHasher.
- the sketch's share: one thread decodes, another one sketches; what share of its own speed the sketch keeps.
- rows a second: one worker on a real Kafka with checkpoints on disk, from the first record to the last commit. Every
  format has the same events, so that all rows are as wide. The formats take turns; the median of the rounds counts.
  Ratios are of runs in the same round.

The bars are a floor and a goal. --paste writes the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from rich.console import Console
from threadpoolctl import threadpool_limits

from benchmarks import by_hand, compared, events
from benchmarks.by_hand import NAMES_D, D
from benchmarks.compare import spelled
from benchmarks.stream import fill
from benchmarks.tables import Table, paste
from benchmarks.timing import interleaved
from sfd_stream import FeatureMap, HashedColumns, SparseFrequentDirections, encode_row
from sfd_stream.wire import compiled
from sfd_stream.wire.formats import from_avro, from_protobuf
from sfd_stream.wire.formats.framing import FramedReader
from sfd_stream.wire.formats.from_json import read_json
from sfd_stream.wire.formats.records import Decoder, MsgpackDecoder, PlainReader, RecordDecoder
from sfd_stream.wire.rows.part import RowLimits
from tests.support.kafka import start_broker

BATCH = 1_000
ELL = 50
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
FORMATS = {"names": "names in msgpack", "json": "JSON", "avro": "Avro", "protobuf": "Protobuf"}
NUMBERED = {"packed": "packed rows", "lists": "lists of numbers"}
"""Rows of fixed columns. The compiled decoder leaves packed ones to numpy."""
BARS = {"names": (1.4, 1.7), "json": (1.8, 2.5), "avro": (3, 15), "protobuf": (2.5, 8)}
"""Ours over by hand: floor and goal."""
SHARES = {"names": (0.6, 0.9), "json": (0.3, 0.9)}
JSON_OVER_PACKED = (0.3, 0.6)
AS_FORMAT = {"json": events.as_json, "avro": events.as_avro, "protobuf": events.as_protobuf}

Found = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Messages, our decoder of them with its columns, and what one would write by hand."""

    messages: list[bytes]
    decoder: Decoder
    columns: HashedColumns
    hand: Callable[[], Any]

    def decode(self) -> Any:
        batch = self.decoder.decode(self.messages, self.columns, RowLimits())
        if batch.bad:
            raise RuntimeError(f"a message of the benchmark is bad: {batch.bad[0]}")
        return batch


@contextmanager
def reference() -> Iterator[None]:
    """Within it, the decoders in Python do all."""
    before = compiled._library  # noqa: SLF001
    compiled._library = lambda: None  # type: ignore[assignment]  # noqa: SLF001
    try:
        yield
    finally:
        compiled._library = before  # noqa: SLF001


# -- decoding --------------------------------------------------------------------------------------------


def cases() -> dict[str, Case]:
    """The columns know their names already, as those of a stream do after some time."""
    names = spelled("names", 10)[:BATCH]
    found = {"names": Case(names, MsgpackDecoder(), HashedColumns(NAMES_D), lambda: by_hand.names_by_hand(names))}
    rows, registry = events.events(BATCH), by_hand.Registry()
    readers: dict[str, Any] = {
        "json": PlainReader(read_json),
        "avro": FramedReader(registry, "AVRO", from_avro.compiled),
        "protobuf": FramedReader(registry, "PROTOBUF", from_protobuf.compiled),
    }
    written = {
        "json": by_hand.json_by_hand,
        "avro": by_hand.avro_by_hand(registry),
        "protobuf": by_hand.protobuf_by_hand(),
    }
    headers = {"json": b"", "avro": b"\0\0\0\0\1", "protobuf": b"\0\0\0\0\2\0"}
    for name, reader in readers.items():
        messages = [headers[name] + AS_FORMAT[name](row) for row in rows]
        hand = written[name]
        columns = HashedColumns(D, mapping=FeatureMap())
        found[name] = Case(messages, RecordDecoder(reader), columns, lambda m=messages, f=hand: f(m))  # type: ignore[misc]
    return {name: Case(case.messages, case.decoder, case.decode().columns, case.hand) for name, case in found.items()}


def decoding(known: dict[str, Case], rounds: int) -> Found:
    """CPU microseconds a row: ours, ours without the compiled decoder, by hand."""
    jobs: dict[str, Callable[[], Any]] = {}
    for name, case in known.items():
        jobs[f"{name} ours"], jobs[f"{name} by hand"] = case.decode, case.hand
        jobs[f"{name} reference"] = lambda case=case: _by_reference(case)  # type: ignore[misc]
    jobs["json json.loads"] = lambda: by_hand.json_by_the_library(known["json"].messages)
    for job in jobs.values():  # imports, caches
        job()
    timed = interleaved(jobs, rounds=rounds, budget_s=0.3 * rounds)
    return {name: one.cpu_s / BATCH * 1e6 for name, one in timed.items()}


def _by_reference(case: Case) -> Any:
    with reference():
        return case.decode()


# -- the sketch's share ----------------------------------------------------------------------------------


def shares(known: dict[str, Case], seconds: float, rounds: int) -> Found:
    """The share of its own speed that the sketch keeps while another thread decodes without pause."""
    found: Found = {}
    for name, case in known.items():
        block = case.decode().block.csr()
        for label, job in ((name, case.decode), (f"{name}, reference", lambda case=case: _by_reference(case))):
            pairs = [(sketched(block, None, seconds), sketched(block, job, seconds)) for _ in range(rounds)]
            found[label] = median(beside / alone for alone, beside in pairs)
    return found


def sketched(block: Any, beside: Callable[[], Any] | None, seconds: float) -> float:
    """Rows that are sketched in a second of CPU time or waiting for the interpreter, beside a job on another thread."""
    over = threading.Event()

    def repeat() -> None:
        while beside is not None and not over.is_set():
            beside()

    thread = threading.Thread(target=repeat)
    thread.start()
    sketcher, rows, end = SparseFrequentDirections(ELL), 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        sketcher.partial_fit(block)
        rows += block.shape[0]
    over.set()
    thread.join()
    return rows / seconds


# -- rows a second ---------------------------------------------------------------------------------------


def numbered_messages(written: list[Found], *, packed: bool) -> list[bytes]:
    """Rows as wide as the events, on as many columns."""
    case = RecordDecoder(PlainReader(read_json))
    columns = HashedColumns(D, mapping=FeatureMap())
    block = case.decode([events.as_json(event) for event in written], columns, RowLimits()).block
    cuts = zip(block.indptr[:-1], block.indptr[1:], strict=True)
    return [encode_row(block.indices[low:high], block.values[low:high], packed=packed) for low, high in cuts]


def named_message(event: Found) -> bytes:
    names, values = zip(*FeatureMap().features_of(event), strict=True)
    return encode_row(names, values, packed=False)


def topics(broker: Any, rows: int, wanted: Collection[str]) -> dict[str, tuple[str, int]]:
    """A topic of each format that is wanted, and its end."""
    written = events.events(10_000)
    spellings = {name: numbered_messages(written, packed=name == "packed") for name in NUMBERED if name in wanted}
    writers = {"names": named_message, **AS_FORMAT}
    spellings |= {name: [write(event) for event in written] for name, write in writers.items() if name in wanted}
    found = {}
    for name, messages in spellings.items():
        topic = broker.create_topic(partitions=1)
        times = max(rows // len(messages), 1)
        fill(broker.bootstrap, topic, messages, times)
        found[name] = topic, times * len(messages)
    return found


def settings_of(name: str, topic: str, bootstrap: str, folder: Path) -> Found:
    given: Found = {"topic": topic, "columns": "fixed" if name in NUMBERED else "hashed"}
    if name in AS_FORMAT:
        given |= {"format": name}
    if name == "avro":
        (folder / "event.avsc").write_text(json.dumps(events.AVRO), encoding="utf-8")
        given |= {"schema": str(folder / "event.avsc")}
    if name == "protobuf":
        (folder / "event.proto").write_text(events.PROTO, encoding="utf-8")
        given |= {"schema": str(folder / "event.proto"), "message": "Event"}
    return {
        "kafka": {"bootstrap.servers": bootstrap, "group.id": folder.name, "log_level": 3},
        "input": given,
        "sketch": {"d": D, "ell": ELL},
        "checkpoint": {"url": (folder / "checkpoints").as_uri()},
        "http": {"port": 0},
        "log": {"level": "warning"},
    }


def worker_rate(name: str, topic: str, end: int, bootstrap: str, *, fast: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.yaml")
        path.write_text(yaml.safe_dump(settings_of(name, topic, bootstrap, Path(folder))), encoding="utf-8")
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "SFD_COMPILED": "1" if fast else "0"}
        command = [sys.executable, str(Path(compared.__file__)), "worker", str(path), str(end)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout[-1000:] + done.stderr[-3000:])
    return end / float(json.loads(done.stdout.splitlines()[-1])["seconds"])


def worker_rates(rows: int, rounds: int, wanted: Collection[str], *, reference: bool) -> Found:
    """Rows a second of each round, by format; of records also without the compiled decoder."""
    found: dict[str, list[float]] = {}
    with start_broker() as broker:
        known = topics(broker, rows, {"packed", *wanted})
        for turn in range(rounds):
            for name, (topic, end) in known.items():
                for fast in (True, False) if reference and name != "packed" else (True,):
                    label = name if fast else f"{name}, reference"
                    rate = worker_rate(name, topic, end, broker.bootstrap, fast=fast)
                    found.setdefault(label, []).append(rate)
                    print(f"round {turn + 1}: {label}: {rate:,.0f} rows/s", file=sys.stderr, flush=True)
    return found


# -- the report ------------------------------------------------------------------------------------------


def verdict(value: float, bars: tuple[float, float]) -> str:
    floor, goal = bars
    return "goal" if value >= goal else "floor" if value >= floor else "BELOW THE FLOOR"


def bars_of(value: float, bars: tuple[float, float]) -> str:
    return f"{bars[0]} / {bars[1]}: {verdict(value, bars)}"


def decoding_table(costs: Found) -> Table:
    rows = []
    for name, words in FORMATS.items():
        ours, hand, plain = costs[f"{name} ours"], costs[f"{name} by hand"], costs[f"{name} reference"]
        ratio = hand / ours
        rows.append([words, f"{ours:.2f}", f"{hand:.2f}", f"{ratio:.1f}", bars_of(ratio, BARS[name]), f"{plain:.1f}"])
    ours, slow = costs["json ours"], costs["json json.loads"]
    rows.append(["JSON, json.loads by hand", f"{ours:.2f}", f"{slow:.2f}", f"{slow / ours:.1f}", "3.5", ""])
    columns = ["us of CPU a row", "compiled", "by hand", "times as fast", "floor / goal", "Python (the reference)"]
    return Table("decoding", "Decoding to CSR", columns, rows)


def shares_table(found: Found) -> Table:
    rows = []
    for name, words in FORMATS.items():
        judged = bars_of(found[name], SHARES[name]) if name in SHARES else ""
        rows.append([words, f"{found[name]:.2f}", judged, f"{found[f'{name}, reference']:.2f}"])
    columns = ["decoder on another thread", "compiled", "floor / goal", "Python (the reference)"]
    return Table("shares", "The share of its own speed that the sketch keeps", columns, rows)


def worker_table(rates: Found) -> Table:
    rows = []
    for name, words in {**NUMBERED, **FORMATS}.items():
        if name not in rates:
            continue
        share = median(one / other for one, other in zip(rates[name], rates["packed"], strict=True))
        judged = bars_of(share, JSON_OVER_PACKED) if name == "json" else ""
        plain = rates.get(f"{name}, reference")
        shown = f"{median(plain):,.0f}" if plain else ""
        rows.append([words, f"{median(rates[name]):,.0f}", f"{share:.2f}", judged, shown])
    columns = ["rows a second of one worker", "compiled", "of packed rows", "floor / goal", "Python (the reference)"]
    return Table("formats", "From a real Kafka to a checkpointed sketch", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="one table; may be repeated")
    every = [*NUMBERED, *FORMATS]
    parser.add_argument("--formats", choices=every, default=every, nargs="+", help="that a worker reads, with packed")
    parser.add_argument("--no-reference", dest="reference", action="store_false", help="workers decode compiled only")
    parser.add_argument("--no-run", action="store_true", help="only show and paste what the file of --json has")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each run beside a decoder")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of each topic")
    parser.add_argument("--json", type=Path, help="add the figures to this file")
    parser.add_argument("--paste", action="store_true", help="write the tables into docs/performance.md")
    given = parser.parse_args()
    sections = [] if given.no_run else given.only or list(SECTIONS)
    if sections and not compiled.is_available():
        raise SystemExit("the compiled decoder is not installed, or of another version: make compiled")
    found: Found = {}
    if given.json and given.json.exists():
        found = json.loads(given.json.read_text(encoding="utf-8"))
    with threadpool_limits(1):
        if "decoding" in sections:
            found["decoding"] = decoding(cases(), given.rounds)
        if "shares" in sections:
            found["shares"] = shares(cases(), given.seconds, given.rounds)
    if "worker" in sections:
        found["worker"] = worker_rates(given.rows, given.rounds, given.formats, reference=given.reference)
    made = [table(found[section]) for section, table in SECTIONS.items() if section in found]
    for table in made:
        table.show(Console())
    print(f"load {os.getloadavg()[0]:.1f}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if given.paste:
        paste([PAGE], made)


SECTIONS = {"decoding": decoding_table, "shares": shares_table, "worker": worker_table}

if __name__ == "__main__":
    main()
