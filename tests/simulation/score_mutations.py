"""Deliberate faults in the scorer's code, to be caught by the laws of scoring.py."""

from __future__ import annotations

from tests.simulation.mutations import Mutation, one

SCORE_MUTATIONS: dict[str, Mutation] = {
    "a scorer's offset one too far": one(
        "score/consumer.py",
        "Share(owned, scored[-1].next_offset, [m",
        "Share(owned, scored[-1].next_offset + 1, [m",
        aim="scores",
    ),
    "a score that was not delivered is forgotten": one(
        "score/delivery.py",
        "                    waiting.append(message)\n",
        "                    pass\n",
        aim="scores",
    ),
    "a scorer reads on from where it is, not from the group's offset": one(
        "score/consumer.py",
        "        return max(committed, first)\n",
        "        return max(committed, first, end - 2)\n",
        aim="scores",
    ),
}
