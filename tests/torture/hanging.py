"""Transactions that hang: open in a partition, unknown to their coordinator. Kafka's own tool finds and ends them.

    kafka-transactions.sh find-hanging, then abort

Nothing after the begin of such a transaction is readable with `read_committed`, and offsets of its partition stay
unstable, until it is ended (docs/reliability.md). No client can do anything about it, so a campaign reports it as a
fault of the broker, and only if the tool has named the transaction.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.kafka_home import kafka_home

TOOL = "org.apache.kafka.tools.TransactionsCommand"
MINUTES = 1
"""Open for at least this long. A campaign looks after a drain of three minutes; its transactions time out after 5 s."""


@dataclass(frozen=True)
class Hanging:
    topic: str
    partition: int
    start_offset: int
    row: str
    """What the tool printed."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} from offset {self.start_offset}"


def hanging_transactions(bootstrap: str, brokers: Iterable[int], minutes: int = MINUTES) -> list[Hanging]:
    """On each of the brokers."""
    found: dict[tuple[str, int, int], Hanging] = {}
    for broker in brokers:
        printed = _tool(
            bootstrap, "find-hanging", "--broker-id", str(broker), "--max-transaction-timeout", str(minutes)
        )
        found |= {(one.topic, one.partition, one.start_offset): one for one in parsed(printed)}
    return list(found.values())


def abort(bootstrap: str, one: Hanging) -> None:
    where = ["--topic", one.topic, "--partition", str(one.partition), "--start-offset", str(one.start_offset)]
    _tool(bootstrap, "abort", *where)


def parsed(printed: str) -> list[Hanging]:
    """The rows of the tool's table."""
    lines = [line.split() for line in printed.splitlines()]
    heads = [place for place, line in enumerate(lines) if line[:2] == ["Topic", "Partition"]]
    if not heads:
        return []
    columns = lines[heads[0]]
    rows = [dict(zip(columns, line, strict=False)) for line in lines[heads[0] + 1 :] if len(line) == len(columns)]
    return [Hanging(row["Topic"], int(row["Partition"]), int(row["StartOffset"]), str(row)) for row in rows]


def _tool(bootstrap: str, *command: str) -> str:
    """Its output. CalledProcessError with what it printed if it fails."""
    java = kafka_home().java(TOOL, "--bootstrap-server", bootstrap, *command)
    return subprocess.run(java, check=True, capture_output=True, text=True, timeout=120).stdout
