"""All errors that the environment can cause.

    SfdError
    ├── SettingsError               the settings are wrong                            exit 2
    ├── RowDecodeError              one message is not rows: dead-lettered, counted   (the stream goes on)
    ├── FormatError                 bytes that are not in our format
    │   ├── ChecksumError           damaged
    │   └── NewerFormatError        written by a newer program
    ├── RefusedStateError           the state found must not be used                  exit 3
    │   ├── NoSnapshotError         the topic has no snapshot (yet)
    │   └── UnmergeableError        snapshots that do not add up to one sketch
    ├── TooManyBadMessagesError     past the configured share or run                  exit 4
    ├── BrokerRefusedError          rights, fatal errors, unavailable for too long    exit 5
    │   └── BrokerUnavailableError  no answer within the time limit                   exit 5
    ├── FencedError                 another worker owns the partition now
    └── StoreError                  the checkpoint store
        ├── StoreUnavailableError   temporary: a retry may succeed
        ├── StoreRefusedError       permanent (rights, no such bucket)                exit 5
        ├── ObjectExistsError       create-if-absent found an object
        └── ObjectMissingError      no object has that key

Our own bugs are assertions, not errors of this tree.
"""

from __future__ import annotations


class SfdError(Exception):
    """The base class of all errors of this package that are not bugs.

    `exit_code` is the exit code of the command line.

    >>> from sfd_stream import SettingsError, SfdError, SnapshotReader
    >>> try:
    ...     SnapshotReader("localhost:9092", topic=5)
    ... except SfdError as error:
    ...     print(type(error).__name__, error.exit_code)
    SettingsError 2
    """

    exit_code = 1


class SettingsError(SfdError):
    """The settings are wrong. `problems` has one line for each wrong setting, so that all can be fixed at once.

    >>> from sfd_stream import SettingsError, SnapshotReader
    >>> try:
    ...     SnapshotReader("localhost:9092", topic=5)
    ... except SettingsError as error:
    ...     print(error.problems)
    ('topic must be a text, not int',)
    """

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class RowDecodeError(SfdError, ValueError):
    """A message that is not rows. `reason` is a short word from a fixed set, fit for a metric's label.

    `words` says what is wrong without anything of the message's content, which is in `excerpt` alone.

    `decode` collects these errors instead of raising them, so that the other messages are read:

    >>> from sfd_stream import FixedColumns, decode, encode_row
    >>> batch = decode([b"junk", encode_row([3], [1.0])], FixedColumns(10))
    >>> batch.bad
    ((0, RowDecodeError('not a msgpack map')),)
    """

    def __init__(self, words: str, *, reason: str = "malformed", excerpt: str = "") -> None:
        super().__init__(f"{words} {excerpt}" if excerpt else words)
        self.words = words
        self.reason = reason


class FormatError(SfdError):
    """Bytes that should be a checkpoint, a snapshot or a saved sketch, and are not.

    >>> from pathlib import Path
    >>> from sfd_stream import FormatError, Sketch
    >>> _ = Path("notes.txt").write_text("no sketch")
    >>> try:
    ...     Sketch.load("notes.txt")
    ... except FormatError as error:
    ...     print(str(error).partition(":")[0])
    notes.txt can't be loaded as a sketch
    """

    exit_code = 3


class ChecksumError(FormatError):
    """The bytes are damaged: their checksum does not match.

    >>> from pathlib import Path
    >>> from sfd_stream import ChecksumError, Sketch, SparseFrequentDirections
    >>> SparseFrequentDirections(ell=2).fit([[3.0, 4.0]]).sketch().save("day.sketch")
    >>> _ = Path("day.sketch").write_bytes(Path("day.sketch").read_bytes()[:-1] + b"x")
    >>> try:
    ...     Sketch.load("day.sketch")
    ... except ChecksumError:
    ...     print("damaged: copy it again")
    damaged: copy it again
    """


