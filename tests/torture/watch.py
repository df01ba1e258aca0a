"""The live reader: follows the snapshots and the merged sketch all the time, and writes down what it was given.

    python -m tests.torture.watch SETTINGS.json OUT.jsonl

One line per change: the topic, the id of each part and the number of rows. truth.py checks that nothing goes back.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from sfd_stream import SnapshotReader
from sfd_stream.reader.merged import MergedSketch

EVERY_S = 0.3


def line_of(topic: str, merged: MergedSketch) -> dict[str, Any]:
    """Bound and rows come from one state, so both only grow."""
    parts = {part.id.key: [part.id.epoch, part.id.number, part.next_offset, part.rows] for part in merged.parts}
    return {"topic": topic, "rows": merged.sketch.rows, "delta": merged.sketch.delta, "parts": parts}


def follow(settings: dict[str, Any], topic: str, out: Path, ended: threading.Event) -> None:
    given = {"store_url": settings["url"], "store_options": settings["options"], "log_level": 3}
    try:
        with (
            SnapshotReader(settings["bootstrap"], topic, timeout_s=300, **given) as reader,
            out.open("a", buffering=1) as file,
        ):
            for merged in reader.watch(every_s=EVERY_S):
                file.write(json.dumps(line_of(topic, merged)) + "\n")
    finally:
        ended.set()


def main(settings_path: Path, out: Path) -> int:
    """Runs until SIGTERM. A reader that ends by itself ends the program with exit code 1."""
    settings, ended, stopped = json.loads(settings_path.read_text()), threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: (stopped.set(), ended.set()))
    for topic in settings["topics"]:
        threading.Thread(
            target=follow, args=(settings, topic, out.with_suffix(f".{topic}.jsonl"), ended), daemon=True
        ).start()
    while not ended.wait(0.5):
        pass
    sys.stderr.flush()
    return 0 if stopped.is_set() else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
