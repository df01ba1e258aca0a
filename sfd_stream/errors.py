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
    │   └── BrokerUnavailableError  no answer within the time limit                   exit 5
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
    """A message that is not rows. `reason` is a short word from a fixed set, fit for a metric's label.

    `words` says what is wrong without anything of the message's content, which is in `excerpt` alone.
    """

    def __init__(self, words: str, *, reason: str = "malformed", excerpt: str = "") -> None:
        super().__init__(f"{words} {excerpt}" if excerpt else words)
        self.words = words
        self.reason = reason


class FormatError(SfdError):
    """Bytes that should be a checkpoint, a snapshot or a saved sketch, and are not."""

    exit_code = 3


class ChecksumError(FormatError):
    """The bytes are damaged: their checksum does not match."""


class NewerFormatError(FormatError):
    """The bytes were written by a newer version of this program."""


class RefusedStateError(SfdError):
    """A state that must not be used as it is; the message says why and what to do."""

    exit_code = 3


class NoSnapshotError(RefusedStateError):
    """The topic has no snapshot (of that group), or none yet."""


class UnmergeableError(RefusedStateError):
    """Snapshots that can't be merged: their columns differ in meaning, or their rows would count twice."""


class TooManyBadMessagesError(SfdError):
    """More messages were bad than the settings allow."""

    exit_code = 4


class BrokerRefusedError(SfdError):
    """The broker refused a request for good, or was unavailable for longer than the settings allow."""

    exit_code = 5


class BrokerUnavailableError(BrokerRefusedError):
    """No broker answered within the time limit; it may answer later."""


class FencedError(SfdError):
    """Another worker owns the partition now."""


class StoreError(SfdError):
    """The checkpoint store failed."""

    exit_code = 5


class StoreUnavailableError(StoreError):
    """The store did not answer; a retry may succeed."""


class StoreRefusedError(StoreError):
    """The store refused the request, and a retry will not help: no rights, or no such bucket."""


class ObjectExistsError(StoreError):
    """An object with this key exists already."""


class ObjectMissingError(StoreError):
    """No object has this key."""
