"""Reads rows from files: npz, MatrixMarket, svmlight, CSV triples, lines of text, tables of records.

A matrix is returned as canonical, finite CSR blocks in the order of the file, a text as bags of words, and a record
as a line of JSON. Errors name the file and, if there is one, the line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import scipy.io
import scipy.sparse as sp

from sfd_stream.errors import SettingsError
from sfd_stream.wire.flatten import plain_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

BLOCK_ROWS: Final = 4096
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "npz": (".npz",),
    "mtx": (".mtx",),
    "svmlight": (".svm", ".svmlight", ".libsvm"),
    "csv": (".csv",),
    "text": (".txt", ".text"),
    "jsonl": (".jsonl", ".ndjson"),
    "table": (),  # a .csv file that does not hold triples
    "parquet": (".parquet", ".pq"),
}
RECORDS: Final = ("jsonl", "table", "parquet")
"""Kinds whose rows are records of named fields."""
T = TypeVar("T")
_WORD: Final = re.compile(r"[^\W_]+")
_NUMBER: Final = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_WORDS: Final = {"": None, "true": True, "false": False}


def kind_of(path: Path) -> str:
    """The kind of file by the end of its name."""
    for kind, suffixes in KINDS.items():
        if path.suffix.lower() in suffixes:
            return "table" if kind == "csv" and _is_table(path) else kind
    endings = ", ".join(suffix for suffixes in KINDS.values() for suffix in suffixes)
    raise SettingsError(f"{path}: the name does not show the format ({endings}); add --as {'|'.join(KINDS)}")


def read_matrix(path: Path, kind: str) -> Iterator[Any]:
    """The rows of a file of numbers as CSR blocks of at most BLOCK_ROWS rows."""
    read = {"npz": _read_npz, "mtx": _read_mtx, "svmlight": _read_svmlight, "csv": _read_csv}[kind]
    first = 0
    for block in _guarded(path, read):
        canonical = _canonical(block, path, first)
        first += canonical.shape[0]
        yield canonical


def read_bags(path: Path) -> Iterator[Mapping[str, int]]:
    """Each line of a text as its words in lower case with their counts; an empty line is an empty bag."""

    def read(file: Path) -> Iterator[Mapping[str, int]]:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                yield Counter(_WORD.findall(line.lower()))

    return _guarded(path, read)


def read_records(path: Path, kind: str) -> Iterator[bytes]:
    """The records of a file, each as a line of JSON."""
    return _guarded(path, {"jsonl": _read_lines, "table": _read_table, "parquet": _read_parquet}[kind])


def blocks_of(matrix: Any) -> Iterator[Any]:
    """A matrix of any sparse format as CSR blocks of at most BLOCK_ROWS rows."""
    csr = sp.csr_array(matrix)
    for start in range(0, csr.shape[0], BLOCK_ROWS):
        yield csr[start : start + BLOCK_ROWS]


def _guarded(path: Path, read: Callable[[Path], Iterator[T]]) -> Iterator[T]:
    """Turns the errors of a faulty file into a SettingsError: the user can fix the file."""
    try:
        yield from read(path)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, OverflowError, csv.Error) as error:
        raise SettingsError(f"{path}: {error}") from error


def _canonical(block: Any, path: Path, first: int) -> Any:
    if np.issubdtype(block.dtype, np.complexfloating):
        raise SettingsError(f"{path}: the values are complex; rows are real numbers")
    csr = block.astype(np.float64)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    bad = np.flatnonzero(~np.isfinite(csr.data))
    if len(bad):
        row = first + int(np.searchsorted(csr.indptr, bad[0], side="right")) - 1
        raise SettingsError(f"{path}: row {row} has a value that is not finite")
    return csr


def _read_npz(path: Path) -> Iterator[Any]:
    return blocks_of(sp.load_npz(path))


def _read_mtx(path: Path) -> Iterator[Any]:
    return blocks_of(scipy.io.mmread(path, spmatrix=False))


def _read_csv(path: Path) -> Iterator[Any]:
    """Lines of row,column,value, with or without a heading. Each distinct row number is one row."""
    with path.open(encoding="utf-8") as lines:
        heading = not _is_number(lines.readline().split(",")[0])
    table = np.loadtxt(path, delimiter=",", ndmin=2, skiprows=int(heading), encoding="utf-8")
    if table.size and table.shape[1] != 3:
        raise ValueError(f"lines must be row,column,value, not {table.shape[1]} columns")
    table = table.reshape(-1, 3)
    numbers = table[:, :2].astype(np.int64)
    if (numbers != table[:, :2]).any() or (numbers < 0).any():
        raise ValueError("rows and columns must be whole numbers from 0 on")
    names, rows = np.unique(numbers[:, 0], return_inverse=True)
    d = int(numbers[:, 1].max(initial=0)) + 1
    return blocks_of(sp.coo_array((table[:, 2], (rows, numbers[:, 1])), shape=(len(names), d)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_svmlight(path: Path) -> Iterator[Any]:
    """Lines of `label index:value ...  # comment`. Indices start at 1. Label and qid are ignored."""
    with path.open(encoding="utf-8") as lines:
        numbered = enumerate(lines, start=1)
        while parsed := list(islice(_svmlight_rows(numbered), BLOCK_ROWS)):
            yield _stack(parsed)


def _svmlight_rows(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[list[int], list[float]]]:
    for number, line in lines:
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        pairs = [field.partition(":") for field in fields[1:] if not field.startswith("qid:")]
        try:
            columns = [int(index) - 1 for index, _, _ in pairs]
            values = [float(value) for _, _, value in pairs]
        except ValueError:
            raise ValueError(f"line {number} is not `label index:value ...`") from None
        if min(columns, default=0) < 0:
            raise ValueError(f"line {number} has index 0 or less; svmlight counts from 1")
        yield columns, values


def _stack(rows: list[tuple[list[int], list[float]]]) -> Any:
    indptr = np.cumsum([0, *(len(columns) for columns, _ in rows)])
    indices = np.array([column for columns, _ in rows for column in columns], dtype=np.int64)
    values = np.array([value for _, values in rows for value in values], dtype=np.float64)
    return sp.csr_array((values, indices, indptr), shape=(len(rows), int(indices.max(initial=0)) + 1))


# -- records ---------------------------------------------------------------------------------------------


def _read_lines(path: Path) -> Iterator[bytes]:
    """The lines that are not blank, without line ends."""
    with path.open("rb") as lines:
        yield from (line.strip() for line in lines if line.strip())


def _is_table(path: Path) -> bool:
    """Whether a CSV file has named fields: it has a heading, and its rows are not three numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            heading, first = islice((*islice(csv.reader(lines), 2), [], []), 2)
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # the reader of the file reports what is wrong
    named = bool(heading) and not any(_is_number(cell) for cell in heading)
    return named and (len(heading) != 3 or not all(_is_number(cell) for cell in first))


