"""One broker for a whole test run, whichever process of it asks first.

The first to ask starts a keeper, a process that holds the broker and writes its address into the run's
folder; all others read it there. The keeper outlives the one that started it and ends, with its broker and
the folder, when the run's controller ends: by whatever end, since it watches the process itself.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.cache import locked
from tests.support.kafka import Broker, start_broker
from tests.support.kafka_home import NoKafkaError

ASK_TIMEOUT_S = 600.0  # a first fetch of the jars on a slow line


def shared_broker(folder: Path, controller: int) -> Broker:
    """The run's broker, started if nobody has yet. The same refusal is given to everyone who asks."""
    address = folder / "kafka.json"
    with locked(folder / "kafka.lock"):
        if not address.exists():
            _start_keeper(controller, address)
    answer = json.loads(address.read_text())
    if "error" in answer:
        raise NoKafkaError(answer["error"])
    broker = Broker(answer["bootstrap"])
    broker.kind = answer["kind"]
    return broker


def _start_keeper(controller: int, address: Path) -> None:
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.kafka_keeper", str(controller), str(address)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    deadline = time.monotonic() + ASK_TIMEOUT_S
    while not address.exists():
        if keeper.poll() is not None or time.monotonic() > deadline:
            raise NoKafkaError(f"the keeper of the tests' broker ended with {keeper.poll()}; its words are above")
        time.sleep(0.05)
    keeper.returncode = 0  # it is the controller's now: no warning about a child that still runs


def _keep(controller: int, address: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    watched = os.pidfd_open(controller)
    try:
        broker = start_broker()
    except (NoKafkaError, TimeoutError) as error:
        _write(address, {"error": str(error)})
        select.select([watched], [], [])
    else:
        with broker:
            _write(address, {"bootstrap": broker.bootstrap, "kind": broker.kind, "keeper": os.getpid()})
            select.select([watched], [], [])  # readable when the controller has ended
    finally:
        shutil.rmtree(address.parent, ignore_errors=True)


def _write(address: Path, answer: dict[str, object]) -> None:
    """Whole or not at all, for those who wait for the file to appear."""
    fresh = address.with_suffix(".new")
    fresh.write_text(json.dumps(answer))
    fresh.rename(address)


if __name__ == "__main__":
    _keep(int(sys.argv[1]), Path(sys.argv[2]))
