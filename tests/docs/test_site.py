"""The site is built without a broken link, and has the API with its examples."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import sfd_stream
from tests.docs.docstring_examples import fenced
from tests.docs.pages import ROOT
from tests.docs.site import outside_links

HOME = "https://git.example.com/acme/sfd-stream"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = ["make", "docs-site", f"DIST={folder}", f"REPOSITORY_URL={HOME}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_every_page_is_on_the_site_and_links_to_files_lead_to_the_repository(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.stem == "README" else page for page in pages}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    assert f'href="{HOME}/blob/main/config/example.yaml"' in (site / "index.html").read_text()


def test_the_api_has_every_public_name_with_its_signature_and_example(site: Path) -> None:
    text = (site / "reference" / "api.html").read_text()
    for name in sfd_stream.__all__:
        assert f'id="sfd_stream.{name}"' in text, name
    assert 'id="sfd_stream.Sketch.top"' in text
    assert "half_life_rows" in text, "signatures"
    assert '<code><span class="gp">&gt;&gt;&gt; </span>' in text, "examples"


def test_links_out_of_the_site_are_replaced_and_code_is_left_alone() -> None:
    text = "[s](../config/example.yaml) [p](concepts.md) `[c](../README.md)`\n```\n[d](../README.md)\n```"
    folder = ROOT / "docs"
    assert outside_links(text, folder, HOME).startswith(
        f"[s]({HOME}/blob/main/config/example.yaml) [p](concepts.md) `[c]"
    )
    assert outside_links(text, folder, "").startswith("s [p](concepts.md) `[c](../README.md)`\n```\n[d](../README.md)")


def test_an_example_ends_at_an_empty_line() -> None:
    assert fenced("Text.\n\n>>> 1 + 1\n2\n\nMore text.") == "Text.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nMore text."
    assert fenced("Text with >>> inside.") == "Text with >>> inside."
