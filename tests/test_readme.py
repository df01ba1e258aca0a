"""The README's example runs, and prints what the README says it prints."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
EXAMPLE = re.compile(
    r"```python\n(?P<code>.*?)```.*?<!-- output of the example above.*?-->\n```\n(?P<output>.*?)```", re.DOTALL
)


def example() -> tuple[str, str, str]:
    text = README.read_text()
    found = EXAMPLE.search(text)
    assert found is not None, "README.md has no example followed by its output"
    return text, found["code"], found["output"]


def printed(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own page
    return out.getvalue()


def test_the_example_prints_what_the_readme_says() -> None:
    _, code, output = example()
    assert printed(code) == output


if __name__ == "__main__" and "--update" in sys.argv:
    text, code, output = example()
    README.write_text(text.replace(f"```\n{output}```", f"```\n{printed(code)}```"))
