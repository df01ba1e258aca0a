"""Files that people have become the rows that are in them, or a sentence that says why not."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from sfd_stream.errors import SettingsError
from sfd_stream.tools.matrix_files import BLOCK_ROWS, kind_of, read_bags, read_matrix, read_records

if TYPE_CHECKING:
    from pathlib import Path

ROWS = BLOCK_ROWS + 10


@pytest.fixture(scope="module")
def matrix() -> Any:
    found = sp.random_array((ROWS, 30), density=0.1, format="csr", rng=np.random.default_rng(1))
    found.data = np.round(found.data * 8) + 1
    return found


def whole(path: Path, kind: str | None = None) -> Any:
    blocks = list(read_matrix(path, kind or kind_of(path)))
    width = max((block.shape[1] for block in blocks), default=0)
    for block in blocks:
        block.resize(block.shape[0], width)
    return sp.vstack(blocks, format="csr").toarray()


def test_an_npz_file_is_its_matrix(tmp_path: Path, matrix: Any) -> None:
    for name, stored in (("a.npz", matrix), ("b.npz", matrix.tocoo())):
        sp.save_npz(tmp_path / name, stored)
        assert np.array_equal(whole(tmp_path / name), matrix.toarray())


def test_a_matrix_market_file_is_its_matrix(tmp_path: Path, matrix: Any) -> None:
    scipy.io.mmwrite(tmp_path / "a.mtx", matrix)
    assert np.array_equal(whole(tmp_path / "a.mtx"), matrix.toarray())


def test_an_svmlight_file_reads_as_scikit_learn_reads_it(tmp_path: Path, matrix: Any) -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    path = tmp_path / "a.svm"
    datasets.dump_svmlight_file(matrix, np.ones(ROWS), str(path), zero_based=False, comment="by sklearn")
    expected, _ = datasets.load_svmlight_file(str(path), zero_based=False)
    assert np.array_equal(whole(path), expected.toarray())


@pytest.mark.parametrize("heading", ["", "row,column,value\n"])
def test_triples_in_any_order_add_up_and_each_row_number_is_a_row(tmp_path: Path, heading: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(heading + "900000000000,1,2.5\n3,0,1\n3,2,1\n3,2,1\n")
    assert np.array_equal(whole(path), [[1, 0, 2], [0, 2.5, 0]])


def test_text_is_bags_of_words_and_an_empty_line_is_an_empty_bag(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The cat, the DOG!\n\nsnake_case é 42\n")
    assert [dict(bag) for bag in read_bags(path)] == [
        {"the": 2, "cat": 1, "dog": 1},
        {},
        {"snake": 1, "case": 1, "é": 1, "42": 1},
    ]


def test_duplicates_add_up_and_zeros_are_dropped(tmp_path: Path) -> None:
    stored = sp.csr_array((np.array([1.0, 2.0, 0.0]), np.array([1, 1, 2]), np.array([0, 2, 3])), shape=(2, 4))
    sp.save_npz(tmp_path / "a.npz", stored)
    [block] = read_matrix(tmp_path / "a.npz", "npz")
    assert (block.nnz, block[0, 1]) == (1, 3.0)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.svm", "1 1:2\n1 0:5\n", "line 2 has index 0"),
        ("a.svm", "1 1:2\n1 x:5\n", "line 2 is not"),
        ("a.csv", "1,2\n", "row,column,value"),
        ("a.csv", "1,-2,3\n", "whole numbers"),
        ("a.csv", "1,1.5,3\n", "whole numbers"),
        ("a.csv", "1,1,abc\n", "a.csv: "),
        ("a.csv", "1,1,nan\n", "row 0 has a value that is not finite"),
        ("a.npz", "no zip", "a.npz: "),
        ("a.mtx", "no matrix", "a.mtx: "),
        ("a.dat", "", "add --as npz|mtx|svmlight|csv|text"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_told(tmp_path: Path, name: str, text: str, says: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        list(read_matrix(path, kind_of(path)))
    assert says in str(caught.value)


def test_an_absent_file_is_told(tmp_path: Path) -> None:
    for read in (lambda path: read_matrix(path, "npz"), read_bags):
        with pytest.raises(SettingsError, match="No such file"):
            list(read(tmp_path / "none.npz"))


# -- records ---------------------------------------------------------------------------------------------


def records_in(path: Path) -> list[Any]:
    return [json.loads(line) for line in read_records(path, kind_of(path))]


def test_a_csv_file_with_a_heading_has_records(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text(
        '\ufeffuser,price,zip,member,note,when\nann,2.50,00123,TRUE,"a, ""b""\nc",2024-01-02\nböb,-1e3,,false,,x\n',
        encoding="utf-8",
    )
    assert records_in(path) == [
        {"user": "ann", "price": 2.5, "zip": "00123", "member": True, "note": 'a, "b"\nc', "when": "2024-01-02"},
        {"user": "böb", "price": -1000.0, "zip": None, "member": False, "note": None, "when": "x"},
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("row,column,value\n0,3,1.5\n", "csv"),
        ("0,3,1.5\n", "csv"),
        ("a,b\n0,3\n", "table"),
        ("user,item,price\nann,tea,1\n", "table"),
        ("user,item,price\n", "csv"),
        ("", "csv"),
    ],
)
def test_what_a_csv_file_holds_is_seen_by_its_first_lines(tmp_path: Path, text: str, kind: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    assert kind_of(path) == kind


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2,3\n", "line 2 has 3 cells, the heading 2"),
        ("a,a\n1,2\n", "a name twice"),
        ('a,b\n"1,2\n', "unexpected end of data"),
        ("a,b\nx,1e999\n", "not JSON compliant"),
    ],
)
def test_a_table_that_is_wrong_is_an_error_with_its_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=f"x.csv: .*{words}"):
        records_in(path)


def test_a_parquet_file_has_records(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    rows = [
        {"user": "ann", "n": 7, "price": Decimal("2.50"), "at": datetime(2024, 1, 2, tzinfo=UTC), "tags": ["x", "y"]},
        {"user": None, "n": -1, "price": None, "at": None, "geo": {"lat": 1.5}, "raw": b"\0"},
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.Table.from_pylist([rows[0] | rows[1] | rows[0]]).schema), path)
    assert records_in(path) == [
        {
            "user": "ann",
            "n": 7,
            "price": 2.5,
            "at": "2024-01-02T00:00:00Z",
            "tags": ["x", "y"],
            "geo": None,
            "raw": None,
        },
        {"user": None, "n": -1, "price": None, "at": None, "tags": None, "geo": {"lat": 1.5}, "raw": None},
    ]


def test_parquet_without_its_package_is_one_sentence_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"")
    with pytest.raises(SettingsError, match=r"pip install 'sfd-stream\[parquet\]'"):
        records_in(tmp_path / "x.parquet")


def test_a_file_that_is_no_parquet_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(SettingsError, match=r"x\.parquet: "):
        records_in(tmp_path / "x.parquet")
