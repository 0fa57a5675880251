"""The pages use plain technical words instead of those that are easily misread."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs import pages

BETTER = {
    "whoever": "callers, readers, a process that",
    "anew": "again, or rebuild, rewrite, replace",
    "nobody": "no process, no caller",
    "goes on": "continues",
    "lies in": "is stored in",
}
PAGES = sorted(pages.DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_plain_words(page: Path) -> None:
    prose = " ".join(pages.prose(page.read_text("utf-8")).split()).lower()
    found = {word: better for word, better in BETTER.items() if re.search(rf"\b{word}\b", prose)}
    assert not found
