"""The command line, one file per command. A command parses, builds the parts, calls and prints.

`main` is the boundary: every error ends in one sentence and an exit code. A traceback is printed only with --debug.
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
        # The reader of our output has closed it. Without this, Python reports an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: nothing may pass
        return _report(error, debug=len(arguments) < len(given))


def _handle_early_signals(arguments: Sequence[str]) -> None:
    """Installs handlers for the first second, before the imports, when there is nothing to save yet.

    A service that is stopped while it starts exits with 0, as it does later. `run` and `merge` install their own
    handlers when they have something to save. The kernel drops a signal for PID 1 without a handler, so in a container
    every command needs one.
    """
    if arguments[:1] == ["run"] or (arguments[:1] == ["merge"] and "--once" not in arguments):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
    elif os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def _report(error: BaseException, *, debug: bool) -> int:
    """Prints the error on standard error and returns its exit code."""
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
    """The text without secrets and without control characters."""
    from sfd_stream.config.secrets import mask_text
    from sfd_stream.printable import printable_lines

    return printable_lines(mask_text(text))
