"""What is remembered of a partition between two looks: since when rows wait, what is replayed, whether it is stuck."""

from __future__ import annotations

from dataclasses import dataclass

from sfd_stream.observe.facts import Around, Facts, Seen

STUCK_AFTER_S = 30.0
SILENT_AFTER_S = 60.0


@dataclass
class Known:
    """Times are the worker's clock's."""

    assigned_s: float
    undurable_since: float | None = None
    """When the oldest record came that the checkpoint in flight holds."""
    begun_s: float | None = None
    unshown_since: float | None = None
    """When the oldest record came that a snapshot holds which is not acknowledged."""
    snapshot_bytes: int | None = None
    replay_from: tuple[float, Facts] | None = None
    """When and what was restored, until the end as it was then is reached."""
    replay_to: int | None = None
    moved: tuple[float, int, int] = (0.0, -1, 0)
    """When the applied offset last moved, to where, and the lag then."""

    delivered: tuple[float, int | None] = (0.0, None)
    """When a record last came or none was to be expected, and the position then."""

    def replayed(self, part: Seen, applied: int | None, now_s: float) -> tuple[float, int] | None:
        """Seconds and rows, once: when the end is reached that the log had at the first look after the restore.

        `applied` is compared, as for the lag: the end counts control records, which leave no row behind.
        """
        if self.replay_from is None or part.facts is None or part.end is None or applied is None:
            return None
        self.replay_to = part.end if self.replay_to is None else self.replay_to
        if applied < self.replay_to:
            return None
        (began_s, before), self.replay_from = self.replay_from, None
        if part.facts.next_offset == before.next_offset:
            return None
        return now_s - began_s, part.facts.rows - before.rows

    def stuck_s(self, applied: int | None, lag: int | None, now_s: float, claim_step_s: float | None = None) -> float:
        """Flat alone is an idle topic; flat while the lag grows is a partition that is stuck.

        So is one whose claim stays at one step, since `claim_step_s`, whatever its lag.
        """
        if claim_step_s is not None and now_s - claim_step_s >= STUCK_AFTER_S:
            return round(now_s - claim_step_s, 1)
        moved_s, where, lag_then = self.moved
        if applied is None or applied != where or lag is None:
            self.moved = (now_s, -1 if applied is None else applied, lag or 0)
            return 0.0
        flat_s = now_s - moved_s
        return round(flat_s, 1) if flat_s >= STUCK_AFTER_S and lag > lag_then else 0.0

    def silent_s(self, part: Seen, around: Around, now_s: float) -> float:
        """How long a partition that has records and is not paused by us has delivered none; 0 below a minute."""
        has_records = part.position is not None and part.end is not None and part.end > part.position
        expected = has_records and part.state == "reading" and not part.paused and around.broker_away_s is None
        if not expected or part.position != self.delivered[1]:
            self.delivered = (now_s, part.position)
            return 0.0
        silent_s = now_s - self.delivered[0]
        return round(silent_s, 1) if silent_s >= SILENT_AFTER_S else 0.0


def age_s(now_s: float, *since: float | None) -> float:
    """Of the oldest; 0 if there is none."""
    known = [each for each in since if each is not None]
    return round(now_s - min(known), 3) if known else 0.0
