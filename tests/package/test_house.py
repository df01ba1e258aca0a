"""The numbers of `make house` count what they say."""

from __future__ import annotations

import ast

import pytest

from tests.docs.pages import ROOT
from tests.house import (
    GROWN,
    IDIOMS,
    LATER,
    bars,
    code_lines,
    defined_twice,
    function_lengths,
    imported_by_no_test,
    lines_of_code,
    most_files,
    texts,
    without_own_test,
)

FILES_MAX = 18


def test_lines_of_code_leave_out_docstrings_comments_and_blank_lines() -> None:
    text = '"""Promise."""\n\n# why\ndef f() -> str:\n    """Says."""\n    return """a\n    b"""\n'
    assert code_lines(text) == 3


def test_lines_of_later_issues_are_listed_apart_and_the_rest_is_what_remains() -> None:
    counts = {"score/consumer.py": 1_000, "wire/formats/framing.py": 500, "printable.py": 10, "merge.py": 20_000}
    whole, *_, rest = lines_of_code(counts)
    assert whole.value == "21,510"
    assert rest.value.startswith(f"{20_000 - sum(GROWN.values()):,} = ")


def test_every_place_of_a_later_issue_exists() -> None:
    places = [place for listed in LATER.values() for place in listed.split()]
    assert [place for place in places if not (ROOT / "sfd_stream" / place).exists()] == []


def test_a_type_name_in_two_files_counts_once_however_often() -> None:
    trees = [ast.parse("class A: pass\nclass B: pass"), ast.parse("class A: pass"), ast.parse("class _A: pass")]
    assert defined_twice(trees) == ["A"]


def test_functions_are_measured_with_their_first_line() -> None:
    assert list(function_lengths(ast.parse("def f():\n    pass\n"))) == [2]


def test_idioms_are_whole_words() -> None:
    assert IDIOMS.findall("Mended, whoever did it; amendments recommend nothing") == ["Mended", "whoever"]


def test_each_name_of_a_type_is_defined_once() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "sfd_stream").rglob("*.py")]
    assert defined_twice(trees) == []


def test_no_folder_of_the_package_has_more_files_than_a_newcomer_can_scan() -> None:
    folder, files = most_files(list((ROOT / "sfd_stream").rglob("*.py")))
    assert files <= FILES_MAX, folder


def test_each_module_is_imported_by_a_test() -> None:
    assert imported_by_no_test(ROOT, list((ROOT / "sfd_stream").rglob("*.py"))) == []


def test_code_and_pages_have_no_idioms() -> None:
    assert [found for text in texts(ROOT) for found in IDIOMS.findall(text)] == []


@pytest.mark.slow
def test_every_bar_is_printed_with_its_goal() -> None:
    found = bars(ROOT)
    assert len(found) == 15
    assert all(bar.value and bar.goal for bar in found)


def test_each_module_has_a_test_file_of_its_name() -> None:
    assert without_own_test(ROOT) == []
