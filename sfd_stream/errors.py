"""Every error that the world can cause, by name.

    SfdError
    ├── SettingsError               the settings are wrong                            exit 2
    ├── RowDecodeError              one message is not rows: dead-lettered, counted   (the stream goes on)
    ├── FormatError                 bytes of ours that are not what they should be
    │   ├── ChecksumError           damaged
    │   └── NewerFormatError        written by a newer program
    ├── RefusedStateError           the state found must not be used                  exit 3
    │   ├── NoSnapshotError         the topic has no snapshot (yet)
    │   └── UnmergeableError        snapshots that do not add up to one sketch
    ├── TooManyBadMessagesError     past the configured share or run                  exit 4
    ├── BrokerRefusedError          rights, fatal errors, away for too long           exit 5
    ├── FencedError                 somebody else owns the partition now
    └── StoreError                  the checkpoint store
        ├── StoreUnavailableError   may pass: try again
        ├── StoreRefusedError       will not pass by waiting (rights, no such bucket)  exit 5
        ├── ObjectExistsError       create-if-absent met an object
        └── ObjectMissingError      no object under that key

Our own bugs are assertions, not errors of this tree.
"""

from __future__ import annotations


class SfdError(Exception):
    """The root: whatever the world did that we have a name for."""

    exit_code = 1


class SettingsError(SfdError):
    """`problems` has one line for each setting that is wrong, so that all can be mended at once."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class RowDecodeError(SfdError, ValueError):
    """A message that is not rows. `reason` is a short word from a fixed set, fit for a metric's label."""

    def __init__(self, message: str, *, reason: str = "malformed") -> None:
        super().__init__(message)
        self.reason = reason


class FormatError(SfdError):
    exit_code = 3


class ChecksumError(FormatError):
    pass


class NewerFormatError(FormatError):
    pass


class RefusedStateError(SfdError):
    exit_code = 3


class NoSnapshotError(RefusedStateError):
    pass


class UnmergeableError(RefusedStateError):
    pass


class TooManyBadMessagesError(SfdError):
    exit_code = 4


class BrokerRefusedError(SfdError):
    exit_code = 5


class FencedError(SfdError):
    pass


class StoreError(SfdError):
    exit_code = 5


class StoreUnavailableError(StoreError):
    pass


class StoreRefusedError(StoreError):
    pass


class ObjectExistsError(StoreError):
    pass


class ObjectMissingError(StoreError):
    pass
