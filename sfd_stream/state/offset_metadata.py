"""The metadata of a committed offset: the state that the offset belongs to, and whether that state is published.

    delivery        published           not published yet
    idempotent      ""                  "unpublished"
    transactional   "sfd-state 3 14"    "sfd-state 3 014"     epoch 3, number 14

Workers of two versions read each other's metadata during an update and a rollback. Commit 75b2d4e knows only the form
`sfd-state EPOCH NUMBER`. It takes an offset with any other metadata for one that no worker committed. A leading zero
does not change the number that it reads.
"""

from __future__ import annotations

import re

from sfd_stream.state.manifest import StateId

_UNPUBLISHED = "unpublished"
_STATE = re.compile(rf"sfd-state (\d+) (\d+)(?: {_UNPUBLISHED})?")  # some commits wrote the word


def metadata_of(state_id: StateId | None, *, published: bool) -> str:
    """`state_id` is None in idempotent delivery."""
    if state_id is None:
        return "" if published else _UNPUBLISHED
    return f"sfd-state {state_id.epoch} {'' if published else '0'}{state_id.number}"


def state_id_in(metadata: str) -> StateId | None:
    """The state's id; None if the offset was not committed in a transaction of a worker."""
    found = _STATE.fullmatch(metadata)
    return None if found is None else StateId(int(found[1]), int(found[2]))


def is_published(metadata: str) -> bool:
    """Whether the offset's state is on the output topic, by its metadata."""
    found = _STATE.fullmatch(metadata)
    return not (metadata.endswith(_UNPUBLISHED) or (found is not None and found[2].startswith("0")))
