"""A worker in a container as a platform team would run it: locked down, settings by environment alone."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.engine import Engine

ROOT = Path(__file__).parents[3]
IMAGE = "sfd-stream:test"
UID = "10001"
LOCKED_DOWN = ("--read-only", "--user", UID, "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
WAIT_S = 120.0


class Container:
    """One container; whatever happens, it is gone in the end."""

    def __init__(self, engine: Engine, image: str, environment: Mapping[str, str], *options: str) -> None:
        self.engine = engine
        self.name = f"sfd-{uuid.uuid4().hex[:12]}"
        self._image = image
        self._options = [*LOCKED_DOWN, *options]
        for key, value in environment.items():
            self._options += ["--env", f"{key}={value}"]

    def __enter__(self) -> Self:
        self.engine.run("run", "--detach", "--name", self.name, *self._options, self._image)
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if error is not None:
            error.add_note(f"{self.name} said:\n{self.logs()[-4_000:]}")
        self.engine.ask("rm", "--force", self.name)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.engine.run("inspect", "--format", "{{json .State}}", self.name))
        return found

    def logs(self) -> str:
        answer = self.engine.ask("logs", self.name)
        return answer.stdout + answer.stderr

    def told(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind, as it wrote them."""
        lines = [json.loads(line) for line in self.logs().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def rows_read(self) -> int:
        """As its port has it; the container shares the host's network."""
        lines = [json.loads(line) for line in self.logs().splitlines() if line.startswith("{")]
        url = next((line["url"] for line in lines if "url" in line), None)
        with contextlib.suppress(OSError):
            if url is not None:
                with urllib.request.urlopen(f"{url}status.json", timeout=5) as answer:  # noqa: S310 - our own
                    return sum(int(worker["rows"]) for worker in json.load(answer)["workers"])
        return 0

    def processes(self) -> str:
        return self.engine.ask("top", self.name, "-o", "pid,args").stdout

    def kill(self) -> None:
        self.engine.run("kill", "--signal", "KILL", self.name)

    def stop(self, grace_s: int = 30) -> dict[str, Any]:
        """What an orchestrator does: SIGTERM, and SIGKILL after the grace."""
        self.engine.run("stop", "--time", str(grace_s), self.name)
        return self.state()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            state = self.state()
            assert state["Running"], f"it ended with {state['ExitCode']} before {what}"
            assert time.monotonic() < deadline, f"waited {WAIT_S:.0f} s for {what}"
            time.sleep(0.25)
