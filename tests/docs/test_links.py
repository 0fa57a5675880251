"""Links inside the documentation lead somewhere, and every page can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs import pages


@pytest.mark.parametrize("page", pages.pages(), ids=pages.name)
def test_links_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in pages.links(text):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        if anchor:
            assert anchor in pages.anchors(target.read_text(encoding="utf-8")), f"{link}: no such heading"


def test_every_page_is_in_the_contents() -> None:
    contents = pages.DOCS / "index.md"
    linked = {(pages.DOCS / link).resolve() for link in pages.links(contents.read_text(encoding="utf-8"))}
    assert set(pages.DOCS.rglob("*.md")) - {contents} <= linked
