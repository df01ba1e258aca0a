"""`help()` of every public name says something, and every example in it runs and prints what it says.

The examples of a class' methods go on from the example of the class. `localhost:9092` stands for a broker.
"""

from __future__ import annotations

import doctest
import inspect
from typing import TYPE_CHECKING, Any

import pytest

import sfd_stream
from sfd_stream import HashedColumns, SnapshotReader, SparseFrequentDirections
from tests.unit.reader.made import message, publish, snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.kafka_fixtures import BuiltIn

DAYS = [{"sun": 2, "sea": 1}] * 6 + [{"moon": 2, "star": 1}] * 3
"""What the examples of `Sketch` are of: those of `MergedSketch` are the same, so it must have the same rows."""


def members(kind: type) -> Iterator[tuple[str, Any, str]]:
    """Public methods and properties of our own, with their texts."""
    for name, found in inspect.getmembers(kind):
        home = inspect.getattr_static(kind, name)
        module = getattr(getattr(home, "fget", None) or found, "__module__", None) or ""
        ours = module.startswith("sfd_stream")
        if not name.startswith("_") and ours and (callable(found) or isinstance(home, property)):
            yield name, home, inspect.getdoc(found if callable(found) else home) or ""


@pytest.mark.parametrize("name", sfd_stream.__all__)
def test_help_is_empty_for_nothing(name: str) -> None:
    found = getattr(sfd_stream, name)
    text = found.__doc__ or ""
    assert text, name
    assert not text.startswith(f"{name}("), f"{name} has only the text that a dataclass or a named tuple makes"
    if inspect.isclass(found):
        assert [member for member, _, text in members(found) if not text] == []


@pytest.mark.parametrize("name", sfd_stream.__all__)
def test_every_function_class_and_method_has_an_example(name: str) -> None:
    found = getattr(sfd_stream, name)
    assert ">>>" in (found.__doc__ or "")
    if inspect.isclass(found):
        without = [
            member for member, home, text in members(found) if not isinstance(home, property) and ">>>" not in text
        ]
        assert without == []


@pytest.fixture
def bootstrap(built_in: BuiltIn) -> str:
    """A broker with a topic `sketches` that has a snapshot of `DAYS`."""
    model = SparseFrequentDirections(ell=4, features=HashedColumns(1024)).fit(DAYS)
    names = model.sketch().features.names  # type: ignore[union-attr]
    publish(built_in, "sketches", [message(snapshot(model.sketch(), columns="hashed", hash_seed=0, names=names))])
    return built_in.bootstrap


@pytest.mark.parametrize("name", sfd_stream.__all__)
def test_every_example_prints_what_it_says(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = getattr(sfd_stream, name)
    texts = {name: inspect.getdoc(found) or ""}
    if inspect.isclass(found):
        texts |= {f"{name}.{member}": text for member, _, text in members(found)}
    begun: dict[str, Any] = {}
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for where, text in texts.items():
        test = doctest.DocTestParser().get_doctest(text, dict(begun), where, None, None)
        for example in test.examples:
            if "localhost:9092" in example.source:
                example.source = example.source.replace("localhost:9092", request.getfixturevalue("bootstrap"))
        runner.run(test, out=said.append, clear_globs=False)
        begun = begun or test.globs
    for made in begun.values():
        if isinstance(made, SnapshotReader):
            made.close()
    assert not said, "".join(said)
    assert runner.tries
