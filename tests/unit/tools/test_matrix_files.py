"""Files that people have become the rows that are in them, or a sentence that says why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from sfd_stream.errors import SettingsError
from sfd_stream.tools.matrix_files import BLOCK_ROWS, kind_of, read_bags, read_matrix

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
        ("a.dat", "", "say --as npz|mtx|svmlight|csv|text"),
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
