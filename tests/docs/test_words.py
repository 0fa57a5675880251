"""The pages use plain technical words: one that is easily misread has a better one."""

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
EXEMPT = ("writing-a-backend.md",)
"""Its example is being shortened."""
PAGES = [page for page in sorted(pages.DOCS.rglob("*.md")) if page.name not in EXEMPT]


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_plain_words(page: Path) -> None:
    prose = " ".join(pages.prose(page.read_text("utf-8")).split()).lower()
    found = {word: better for word, better in BETTER.items() if re.search(rf"\b{word}\b", prose)}
    assert not found
