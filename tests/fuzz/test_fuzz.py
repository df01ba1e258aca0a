"""Every decoder takes what once made it fail, and some hundred fresh inputs; the fuzzer finds planted faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS
from tests.fuzz.engine import Fuzzer, shortened
from tests.fuzz.targets import targets

TARGETS = targets()
KEPT = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_failed_is_decoded_or_refused(path: Path) -> None:
    TARGETS[path.parent.name].run(path.read_bytes())


@pytest.mark.parametrize("name", list(TARGETS))
def test_changed_inputs_are_decoded_or_refused(name: str) -> None:
    fuzzer = Fuzzer(TARGETS[name].run, list(TARGETS[name].inputs), random.Random(1))
    for _ in range(150):
        failing = fuzzer.step()
        assert failing is None, f"put these bytes into {CORPUS.name}/{name}: {failing!r}"


def test_the_fuzzer_finds_a_fault_and_shortens_the_input() -> None:
    def faulty(data: bytes) -> None:
        if b"\x80" in data:
            raise KeyError("planted")

    fuzzer = Fuzzer(faulty, [b"abc"], random.Random(1))
    found = next(failing for _ in range(10_000) if (failing := fuzzer.step()) is not None)
    assert found == b"\x80"
    assert shortened(faulty, b"xx\x80yy", KeyError) == b"\x80"
