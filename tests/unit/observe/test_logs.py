"""Laws of the log: no secret, no flood, one form for all who log."""

from __future__ import annotations

import io
import json
import logging
import warnings
from typing import Any, NoReturn

import pytest

from sfd_stream.observe.logs import (
    FLOOD_EVENTS,
    FLOOD_INTERVAL_S,
    FloodLimit,
    Format,
    Logs,
    configure,
    get_logger,
)

SECRET = "hunter2-hunter2"


pytestmark = pytest.mark.usefixtures("logging_restored")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def begin(form: Format = "json", stream: io.StringIO | None = None, **more: Any) -> tuple[io.StringIO, Clock, Logs]:
    stream, clock = stream or io.StringIO(), Clock()
    logs = configure(form=form, stream=stream, clock=clock, secrets=frozenset({SECRET}), **more)
    return stream, clock, logs


def refuse_login(password: str) -> NoReturn:
    raise RuntimeError(f"login failed for {password}")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """What the test logged. A Kafka client of an earlier test may still log that its broker is gone: left out."""
    every = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in every if line.get("logger") != "sfd_stream.kafka"]


def test_lines_are_json_when_not_on_a_terminal_and_text_on_one() -> None:
    stream, _, _ = begin("auto")
    get_logger(partition=3, epoch=7).bind(number=41).info("checkpoint written", seconds=0.5)
    [line] = lines(stream)
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "checkpoint written",
        "level": "info",
        "logger": "sfd_stream",
        "partition": 3,
        "epoch": 7,
        "number": 41,
        "seconds": 0.5,
    }
    terminal, _, _ = begin("auto", Terminal())
    get_logger().info("hello")
    assert "hello" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


def test_lines_below_the_level_are_not_written() -> None:
    stream, _, _ = begin(level="warning")
    get_logger().info("no")
    logging.getLogger("lib").info("no")
    get_logger().warning("yes")
    assert [line["event"] for line in lines(stream)] == ["yes"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_secret_is_in_no_line_whatever_brought_it(form: Format) -> None:
    stream, _, _ = begin(form)
    log = get_logger(settings={"sasl.password": SECRET})
    told = f"event {SECRET}"
    log.info(told, url=f"s3://a:{SECRET}x@b", nested=[{"token": SECRET}, SECRET], password=5)
    logging.getLogger("lib").warning("logging in with %s", SECRET)
    try:
        refuse_login(SECRET)
    except RuntimeError as error:
        log.exception("failed", error=error)
        logging.getLogger("lib").exception("failed too")
    assert SECRET not in stream.getvalue()
    assert stream.getvalue().count("login failed for ***") >= 2


def test_warnings_and_other_libraries_lines_come_in_the_same_form() -> None:
    stream, _, _ = begin()
    logging.getLogger("librdkafka").error("broker %d is down", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
    first, second = lines(stream)
    assert (first["event"], first["level"], first["logger"]) == ("broker 3 is down", "error", "librdkafka")
    assert "old thing" in second["event"]
    assert second["level"] == "warning"


def test_a_flood_becomes_one_line_with_a_count() -> None:
    stream, clock, _ = begin()
    log = get_logger()
    for number in range(FLOOD_EVENTS + 25):
        log.warning("broker away", number=number)
        logging.getLogger("lib").warning("retry %d", number)
    log.warning("another event")
    assert len(lines(stream)) == 2 * FLOOD_EVENTS + 1
    clock.now = FLOOD_INTERVAL_S
    log.warning("broker away")
    assert lines(stream)[-1]["held_back"] == 25
    log.warning("broker away")
    assert "held_back" not in lines(stream)[-1]


def test_what_is_held_back_is_told_at_the_end_even_if_it_never_comes_again() -> None:
    stream, _, logs = begin()
    for _ in range(FLOOD_EVENTS + 3):
        get_logger().info("same")
    logs.flush()
    last = lines(stream)[-1]
    assert (last["event"], last["held_back_event"], last["held_back"]) == ("repeated log events suppressed", "same", 3)
    before = stream.getvalue()
    logs.flush()
    assert stream.getvalue() == before


def test_a_suppressed_line_of_another_library_is_reported_with_its_text_and_not_its_template() -> None:
    stream, _, logs = begin()
    for number in range(FLOOD_EVENTS + 3):
        logging.getLogger("librdkafka").error("%s [%s] %s", "FAIL", "consumer-1", f"attempt {number}, {SECRET}")
    logs.flush()
    last = lines(stream)[-1]
    assert last["held_back"] == 3
    assert last["held_back_event"].startswith(f"FAIL [consumer-1] attempt {FLOOD_EVENTS + 2}")
    assert SECRET not in stream.getvalue()


def test_at_the_end_every_kind_that_was_held_back_is_told_however_many_there_are() -> None:
    stream, _, logs = begin()
    kinds = [f"event {number}" for number in range(2 * FLOOD_EVENTS)]
    with logs:
        for _ in range(FLOOD_EVENTS + 1):
            for kind in kinds:
                get_logger().info(kind)
    told = [line["held_back_event"] for line in lines(stream) if line["event"] == "repeated log events suppressed"]
    assert told == kinds


def test_debug_lines_are_never_held_back() -> None:
    stream, _, _ = begin(level="debug")
    for _ in range(3 * FLOOD_EVENTS):
        get_logger().debug("checkpoint")
    assert len(lines(stream)) == 3 * FLOOD_EVENTS


def test_the_flood_limits_memory_is_bounded() -> None:
    limit = FloodLimit(most=1, interval_s=60, clock=Clock())
    for number in range(5_000):
        limit(None, "info", {"event": str(number)})
    assert len(limit._counts) <= 1_000


def test_setting_up_again_replaces_the_old_log() -> None:
    old, _, _ = begin()
    new, _, _ = begin()
    get_logger().info("once")
    logging.getLogger("lib").warning("once")
    assert old.getvalue() == ""
    assert len(lines(new)) == 2
