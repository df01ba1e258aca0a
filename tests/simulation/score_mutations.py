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
    "the basis pinned last instead of the one named": one(
        "score/pinned.py",
        "found = self.bases.newest() if self.id is None else self.bases.load(self.id)",
        "found = self.bases.newest()",
        aim="extremes",
    ),
    "a row that the pinned basis has counted is not noted": one(
        "score/scoring.py",
        "        counted = offsets < basis.counted_to.get(batch.partition, 0)\n",
        "        counted = offsets < 0\n",
        aim="extremes",
    ),
    "a row is extreme only if it reaches all thresholds": one(
        "score/scoring.py",
        "chosen = np.any(list(kinds.values()), axis=0)",
        "chosen = np.all(list(kinds.values()), axis=0)",
        aim="extremes",
    ),
    "an interval reaches a threshold by its upper end": one(
        "score/scoring.py",
        "found[kind] = interval.lower >= value",
        "found[kind] = interval.upper >= 0.9 * value",
        aim="extremes",
    ),
}
