"""Log lines: JSON where a machine reads them, text on a terminal; no secret ever, and no flood.

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
class _Seen:
    since_s: float
    passed: int = 0
    held_back: int = 0
    last: str = ""
    """The text of the last line that was suppressed."""


class FloodLimit:
    """Lets `most` lines of the same event pass in `interval_s`, and counts the others.

    The count is told by the first such line of a later interval (`held_back=...`), or by `drain`. The same
    event means the same level and text; what is bound or formatted into it does not matter. Debug lines are
    not limited: who asks for them wants them all.
    """

    def __init__(self, *, most: int, interval_s: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._interval_s = interval_s
        self._clock = clock
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._lock = threading.Lock()

    def __call__(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        if method == "debug" or _HELD_BACK in event:
            return event
        with self._lock:
            return self._judge((method, _template(event)), event)

    def _judge(self, key: tuple[str, str], event: EventDict) -> EventDict:
        seen = self._seen.get(key)
        if seen is None or self._clock() - seen.since_s >= self._interval_s:
            return self._begin(key, seen, event)
        if seen.passed < self._most:
            seen.passed += 1
            return event
        seen.held_back += 1
        seen.last = str(event.get("event"))  # of another library's line, with its arguments put in
        raise structlog.DropEvent

    def drain(self) -> list[tuple[str, str, int]]:
        """(level, text of the last one, count) of the lines that were suppressed and not reported yet; forgets them."""
        with self._lock:
            told = [(level, seen.last, seen.held_back) for (level, _), seen in self._seen.items() if seen.held_back]
            for seen in self._seen.values():
                seen.held_back = 0
        return told

    def _begin(self, key: tuple[str, str], before: _Seen | None, event: EventDict) -> EventDict:
        self._seen.pop(key, None)
        if len(self._seen) >= _FLOOD_KINDS_MAX:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = _Seen(self._clock(), passed=1)
        if before is not None and before.held_back:
            event["held_back"] = before.held_back
        return event


class _Labels:
    """What every line of this process is about, whichever thread and library it comes from."""

    def __init__(self, labels: Mapping[str, Any]) -> None:
        self._labels = dict(labels)

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        for name, value in self._labels.items():
            event.setdefault(name, value)
        return event


class Redaction:
    """Masks secrets by name, by the form of a text, and the `known` ones wherever they turn up."""

    def __init__(self, known: frozenset[str] = frozenset()) -> None:
        self._known = known

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        return {name: self._shown(name, value) for name, value in event.items()}

    def _shown(self, name: str, value: Any) -> Any:
        if name.startswith("_") or value is None or isinstance(value, bool | int | float):
            return mask(name, value) if not name.startswith("_") else value  # _record belongs to structlog
        if isinstance(value, str | list | tuple | Mapping):
            return mask(name, value, self._known)
        return mask_text(str(value), self._known)  # an exception, a path, a settings section


class Logs:
    """The configured log. While it is entered, suppressed events are counted, and logged each minute and at the end."""

    def __init__(self, flood: FloodLimit) -> None:
        self._flood = flood
        self._over = threading.Event()
        self._teller = threading.Thread(target=self._tell, name="log", daemon=True)

    def __enter__(self) -> Self:
        self._teller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.flush()

    def flush(self) -> None:
        """Logs how many lines were suppressed so far."""
        for level, text, count in self._flood.drain():
            get_logger().log(_LEVELS[level], "repeated log events suppressed", **{_HELD_BACK: text, "held_back": count})

    def _tell(self) -> None:
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
    """Set up all logging of this process.

    `secrets` are `Settings.secret_values()`. `labels` go with every line, `json_labels` with every line of JSON: there
    the lines of many processes are kept together.
    """
    terminal = (stream or sys.stderr).isatty()
    as_text = form == "text" or (form == "auto" and terminal)
    flood = FloodLimit(most=FLOOD_EVENTS, interval_s=FLOOD_INTERVAL_S, clock=clock)
    shown = dict(labels or {}) if as_text else {**(json_labels or {}), **(labels or {})}
    shared = [_Labels(shown).__call__, *_shared_processors(flood)]
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
            Redaction(secrets),
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
            # Standard error is looked up for each line: it may have been redirected since.
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
    """Names and values without what a terminal would act on. JSON has escapes of its own."""
    shown: EventDict = {}
    for name, value in event.items():
        safe = printable_lines if name in _SEVERAL_LINES else printable
        shown[printable(name)] = safe(value) if isinstance(value, str) else value
    return shown


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
    """An event of ours is a fixed text; one of another library's is its text before arguments are put in."""
    record = event.get("_record")
    return str(record.msg if isinstance(record, logging.LogRecord) else event.get("event"))
