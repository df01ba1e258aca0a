"""Makes the screenshots in docs/images: the page of a real worker on a real Kafka, which sketches docstrings.

python -m tests.system.page.screenshots
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgpack
import yaml
from playwright.sync_api import sync_playwright

from sfd_stream.demo.checks import COLUMNS
from sfd_stream.demo.corpus import bags
from sfd_stream.tools.produce import bag_messages
from tests.support.kafka import Broker, start_broker
from tests.support.tools import need

IMAGES = Path(__file__).parents[3] / "docs" / "images"
FLOW_S = 150.0
NOT_ROWS = (
    b'{"not": "msgpack"}',
    b'{"not": "msgpack"}',
    msgpack.packb({"v": [1.0]}),
    msgpack.packb({"i": ["nan", "value"], "v": [float("nan"), 2.0]}),
)
SHOTS = (
    ("page-light", "light", 1200, False),
    ("page-dark", "dark", 1200, False),
    ("page-phone", "light", 390, True),
)


def settings_of(broker: Broker, folder: Path) -> dict[str, Any]:
    return {
        "kafka": {"bootstrap.servers": broker.bootstrap, "group.id": "topics-of-docstrings"},
        "input": {"topic": broker.create_topic(partitions=4, name="docstrings"), "columns": "hashed"},
        "sketch": {"d": COLUMNS, "ell": 40, "buffer_max_bytes": "256KiB"},
        "checkpoint": {"url": (folder / "checkpoints").as_uri(), "every_s": 5},
        "snapshot": {"topic": broker.create_topic(), "every_s": 10},
        "dead_letters": {"topic": broker.create_topic(), "max_share": 0.5},
        "http": {"port": 0},
        "log": {"format": "json"},
    }


def feed(broker: Broker, over: threading.Event) -> None:
    """Rows at a pace that changes a little, and now and then a message that is none."""
    messages, sent = [message.value for message in bag_messages(bags(COLUMNS))], 0
    while not over.wait(0.25):
        for partition in range(4):
            size = 10 + (sent // 60 + 3 * partition) % 9
            batch = [messages[(sent + i) % len(messages)] for i in range(size)]
            if sent % 50 == partition:
                batch.append(NOT_ROWS[sent % len(NOT_ROWS)])
            broker.produce("docstrings", batch, partition=partition)
            sent += size


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    over = threading.Event()
    with start_broker(private=True) as broker, tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "settings.yaml")
        path.write_text(yaml.safe_dump(settings_of(broker, Path(folder))))
        command = [sys.executable, "-m", "sfd_stream.cli", "run", "--config", str(path)]
        log = Path(folder, "log")
        with log.open("wb") as out, subprocess.Popen(command, stderr=out) as worker:
            try:
                threading.Thread(target=feed, args=(broker, over), daemon=True).start()
                while '"url"' not in log.read_text():
                    time.sleep(0.1)
                url = next(json.loads(line)["url"] for line in log.read_text().splitlines() if '"url"' in line)
                shoot(url)
            finally:
                over.set()
                worker.terminate()


def shoot(url: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=need("chromium"))
        pages = []
        for name, scheme, width, phone in SHOTS:
            context = browser.new_context(
                color_scheme=scheme, viewport={"width": width, "height": 844}, device_scale_factor=1.5, is_mobile=phone
            )
            page = context.new_page()
            page.goto(url)
            pages.append((name, page))
        pages[0][1].wait_for_timeout(FLOW_S * 1000)
        for name, page in pages:
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / f"{name}.png", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
