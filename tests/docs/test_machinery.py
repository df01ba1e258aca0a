"""The machinery that holds pages true sees what it should see, on a page made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import pages
from tests.docs.pages import Block, anchors, blocks, links
from tests.docs.paste import paste, same
from tests.docs.playing import play, typed

PAGE = """# A page: `code`, and (words)

[file](other.md#part) and ![picture](pictures/a.svg), not `[code](nowhere.md)`.

```python
x = 2 + 2
print(x, "is stale")
```

<!-- output -->
```
5
```

```sh
echo took $((1 + 2)) s  # a comment
echo \\
  two
```

<!-- output: numbers differ -->
```
took 99 s
two
```

## Again

<!-- not run: needs the moon -->
```console
$ fly --to moon
```

## Again

```yaml
not: run
```
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    made = tmp_path / "page.md"
    made.write_text(PAGE)
    return made


def test_blocks_are_found_with_their_notes_and_outputs(page: Path) -> None:
    found = blocks(page)
    assert [(b.kind, b.runs, b.output, b.loose) for b in found] == [
        ("python", True, "5\n", False),
        ("sh", True, "took 99 s\ntwo\n", True),
        ("console", False, None, False),
        ("yaml", False, None, False),
    ]
    assert found[2].reason_not_run == "needs the moon"
    assert found[0].place == "page.md:5"


def test_headings_and_links_are_read_as_a_reader_sees_them(page: Path) -> None:
    assert anchors(page) == {"a-page-code-and-words", "again", "again-1"}
    assert links(page) == ["other.md#part", "pictures/a.svg"]


def test_a_page_is_played_and_what_is_stale_is_seen_and_pasted(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    played = play(page, folder)
    assert [(printed, same(block, printed)) for block, printed in played] == [
        ("4 is stale\n", False),
        ("took 3 s\ntwo\n", True),
    ]
    paste(page)
    assert page.read_text() == PAGE.replace("```\n5\n```", "```\n4 is stale\n```")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sfd-stream run --config config/local.yaml", "runs for ever"),
        ("sfd-stream config check --config nowhere.yaml", "exit code 2"),
        ("false | cat; false", "exit code 1"),
    ],
)
def test_a_command_that_fails_or_never_ends_fails_its_page(page: Path, tmp_path: Path, code: str, why: str) -> None:
    page.write_text(f"```sh\n{code}\n```\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(AssertionError, match=why):
        play(page, folder)


def test_prompts_comments_and_joined_lines_are_as_typed() -> None:
    assert typed("$ one \\\n  --two\n\n$ three\n", "console") == ["one    --two", "three"]
    assert typed("# a comment\none\n", "sh") == ["one"]
    with pytest.raises(AssertionError, match="block of its own"):
        typed("$ one\nits output\n", "console")


@pytest.mark.parametrize(
    ("shown", "printed", "loose", "equal"),
    [
        ("1 row\n", "1 row\n", False, True),
        ("1 row\n", "2 row\n", False, False),
        ("1 row\n", "2 row  \n\n", True, True),
        ("1,234 rows  0.5\n──\n", "7 rows 1e-05\n────\n", True, True),
        ("1 row\n", "1 rows\n", True, False),
        ("1 row\n", "1 row\n1 row\n", True, False),
    ],
)
def test_only_numbers_may_differ_and_only_where_the_page_says_so(
    shown: str, printed: str, loose: bool, equal: bool
) -> None:
    block = Block(Path("p"), 1, "sh", "", "", shown, loose, (0, 0))
    assert same(block, printed) is equal
