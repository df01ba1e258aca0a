"""Rows for sfd-stream from any program: one JSON object a line on standard input, column to value.

    echo '{"3": 1.0, "17": 2.5}' | python producer.py localhost:9092 rows

A column is a number, or with `input.columns: hashed` a feature's name. Needs two packages, and sfd-stream is none of
them: pip install confluent-kafka msgpack. What is sent is written down in docs/reference/formats.md.
"""

import json
import re
import struct
import sys

import msgpack
from confluent_kafka import KafkaError, Message, Producer

QUEUE_MAX = 50_000
NUMBER = re.compile("0|[1-9][0-9]{0,9}")


def is_number(column: str) -> bool:
    """Whether it is a number of 32 bits, written as numbers are: "007" and a telephone number are names."""
    return NUMBER.fullmatch(column) is not None and int(column) < 2**32


def encode_row(row: dict[str, float]) -> bytes:
    """One message's value. Numbered columns go packed, the form that is read fastest; names go as a list."""
    if not all(is_number(column) for column in row):
        return msgpack.packb({"i": list(row), "v": list(row.values())})
    entries = sorted((int(column), value) for column, value in row.items())
    columns = struct.pack(f"<{len(entries)}I", *(column for column, _ in entries))
    values = struct.pack(f"<{len(entries)}d", *(value for _, value in entries))
    return msgpack.packb({"i": columns, "v": values})


def main(broker: str, topic: str) -> int:
    """Sends all lines; every message is confirmed by the broker, or the exit code is 1."""
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})
    lost = []

    def reported(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            lost.append(error.str())

    rows = 0
    for line in sys.stdin:
        while len(producer) > QUEUE_MAX:  # let some go first
            producer.poll(0.1)
        producer.produce(topic, encode_row(json.loads(line)), on_delivery=reported)
        producer.poll(0)
        rows += 1
    producer.flush()
    if lost:
        sys.stderr.write(f"{len(lost)} of {rows} rows were not delivered: {lost[0]}\n")
        return 1
    sys.stdout.write(f"{rows} rows to {topic}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