def _read_table(path: Path) -> Iterator[bytes]:
    """The rows of a CSV file below its heading. An empty cell is null, a cell that is a number in JSON is a number."""
    with path.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.reader(lines, strict=True)
        names = next(rows, [])
        if len(set(names)) < len(names):
            raise ValueError("the heading has a name twice")
        for row in rows:
            if len(row) != len(names):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells, the heading {len(names)}")
            yield _as_json(dict(zip(names, map(_cell, row), strict=True)))


def _cell(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return json.loads(text)
    return _WORDS.get(text.lower(), text)


def _read_parquet(path: Path) -> Iterator[bytes]:
    try:
        from pyarrow import ArrowException  # noqa: PLC0415 - an extra
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415 - an extra
    except ImportError:
        raise SettingsError(
            f"{path} needs pyarrow, which is not installed; run: pip install 'sfd-stream[parquet]'"
        ) from None
    try:
        with ParquetFile(path) as file:
            for batch in file.iter_batches(BLOCK_ROWS):
                yield from map(_as_json, batch.to_pylist())
    except ArrowException as error:
        raise ValueError(str(error)) from error


def _as_json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, default=_json_value).encode()


def _json_value(value: Any) -> Any:
    """The JSON form of other types: times become texts and decimals numbers. Bytes give no feature and are left out."""
    return None if isinstance(value, bytes) else plain_value(value)
