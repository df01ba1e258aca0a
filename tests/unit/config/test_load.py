"""Laws of the settings: the order of sources, every mistake at once and in its place, nothing unchecked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from sfd_stream.config import load, load_some
from sfd_stream.config.load import KEYS, load_http
from sfd_stream.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = """\
kafka:
  bootstrap.servers: localhost:9092
  group.id: g
input:
  topic: rows
sketch:
  d: 1000
checkpoint:
  url: s3://bucket/prefix
"""
NO_KAFKA = GOOD[GOOD.index("input:") :]


def written(folder: Path, text: str = GOOD) -> Path:
    file = folder / "settings.yaml"
    file.write_text(text)
    return file


def problems(folder: Path, text: str = GOOD, environ: dict[str, str] | None = None, *overrides: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(written(folder, text), environ=environ or {}, overrides=overrides)
    return [line.replace(f"{folder}/", "") for line in caught.value.problems]


def test_flags_win_over_the_environment_over_the_file_over_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD + "snapshot: {topic: s}\nworker: {batch_records: 7}\n")
    environ = {"SFD_WORKER__BATCH_RECORDS": "8", "SFD_SKETCH__D": "500", "SFD_CHECKPOINT__KEEP": "9"}
    effective = load(file, environ=environ, overrides=["sketch.d=200", "checkpoint.keep=10", "checkpoint.keep=11"])
    settings = effective.settings
    assert (settings.worker.batch_records, settings.sketch.d, settings.checkpoint.keep) == (8, 200, 11)
    assert settings.sketch.ell == 50
    assert effective.origin("worker.batch_records") == "SFD_WORKER__BATCH_RECORDS"
    assert effective.origin("sketch.d") == "--set"
    assert effective.origin("input.topic") == f"{file}:5"
    assert effective.origin("snapshot.topic") == f"{file}:10"
    assert effective.origin("sketch.ell") == "default"


def test_unknown_keys_name_the_nearest_right_key_in_the_spelling_of_their_source(tmp_path: Path) -> None:
    found = problems(tmp_path, GOOD + "dead_leters: {topic: x}\n", {"SFD_SKETCH__EL": "5"}, "input.colums=fixed")
    assert found == [
        "dead_leters.topic is not a setting; did you mean dead_letters.topic? (settings.yaml:10)",
        "SFD_SKETCH__EL is not a setting; did you mean SFD_SKETCH__ELL?",
        "input.colums is not a setting; did you mean input.columns? (--set)",
    ]


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("sketch.foo=1", 'see "sfd-stream config show"'),
        ("log.x=1", 'see "sfd-stream config show"'),
        ("checkpoint.size=1", 'see "sfd-stream config show"'),
        ("nothing.like_it=1", 'see "sfd-stream config show"'),
        ("sketch.el=1", "did you mean sketch.ell?"),
        ("snapshot.evry_s=1", "did you mean snapshot.every_s?"),
        ("checkpoint.uri=x", "did you mean checkpoint.url?"),
        ("deadletters.max_shares=1", "did you mean dead_letters.max_share?"),
        ("output.ell=1", "did you mean sketch.ell or merge.ell?"),
        ("kafak.group.id=g", "did you mean kafka.group.id?"),
    ],
)
def test_only_what_is_near_is_suggested(given: str, hint: str, tmp_path: Path) -> None:
    key = given.partition("=")[0]
    assert problems(tmp_path, GOOD, {}, given) == [f"{key} is not a setting; {hint} (--set)"]


@pytest.mark.parametrize("broken", ["kafka: [\n x: 'a\n", "- kafka\n- input\n", "just words\n", "\x00"])
def test_a_file_that_cannot_be_read_is_the_one_thing_that_is_wrong(broken: str, tmp_path: Path) -> None:
    """Everything else would only be missing because of it."""
    file = tmp_path / "settings.yaml"
    file.write_text(broken)
    reads: list[Callable[[], object]] = [
        lambda: load(file, environ={}, overrides=["sketch.foo=1"]),
        lambda: load_some(file, environ={}, sections=["input"]),
        lambda: load_http(file, environ={}),
    ]
    for read in reads:
        with pytest.raises(SettingsError) as caught:
            read()
        assert len(caught.value.problems) == 1
        assert str(caught.value) == caught.value.problems[0]
        assert "settings.yaml" in str(caught.value)
        assert "is required" not in str(caught.value)


def test_a_missing_file_is_the_one_thing_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path / "nope.yaml", environ={})
    words = "No such file or directory; give the path of a readable file to --config"
    assert str(caught.value) == f"{tmp_path}/nope.yaml: {words}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (GOOD.replace("topic: rows", "topic: [rows]"), ["input.topic: must be a single value (settings.yaml:{})"]),
        ("kafka: 5\n" + NO_KAFKA, ["kafka: must hold `key: value` lines (settings.yaml:{})"]),
        (
            "kafka: {group.id: g, bootstrap: {servers: h}}\n" + NO_KAFKA,
            ["kafka.bootstrap: write the whole name as one key, like ssl.ca.location (settings.yaml:{})"],
        ),
    ],
)
def test_what_was_written_wrongly_is_not_missing_besides(text: str, expected: list[str], tmp_path: Path) -> None:
    found = [re.sub(r":\d+\)", ":{})", line) for line in problems(tmp_path, text)]
    assert found == expected


def test_a_right_key_in_a_wrong_section_is_found(tmp_path: Path) -> None:
    assert problems(tmp_path, GOOD, {}, "output.half_life_rows=5") == [
        "output.half_life_rows is not a setting; did you mean sketch.half_life_rows? (--set)"
    ]


def test_all_mistakes_are_listed_at_once_one_line_each_with_their_places(tmp_path: Path) -> None:
    text = GOOD.replace("d: 1000", "d: 1000\n  ell: 0\n  method: fussed") + "worker: {batch_records: yes}\n"
    found = problems(
        tmp_path,
        text,
        {"SFD_HTTP__PORT": "70000"},
        "checkpoint.every_s=-1",
        "log.level",
        "snapshot.every_s=5",
    )
    assert found == [
        "--set log.level: write it as --set section.key=value",
        "sketch.ell must be at least 1, not 0 (settings.yaml:8)",
        (
            "sketch.method must be one of fused, paper or sparse-shrink, not 'fussed'; did you mean fused?"
            " (settings.yaml:9)"
        ),
        "checkpoint.every_s must be more than 0.0, not '-1' (--set)",
        "http.port must be at most 65535, not '70000' (SFD_HTTP__PORT)",
        "worker.batch_records must not be true or false (settings.yaml:12)",
        "snapshot.every_s does nothing without snapshot.topic; set that too (--set)",
    ]


def test_what_is_required_is_asked_for_all_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, environ={})
    asked = [line.split(" ")[0] for line in caught.value.problems]
    assert asked == ["input.topic", "checkpoint.url", "kafka.bootstrap.servers", "kafka.group.id", "sketch.d"]
    assert str(caught.value).startswith("5 settings are wrong:\n  input.topic is required")


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sketch.d=49", "sketch.ell must be at most sketch.d, which is 49"),
        ("sketch.d=null", "sketch.d is required when input.columns is fixed"),
        ("snapshot.topic=rows", "snapshot.topic must be another topic than input.topic"),
        ("dead_letters.topic=rows", "dead_letters.topic must be another topic than input.topic"),
        ("input.topic=a/b", "input.topic must be a Kafka topic's name"),
        ("checkpoint.url=ftp://x", "checkpoint.url must start with file://, s3://, gs://, az://, memory://"),
        ("checkpoint.url=file://relative/path", "checkpoint.url must have an absolute path"),
        ("checkpoint.url=s3:///prefix", "checkpoint.url must name a bucket or container"),
        ("snapshot.inline_max_bytes=2MB", "snapshot.inline_max_bytes does nothing without snapshot.topic"),
        ("checkpoint.revoke_budget_s=300", "checkpoint.revoke_budget_s must be below kafka.max.poll"),
        ("sketch.buffer_max_bytes=3GiB", "sketch.buffer_max_bytes must be at most worker.memory_max_bytes"),
        ("sketch.buffer_max_bytes=12 parsecs", "sketch.buffer_max_bytes must be a number of bytes"),
        ("sketch.failure_probability=nan", "sketch.failure_probability must be"),
        ("dead_letters.max_share=0", "dead_letters.max_share must be more than 0"),
        ("kafka.enable.auto.commit=false", "kafka.enable.auto.commit can't be set: offsets are"),
        ("kafka.auto.offset.reset=latest", "kafka.auto.offset.reset can't be set: a partition"),
        ("kafka.bootstrap.server=h:1", "kafka.bootstrap.server is not a librdkafka property; did you mean"),
        ("kafka.max.poll.interval.ms=-5", "kafka.max.poll.interval.ms must be in 1..86400000"),
        ("kafka.security.protocol=tls", "kafka.security.protocol has a value that librdkafka does not accept"),
        ("kafka.error_cb=print", "kafka.error_cb can't be set: it takes a function"),
        ("kafka.group.id=", "kafka.group.id is required"),
        ("checkpoint.options=x", "checkpoint.options takes one option at a time"),
    ],
)  # fmt: skip
def test_each_rule_is_told_in_its_own_words(tmp_path: Path, override: str, line: str) -> None:
    found = problems(tmp_path, GOOD, {}, override)
    assert found[0].startswith(line), found
    assert len(found) <= 2


def test_growing_columns_need_no_width_and_may_be_narrower_than_the_sketch(tmp_path: Path) -> None:
    for width in ("null", "3"):
        load(written(tmp_path), environ={}, overrides=["input.columns=growing", f"sketch.d={width}"])
    assert problems(tmp_path, GOOD, {}, "input.columns=growing", "input.d_max=999")[0].startswith(
        "sketch.d must be at most input.d_max, which is 999"
    )


def test_snapshots_must_be_due_some_time_and_fit_a_message(tmp_path: Path) -> None:
    base = ("snapshot.topic=s",)
    assert "must not both be null" in problems(tmp_path, GOOD, {}, *base, "snapshot.every_s=null")[0]
    load(written(tmp_path), environ={}, overrides=[*base, "snapshot.every_s=null", "snapshot.every_rows=5"])
    assert (
        "kafka.message.max.bytes, which is 1000000"
        in problems(tmp_path, GOOD, {}, *base, "snapshot.inline_max_bytes=1MiB")[0]
    )
    roomy = [*base, "snapshot.inline_max_bytes=1MiB", "kafka.message.max.bytes=2000000"]
    load(written(tmp_path), environ={}, overrides=roomy)


def test_every_key_can_be_set_from_every_source_by_its_own_name(tmp_path: Path) -> None:
    for key in KEYS:
        if key == "checkpoint.options":
            continue
        name = "SFD_" + key.upper().replace(".", "__")
        for environ, overrides in (({name: "?"}, ()), ({}, (f"{key}=?",))):
            try:
                load(written(tmp_path), environ=environ, overrides=overrides)
            except SettingsError as error:
                assert "is not a setting" not in str(error)  # noqa: PT017 - a text may be right, a number is not


def test_a_command_that_only_needs_kafka_is_not_asked_for_more(tmp_path: Path) -> None:
    found = load_some(None, environ={"SFD_KAFKA__BOOTSTRAP_SERVERS": "h:1"})
    assert (dict(found.kafka), found.given.get("input.topic")) == ({"bootstrap.servers": "h:1"}, None)
    assert load_some(written(tmp_path), environ={}).given["input.topic"] == "rows"
    with pytest.raises(SettingsError, match=r"did you mean kafka\.client\.id"):
        load_some(None, environ={}, overrides=["kafka.cliend.id=x"])
