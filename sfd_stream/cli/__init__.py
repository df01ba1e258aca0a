"""The command line: one file a command; each parses, wires and prints, nothing else.

`main` is the boundary: what the world did wrong ends in one sentence and an exit code, never in a traceback,
unless --debug asks for it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from sfd_stream.errors import SfdError

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNEXPECTED = 1
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_own_process = arguments is None
    arguments = [argument for argument in given if argument != "--debug"]  # wherever it stands
    if is_own_process:
        _handle_early_signals(arguments)
    from sfd_stream.cli.app import run

    try:
        return run(arguments)
    except BrokenPipeError:
        # The reader of our output has closed it; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: nothing may pass
        return _report(error, debug=len(arguments) < len(given))


def _handle_early_signals(arguments: Sequence[str]) -> None:
    """Handlers for the first second, before the imports: nothing is there to save yet.

    A service that is stopped while it starts ends with 0, as it does later; `run` and `merge` install their own
    handlers when they have something to save. The kernel drops a signal for PID 1 that has no handler, so that in a
    container every command needs one.
    """
    if arguments[:1] == ["run"] or (arguments[:1] == ["merge"] and "--once" not in arguments):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    elif os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _report(error: BaseException, *, debug: bool) -> int:
    """Say on standard error what happened, and give the exit code that it stands for."""
    if debug:
        import traceback

        sys.stderr.write(_safe("".join(traceback.format_exception(error))))
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    if isinstance(error, SfdError):
        sys.stderr.write(f"error: {_safe(str(error))}\n")
        return error.exit_code
    hint = "" if debug else '; "sfd-stream --debug ..." shows where, please report it'
    sys.stderr.write(f"error: unexpected {type(error).__name__}: {_safe(str(error))}{hint}\n")
    return _UNEXPECTED


def _safe(text: str) -> str:
    """Without secrets, and without what a terminal would act on."""
    from sfd_stream.config.secrets import mask_text
    from sfd_stream.printable import printable_lines

    return printable_lines(mask_text(text))
