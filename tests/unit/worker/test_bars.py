"""What keeps the core small enough to hold in mind, read off its syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from sfd_stream.state.policy import Backlog
from sfd_stream.worker.partitions import AFTER, OwnedPartition, Phase
from sfd_stream.worker.sketch_thread import Sketched
from tests.house import core, lines, way_of_a_row

PACKAGE = Path(__file__).parents[3] / "sfd_stream"
FILES = sorted(path for path in (*PACKAGE.glob("worker/*.py"), *PACKAGE.glob("loop/*.py")) if path.stem != "__init__")
PURE = [path for path in FILES if path.name != "runtime.py"]
FORBIDDEN = {"threading", "queue", "time", "random", "uuid", "asyncio", "multiprocessing", "os", "socket"}
FIELDS_MAX, FILES_MAX, LINES_MAX = 12, 13, 1_700
GROUPS_MAX, GROUP_FILES_MAX = 60, 25


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            yield (function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")), node


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.name)
def test_threads_clocks_and_randomness_come_in_as_arguments(path: Path) -> None:
    assert imported(tree_of(path)) & FORBIDDEN == set()


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.name)
def test_nothing_waits_for_another_thread(path: Path) -> None:
    """`result()` without a time is asked of futures that are done; the loop's own `wait` is the runtime's."""
    for name, call in calls(tree_of(path)):
        owner = ast.unparse(call.func)
        assert name != "sleep", owner
        assert name != "result" or not (call.args or call.keywords), owner
        assert name not in ("join", "acquire", "as_completed") or ("join" in owner and "str" in owner), owner
        assert name != "wait" or owner == "self.runtime.wait", owner


def writers(field: str, cls: str) -> set[str]:
    """The files that assign to the attribute, `self.field` counting only within the class itself."""
    found = set()
    for path in (*FILES, PACKAGE / "state" / "policy.py"):  # the backlog's own file
        for owner, node in _assignments(tree_of(path)):
            if node.attr == field and (ast.unparse(node.value) != "self" or owner == cls):
                found.add(path.name)
    return found


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.Attribute]]:
    for outer in tree.body:
        for node in ast.walk(outer):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield getattr(outer, "name", ""), node


def test_a_partition_has_few_fields() -> None:
    assert len(OwnedPartition.__dataclass_fields__) <= FIELDS_MAX


@pytest.mark.parametrize("cls", [OwnedPartition, Backlog, Sketched])
def test_each_field_of_a_partition_is_written_by_one_file(cls: type) -> None:
    fields = cls.__dataclass_fields__  # type: ignore[attr-defined]
    found = {field: writers(field, cls.__name__) for field in fields}
    assert {field: files for field, files in found.items() if len(files) > 1} == {}


def test_the_phase_is_changed_in_one_place_and_only_as_the_table_says() -> None:
    assert writers("phase", "OwnedPartition") == {"partitions.py"}
    assert set(AFTER) == set(Phase)
    assert AFTER[Phase.RELEASED] == frozenset(), "a partition that comes back is a new object"
    assert all(Phase.RELEASED in after for phase, after in AFTER.items() if phase is not Phase.RELEASED)


def test_nobody_takes_the_worker() -> None:
    """The worker calls its parts; none of them imports it or knows a protocol of it."""
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "class Host" not in text
        assert path.name == "worker.py" or "sfd_stream.worker.worker" not in text, path.name


def test_only_delivery_publishes_and_commits() -> None:
    acting = {
        path.name
        for path in FILES
        for name, call in calls(tree_of(path))
        if ast.unparse(call.func) in ("self.sink.publish", "self.transactions.send", "self.source.commit")
    }
    assert acting == {"delivery.py", "transactional.py"}


def test_the_core_is_few_files_and_grows_no_more() -> None:
    """The number of lines only goes down."""
    files = core(PACKAGE)
    assert len(files) <= FILES_MAX
    assert sum(map(lines, files)) <= LINES_MAX


def test_the_way_of_a_row_is_as_short_as_the_page_says() -> None:
    """Every function in the page's table exists where it says, and there are not too many."""
    groups = way_of_a_row(PACKAGE.parent)
    for file, names in groups.items():
        tree = tree_of(PACKAGE / file)
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for cls in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            functions |= {f"{cls.name}.{node.name}" for node in cls.body if isinstance(node, ast.FunctionDef)}
        assert set(names) <= functions, file
    assert len(groups) <= GROUP_FILES_MAX
    assert sum(map(len, groups.values())) <= GROUPS_MAX
