"""Log lines: text on a terminal, JSON elsewhere, without secrets, and limited in rate.

    our loggers ──────┐
    logging (others) ─┼─► context ─► flood limit ─► level, time ─► redaction ─► JSON | text ─► standard error
    warnings ─────────┘

Bind what a line is about: `get_logger().bind(topic="rows", partition=3, epoch=7, number=41)`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, Protocol, Self, TextIO, cast

import structlog

from sfd_stream.config.secrets import mask, mask_text
from sfd_stream.printable import printable, printable_lines

EventDict = MutableMapping[str, Any]
Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "json", "text"]

FLOOD_EVENTS: Final = 10
FLOOD_INTERVAL_S: Final = 60.0
_HELD_BACK: Final = "held_back_event"
# At most this many different events are counted at once; the oldest are forgotten first.
_FLOOD_KINDS_MAX: Final = 1_000


class Log(Protocol):
    """The part of a structlog logger that is used."""

    def bind(self, **context: Any) -> Self: ...
    def info(self, event: str, **context: Any) -> Any: ...
    def warning(self, event: str, **context: Any) -> Any: ...
    def debug(self, event: str, **context: Any) -> Any: ...


@dataclass(slots=True)
class _EventCount:
    since_s: float
    passed: int = 0
    held_back: int = 0
    last: str = ""
    """The text of the last line that was suppressed."""


class FloodLimit:
    """Lets `most` lines of the same event pass in `interval_s`, and counts the others.

    The first such line of a later interval (`held_back=...`), or `drain`, reports the count. Events are the same if
    level and text are equal; bound and formatted values do not matter. Debug lines are not limited.
    """

    def __init__(self, *, most: int, interval_s: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._interval_s = interval_s
        self._clock = clock
        self._counts: dict[tuple[str, str], _EventCount] = {}
        self._lock = threading.Lock()

    def __call__(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        if method == "debug" or _HELD_BACK in event:
            return event
        with self._lock:
            return self._judge((method, _template(event)), event)

    def _judge(self, key: tuple[str, str], event: EventDict) -> EventDict:
        count = self._counts.get(key)
        if count is None or self._clock() - count.since_s >= self._interval_s:
            return self._begin(key, count, event)
        if count.passed < self._most:
            count.passed += 1
            return event
        count.held_back += 1
        count.last = str(event.get("event"))  # of another library's line, after formatting
        raise structlog.DropEvent

    def drain(self) -> list[tuple[str, str, int]]:
        """(level, text of the last one, count) of the lines that were suppressed and not reported yet; forgets them."""
        with self._lock:
            reported = [
                (level, count.last, count.held_back) for (level, _), count in self._counts.items() if count.held_back
            ]
            for count in self._counts.values():
                count.held_back = 0
        return reported

    def _begin(self, key: tuple[str, str], before: _EventCount | None, event: EventDict) -> EventDict:
        self._counts.pop(key, None)
        if len(self._counts) >= _FLOOD_KINDS_MAX:
            self._counts.pop(next(iter(self._counts)))
        self._counts[key] = _EventCount(self._clock(), passed=1)
        if before is not None and before.held_back:
            event["held_back"] = before.held_back
        return event


def _add_labels(labels: Mapping[str, Any], _logger: Any, _method: str, event: EventDict) -> EventDict:
    """Adds the labels of this process to every line, from any thread and library."""
    for name, value in labels.items():
        event.setdefault(name, value)
    return event


def _redact(known: frozenset[str], _logger: Any, _method: str, event: EventDict) -> EventDict:
    """Masks secrets by name and by the form of a text, and masks the `known` ones everywhere."""
    return {name: _masked(name, value, known) for name, value in event.items()}


def _masked(name: str, value: Any, known: frozenset[str]) -> Any:
    if name.startswith("_"):
        return value  # _record belongs to structlog
    if value is None or isinstance(value, bool | int | float | str | list | tuple | Mapping):
        return mask(name, value, known)
    return mask_text(str(value), known)  # an exception, a path, a settings section


class Logs:
    """The configured log. In its `with` block, the count of suppressed events is logged each minute and at the end."""

    def __init__(self, flood: FloodLimit) -> None:
        self._flood = flood
        self._over = threading.Event()
        self._reporter = threading.Thread(target=self._report, name="log", daemon=True)

    def __enter__(self) -> Self:
        self._reporter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.flush()

    def flush(self) -> None:
        """Logs how many lines were suppressed so far."""
        for level, text, count in self._flood.drain():
            get_logger().log(_LEVELS[level], "repeated log events suppressed", **{_HELD_BACK: text, "held_back": count})

    def _report(self) -> None:
        while not self._over.wait(FLOOD_INTERVAL_S):
            self.flush()


_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}


def configure(
    *,
    level: Level = "info",
    form: Format = "auto",
    secrets: frozenset[str] = frozenset(),
    labels: Mapping[str, Any] | None = None,
    json_labels: Mapping[str, Any] | None = None,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Logs:
    """Sets up all logging of this process.

    `secrets` are `Settings.secret_values()`. `labels` are added to every line, `json_labels` to every JSON line: JSON
    lines of many processes are stored together.
    """
    terminal = (stream or sys.stderr).isatty()
    as_text = form == "text" or (form == "auto" and terminal)
    flood = FloodLimit(most=FLOOD_EVENTS, interval_s=FLOOD_INTERVAL_S, clock=clock)
    bound = dict(labels or {}) if as_text else {**(json_labels or {}), **(labels or {})}
    shared: list[structlog.typing.Processor] = [partial(_add_labels, bound), *_shared_processors(flood)]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    json_lines = structlog.processors.JSONRenderer(default=str)
    rendering = [_printable, _text_renderer(colors=terminal)] if as_text else [json_lines]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            partial(_redact, secrets),
            *rendering,
        ],
    )
    _take_over_logging(_Handler(stream, formatter), _LEVELS[level])
    return Logs(flood)


def get_logger(**context: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger with this context bound."""
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger("sfd_stream", **context))


class _Handler(logging.Handler):
    """Writes lines, except those of other libraries that the flood limit drops."""

    def __init__(self, stream: TextIO | None, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            # sys.stderr is read for each line: it may have been redirected.
            stream = self._stream or sys.stderr
            stream.write(self.format(record) + "\n")
            stream.flush()
        except structlog.DropEvent:
            return
        except Exception:  # noqa: BLE001 - logging must not end the program; logging's own rule
            self.handleError(record)


def _shared_processors(flood: FloodLimit) -> list[structlog.typing.Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        flood,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
    ]


def _printable(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escapes the control characters in names and values. JSON escapes them itself."""
    escaped: EventDict = {}
    for name, value in event.items():
        safe = printable_lines if name in _SEVERAL_LINES else printable
        escaped[printable(name)] = safe(value) if isinstance(value, str) else value
    return escaped


_SEVERAL_LINES: Final = frozenset({"exception", "stack"})


def _text_renderer(*, colors: bool) -> structlog.typing.Processor:
    # The default shows local variables in tracebacks, and so secrets.
    return structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, timestamp_key="time"
    )


def _take_over_logging(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        if isinstance(old, _Handler):
            root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(capture=True)


def _template(event: EventDict) -> str:
    """The fixed text of an event. For a line of another library, it is the text before formatting."""
    record = event.get("_record")
    return str(record.msg if isinstance(record, logging.LogRecord) else event.get("event"))