class NewerFormatError(FormatError):
    """The bytes were written by a newer version of this program. Nothing is changed; update the program.

    >>> from sfd_stream import FormatError, NewerFormatError
    >>> issubclass(NewerFormatError, FormatError), NewerFormatError.exit_code
    (True, 3)
    """


class RefusedStateError(SfdError):
    """A state that must not be used as it is. The message says why and what to do.

    >>> from sfd_stream import NoSnapshotError, RefusedStateError, UnmergeableError
    >>> issubclass(NoSnapshotError, RefusedStateError), issubclass(UnmergeableError, RefusedStateError)
    (True, True)
    """

    exit_code = 3


class NoSnapshotError(RefusedStateError):
    """The topic has no snapshot (of that group), or none yet.

    >>> from sfd_stream import NoSnapshotError, SnapshotReader
    >>> with SnapshotReader("localhost:9092", "sketches", group="nobody") as reader:
    ...     try:
    ...         reader.merged()
    ...     except NoSnapshotError:
    ...         print("no worker has published yet: try again later")
    no worker has published yet: try again later
    """


class UnmergeableError(RefusedStateError):
    """Snapshots that can't be merged: their columns differ in meaning, or their rows would count twice.

    >>> from sfd_stream import SnapshotReader, UnmergeableError
    >>> with SnapshotReader("localhost:9092", "sketches") as reader:
    ...     try:
    ...         rows = reader.merged().rows
    ...     except UnmergeableError as error:
    ...         print("merge them apart:", error)
    >>> rows
    9
    """


class TooManyBadMessagesError(SfdError):
    """More messages were bad than `dead_letters.max_share` or `dead_letters.max_consecutive` allow.

    >>> from sfd_stream import TooManyBadMessagesError
    >>> TooManyBadMessagesError.exit_code
    4
    """

    exit_code = 4


class BrokerRefusedError(SfdError):
    """The broker refused a request permanently, or was unavailable for longer than the settings allow.

    >>> from sfd_stream import BrokerRefusedError
    >>> BrokerRefusedError.exit_code
    5
    """

    exit_code = 5


class BrokerUnavailableError(BrokerRefusedError):
    """No broker answered within the time limit. It may answer later.

    >>> from sfd_stream import BrokerUnavailableError, SnapshotReader
    >>> with SnapshotReader("127.0.0.1:1", "sketches", timeout_s=0.1) as reader:
    ...     try:
    ...         reader.merged()
    ...     except BrokerUnavailableError as error:
    ...         print(str(error).partition(" in ")[0])
    127.0.0.1:1 did not answer
    """


class FencedError(SfdError):
    """Another worker owns the partition now. The worker releases it and continues with its others.

    >>> from sfd_stream import FencedError, SfdError
    >>> issubclass(FencedError, SfdError)
    True
    """


class StoreError(SfdError):
    """The checkpoint store failed.

    >>> from sfd_stream import SfdError, StoreError
    >>> issubclass(StoreError, SfdError), StoreError.exit_code
    (True, 5)
    """

    exit_code = 5


class StoreUnavailableError(StoreError):
    """The store did not answer; a retry may succeed.

    >>> from sfd_stream import StoreError, StoreUnavailableError
    >>> issubclass(StoreUnavailableError, StoreError), StoreUnavailableError.exit_code
    (True, 5)
    """


class StoreRefusedError(StoreError):
    """The store refused the request, and a retry will not help: no rights, or no such bucket.

    >>> from sfd_stream import StoreError, StoreRefusedError
    >>> issubclass(StoreRefusedError, StoreError), StoreRefusedError.exit_code
    (True, 5)
    """


class ObjectExistsError(StoreError):
    """An object with this key exists already.

    >>> from sfd_stream import StoreError, ObjectExistsError
    >>> issubclass(ObjectExistsError, StoreError), ObjectExistsError.exit_code
    (True, 5)
    """


class ObjectMissingError(StoreError):
    """No object has this key.

    >>> from sfd_stream import StoreError, ObjectMissingError
    >>> issubclass(ObjectMissingError, StoreError), ObjectMissingError.exit_code
    (True, 5)
    """
