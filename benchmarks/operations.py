"""Makes the terminal captures in docs/operations.md, on a real broker: `python -m benchmarks.operations [NAME ...]`.

Each capture stands between `<!-- capture NAME -->` and `<!-- end -->`; what stands there is what they printed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sfd_stream.cli.processes import rows_in_store
from sfd_stream.config import load
from tests.support.kafka import start_broker

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations.md"
CONFIG = "config/local.yaml"
ROWS = 400_000
PLACE = "rows/2"

PRODUCE = f"sfd-stream produce --config {CONFIG} --synthetic {ROWS},1000,20 --partitions 4"
TOPICS = f"sfd-stream topics --config {CONFIG} --partitions 4"
RUN = f"sfd-stream run --config {CONFIG} --until-end"
LS = f"sfd-stream checkpoint ls --config {CONFIG}"
VERIFY = f"sfd-stream checkpoint verify {PLACE} --config {CONFIG}"
DOCTOR = f"sfd-stream doctor --config {CONFIG}"
SICK = (
    f"{DOCTOR} --set input.topic=clicks --set snapshot.delivery=transactional --set checkpoint.url=file:///dev/shm/sfd"
)
SIZE = "sfd-stream size --epsilon 0.05 --k 10 --d 10000 --rate 5000 --partitions 12"
BENCH = "sfd-stream bench --d 10000 --ell 30 --z 100"
ROLLBACK = f"sfd-stream checkpoint rollback {PLACE} --yes --config {CONFIG}"


@dataclass
class Terminal:
    """Runs commands where a reader would, and keeps what was seen."""

    environment: dict[str, str]
    seen: list[str] = field(default_factory=list)

    def run(self, command: str, wanted: int = 0) -> None:
        done = subprocess.run(
            command.split(), cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode != wanted:
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stderr}")
        self.show(command, done.stderr + done.stdout)
        if wanted:
            self.seen.append(f"$ echo $?\n{wanted}")

    def run_and_kill(self, command: str, rows: int) -> None:
        """By kill -9, as soon as checkpoints hold this many rows."""
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(command.split(), cwd=ROOT, env=self.environment, stderr=log, stdout=log)
            while self.rows() < rows:
                if process.poll() is not None:
                    raise SystemExit("it ended before it could be killed: produce more rows")
                time.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
            log.seek(0)
            self.show(f"{command} &\n$ kill -9 $!", log.read())

    def rows(self) -> int:
        return rows_in_store(load(ROOT / CONFIG, environ=self.environment).settings)

    def show(self, command: str, text: str) -> None:
        lines = [re.sub(r" +$", "", line) for line in text.splitlines()]
        self.seen.append("\n".join([f"$ {command}", *lines]).rstrip())

    def capture(self) -> str:
        text, self.seen = "\n".join(self.seen), []
        return text


@contextmanager
def terminal() -> Iterator[Terminal]:
    store = Path(tempfile.mkdtemp(prefix="sfd-operations-"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SFD_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with start_broker(private=True) as broker:
        broker.create_topic(name="rows-dead")
        broker.create_topic(name="sketches", config={"cleanup.policy": "compact"})
        broker.produce(broker.create_topic(), [b""])  # a fresh broker makes the first producer wait, and warn
        settings = {
            "SFD_KAFKA__BOOTSTRAP_SERVERS": broker.bootstrap,
            "SFD_CHECKPOINT__URL": store.as_uri(),
            "SFD_CHECKPOINT__EVERY_ROWS": "10000",
            "SFD_KAFKA__SESSION_TIMEOUT_MS": "6000",
            "SFD_LOG__FORMAT": "text",
        }
        try:
            yield Terminal({**kept, **settings, "PATH": path, "OMP_NUM_THREADS": "1"})
        finally:
            shutil.rmtree(store)


def killed_and_resumed(shell: Terminal) -> str:
    shell.run(PRODUCE)
    shell.run_and_kill(RUN, ROWS // 4)
    shell.run(LS)
    shell.run(RUN)
    return shell.capture()


def damaged_and_repaired(shell: Terminal) -> str:
    settings = load(ROOT / CONFIG, environ=shell.environment).settings
    store = Path(settings.checkpoint.url.removeprefix("file://")) / settings.group
    newest = max((store / PLACE / "blobs").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    shell.run(RUN, wanted=3)
    shell.run(VERIFY, wanted=3)
    shell.run(ROLLBACK)
    shell.run(RUN)
    return shell.capture()


def examined(shell: Terminal) -> str:
    shell.run(TOPICS)
    shell.run(DOCTOR)
    shell.run(SICK, wanted=5)
    return shell.capture()


def sized(shell: Terminal) -> str:
    shell.run(SIZE)
    return shell.capture()


def measured(shell: Terminal) -> str:
    shell.run(BENCH)
    return shell.capture()


SCENES = {
    "killed": killed_and_resumed,
    "damaged": damaged_and_repaired,  # goes on from what the one before left
    "doctor": examined,
    "size": sized,
    "bench": measured,
}


def put(page: str, name: str, text: str) -> str:
    between = re.compile(rf"(<!-- capture {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if between.search(page) is None:
        raise SystemExit(f"the page has no place for the capture {name}")
    return between.sub(lambda found: f"{found[1]}```console\n{text}\n```\n{found[2]}", page)


def main() -> None:
    wanted = sys.argv[1:] or list(SCENES)
    with terminal() as shell:
        for name in wanted:
            PAGE.write_text(put(PAGE.read_text(), name, SCENES[name](shell)))


if __name__ == "__main__":
    main()
