"""Loads `sfd_stream` from a folder into a universe of its own, beside the real package.

Every module gets its own `__import__`: `sfd_stream.*` comes from the universe, threads, clocks and the broker's client
from substitutes, all else from Python. Mutations are edits of the source; preemption points are put before statements.
No change of the package is needed, and a new thread anywhere in it is simulated without further work.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.simulation.scheduler import loading, point

PACKAGE = "sfd_stream"
POINTED = (
    "merge.py",
    "observe/",
    "tools/",
    "config/container_limits.py",
    "kafka/",
    "loop/",
    "worker/",
    "score/",
    "state/partition.py",
)
"""Where a preemption point stands before every statement, if asked for."""
UNPOINTED = (
    *(
        f"observe/{name}.py"
        for name in ("metrics", "registry", "status", "facts", "history", "spectra", "logs", "worker_status")
    ),
    "score/watch.py",
)
"""Metrics and status only: points there cost time and find nothing."""

_numbers = count(1)


@dataclass(frozen=True)
class Edit:
    """A change of one source file: `old` must occur exactly once."""

    file: str
    old: str
    new: str


class EditError(Exception):
    """The text to be replaced does not occur exactly once."""


class Universe:
    """The package, loaded once: many simulations use it, one after the other."""

    def __init__(
        self,
        source: Path,
        substitutes: Mapping[str, ModuleType],
        *,
        edits: Sequence[Edit] = (),
        points: bool = False,
    ) -> None:
        self.name = f"{PACKAGE}@{next(_numbers)}"
        self._root = source / PACKAGE
        self._substitutes = dict(substitutes)
        self._edits = tuple(edits)
        self._modules: dict[str, ModuleType] = {}
        self._pointed = points
        self._builtins: dict[str, Any] = {**vars(builtins), "__import__": self._import, "__point__": point}
        for edit in self._edits:
            edited(self._root / edit.file, (edit,))

    def close(self) -> None:
        for name in list(sys.modules):
            if name == self.name or name.startswith(f"{self.name}."):
                del sys.modules[name]

    def __getitem__(self, name: str) -> Any:
        """A module of the package: `universe["worker.worker"]`."""
        return self._load(f"{PACKAGE}.{name}")

    def _import(
        self, name: str, globals_: Any = None, locals_: Any = None, fromlist: Sequence[str] = (), level: int = 0
    ) -> Any:
        assert level == 0, "the package has no relative imports"
        if name in self._substitutes:
            found = self._substitutes[name]
            return found if fromlist or "." not in name else self._nested(name)
        if name.partition(".")[0] != PACKAGE:
            return __import__(name, globals_, locals_, fromlist, level)
        module = self._load(name)
        if not fromlist:
            return self._load(PACKAGE)
        for each in fromlist:
            if not hasattr(module, each):
                setattr(module, each, self._load(f"{name}.{each}"))
        return module

    def _nested(self, name: str) -> ModuleType:
        outer, _, inner = name.rpartition(".")
        holder = ModuleType(outer)
        setattr(holder, inner, self._substitutes[name])
        return holder

    def _load(self, name: str) -> ModuleType:
        if name in self._substitutes:
            return self._substitutes[name]
        if name in self._modules:
            return self._modules[name]
        outer, _, inner = name.rpartition(".")
        if outer:
            self._load(outer)
        path = self._root.joinpath(*name.split(".")[1:])
        is_package = path.is_dir()
        path = path / "__init__.py" if is_package else path.with_suffix(".py")
        if not path.exists():
            raise ModuleNotFoundError(f"no module {name} in {self._root}", name=name)
        module = ModuleType(name.replace(PACKAGE, self.name, 1))
        module.__file__ = str(path)
        module.__dict__["__builtins__"] = self._builtins
        if is_package:
            module.__path__ = [str(path.parent)]
        self._modules[name] = sys.modules[module.__name__] = module
        file = path.relative_to(self._root).as_posix()
        edits = tuple(edit for edit in self._edits if edit.file == file)
        pointed = self._pointed and file.startswith(POINTED) and file not in UNPOINTED
        try:
            with loading():
                exec(_compiled(path, edits, pointed), module.__dict__)  # noqa: S102 - the package's own source
        except BaseException:
            del self._modules[name], sys.modules[module.__name__]
            raise
        if outer:
            setattr(self._modules[outer], inner, module)
        return module


def edited(path: Path, edits: Sequence[Edit]) -> str:
    text = path.read_text(encoding="utf-8")
    for edit in edits:
        if text.count(edit.old) != 1:
            raise EditError(f"{edit.file} has {text.count(edit.old)} times, not once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    return text


@lru_cache(maxsize=2_000)
def _compiled(path: Path, edits: tuple[Edit, ...], pointed: bool) -> CodeType:
    tree = ast.parse(edited(path, edits), filename=str(path))
    if pointed:
        tree = ast.fix_missing_locations(_Points().visit(tree))
    return compile(tree, str(path), "exec", dont_inherit=True)


class _Points(ast.NodeTransformer):
    """`__point__()` before every statement of every function."""

    def __init__(self) -> None:
        self._depth = 0

    def _function(self, node: Any) -> Any:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = _function

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self._depth and not isinstance(node, ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                statements = getattr(node, field, None)
                if isinstance(statements, list):
                    setattr(node, field, [each for statement in statements for each in _with_point(statement)])
        return node


def _with_point(statement: Any) -> list[Any]:
    plain = isinstance(statement, (ast.Nonlocal, ast.Global, ast.FunctionDef, ast.ClassDef, ast.Pass))
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if plain or docstring or not isinstance(statement, ast.stmt):
        return [statement]
    call = ast.Call(func=ast.Name(id="__point__", ctx=ast.Load()), args=[], keywords=[])
    return [ast.copy_location(ast.Expr(value=call), statement), statement]
