"""Whether a state made under one set of parameters may continue under another. Decided before anything is claimed.

| parameter | may it change between runs? |
|---|---|
| `columns` (fixed, growing, hashed), `hash_seed` | no: an index would mean another column |
| `features` (`input.features` and `input.path`; None for rows of msgpack) | no: a field would be another feature |
| `d` | up, when columns are fixed; never when hashed (the column is the hash modulo d) |
| `d_max` | any value that the state's `d` still fits under |
| all else (`ell`, `method`, `seed`, ...) | yes |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sfd_stream.state.steps import Refused
from sfd_stream.wire.features import differences

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIXED = ("columns", "hash_seed")


def check_parameters(stored: Mapping[str, Any], wanted: Mapping[str, Any], *, where: str) -> Refused | None:
    """Why the state can't continue under `wanted`; None if it can. `where`: topic/partition, for messages."""
    for name in _FIXED:
        if stored.get(name) != wanted.get(name):
            return _refuse(name, stored.get(name), wanted.get(name), where)
    if stored.get("features") != wanted.get("features"):
        return _refuse_features(stored.get("features"), wanted.get("features"), where)
    columns, old, new = stored.get("columns"), stored.get("d"), wanted.get("d")
    if columns == "growing":
        limit = wanted.get("d_max")
        if old is not None and limit is not None and limit < old:
            return _refuse("d_max", old, limit, where)
    elif old is not None and new is not None and (new < old or (columns == "hashed" and new != old)):
        return _refuse("d", old, new, where)
    return None


def _refuse_features(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None, where: str) -> Refused:
    return Refused(
        f"the checkpoint of {where} was made with other features: {differences(old, new)}",
        f'set input.features back, or start again by "sfd-stream checkpoint reset {where} --to earliest"',
    )


def _refuse(name: str, old: Any, new: Any, where: str) -> Refused:
    return Refused(
        f"the checkpoint of {where} was made with {name} = {old!r} and the settings say {new!r}: "
        "its columns would change their meaning",
        f'set {name} back, or start again by "sfd-stream checkpoint reset {where} --to earliest"',
    )
