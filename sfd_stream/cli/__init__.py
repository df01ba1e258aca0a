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
    arguments = [argument for argument in given if argument != "--debug"]  # wherever it stands
    if os.getpid() == 1:
        # The kernel drops a signal for PID 1 that has no handler: without one, a container told to stop while it
        # starts would last out its whole grace. `run` puts its own in place when there is something to save.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    from sfd_stream.cli.app import run

    try:
        return run(arguments)
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the boundary: nothing may pass
        return _report(error, debug=len(arguments) < len(given))


def _report(error: BaseException, *, debug: bool) -> int:
    """Say on standard error what happened, and give the exit code that it stands for."""
    from sfd_stream.config.secrets import mask_text

    if debug:
        import traceback

        sys.stderr.write(mask_text("".join(traceback.format_exception(error))))
    if isinstance(error, KeyboardInterrupt):
        sys.stderr.write("interrupted\n")
        return _INTERRUPTED
    if isinstance(error, SfdError):
        sys.stderr.write(f"error: {mask_text(str(error))}\n")
        return error.exit_code
    hint = "" if debug else '; "sfd-stream --debug ..." shows where, please report it'
    sys.stderr.write(f"error: unexpected {type(error).__name__}: {mask_text(str(error))}{hint}\n")
    return _UNEXPECTED
