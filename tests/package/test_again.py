"""What `make test-all` runs a second time."""

from __future__ import annotations

from tests.support.again import names_of


def test_a_name_loses_the_group_that_xdist_appends_and_nothing_else() -> None:
    failed = {
        "a.py::test_b@node": True,
        "a.py::test_c[x@y]": True,
        "a.py::test_c[x@y]@kafka": True,
        "a.py::test_d": True,
    }
    assert names_of(failed) == ["a.py::test_b", "a.py::test_c[x@y]", "a.py::test_d"]
