"""Everything outside the workers: network, broker, group, store, history. Chance comes from the seed, by concern."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.simulation.broker import Broker
from tests.simulation.coordinator import Coordinator
from tests.simulation.groups import ConsumerGroup, Group
from tests.simulation.network import History, Network
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.store import Objects


class World:
    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self.scheduler = scheduler
        self.history = History(scheduler)
        self.network = Network(scheduler, seed)
        self.broker = Broker(scheduler)
        self.coordinator = Coordinator(scheduler, self.broker)
        self.objects = Objects(scheduler, seed, self.history)
        self.silent_losses = 0.0
        """The share of losses that the client never reports."""
        self.cooperative = True
        self.kip_848 = False
        self.session_s = 6.0
        """Of KIP-848 groups, which the broker sets."""
        self.consumers: list[Any] = []
        self._groups: dict[str, Group] = {}
        self._losses = random.Random(f"losses {seed}")
        self._fetches = random.Random(f"fetches {seed}")
        self._backoffs = random.Random(f"backoffs {seed}")
        self._offsets = random.Random(f"offsets {seed}")
        self.on_commit: Callable[..., None] = lambda *_: None
        self.on_produce: Callable[[Process, str, bytes | None], None] = lambda *_: None
        """Called with process, topic and key, when a client is handed a message."""
        self.on_rebalanced: Callable[[Process, list[int], bool], None] = lambda *_: None
        """Called when a rebalance callback has returned; True for one that assigns."""
        scheduler.world = self  # type: ignore[attr-defined]

    def group(self, name: str) -> Group:
        if name not in self._groups:
            kind = ConsumerGroup if self.kip_848 else Group
            self._groups[name] = kind(self.scheduler, self._partitions, self._committed, self.cooperative)
        return self._groups[name]

    def _committed(self, *what: Any) -> None:
        self.on_commit(*what)

    def _partitions(self, topic: str) -> int:
        found = self.broker.topics.get(topic)
        return 0 if found is None else len(found.logs)

    # Chance

    def draws_silent_loss(self) -> bool:
        return self._losses.random() < self.silent_losses

    def draws_fetch(self, most: int) -> int:
        return self._fetches.randint(1, most)

    def draws_backoff(self) -> float:
        return self._backoffs.uniform(0.1, 1.0)

    def draws_no_offset(self) -> bool:
        return self._offsets.random() < 0.75
