"""The URLs of stores that the pages name are those that a reader means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs import pages

from hansard import sync
from hansard.backends.files.connect import folder_of
from hansard.urls import Url

_URL = re.compile(r"\b(?:file:/*[\w.][\w./-]*|sqlite:///[\w./-]+|(?:memory|none)://)")
"""Options aside: some are wrong on purpose."""
_MEANT_ABSOLUTE = ("/var/lib/",)
"""A path from the root of the disk is one where such things lie: else the reader meant a folder at hand."""


def found_in(page: Path) -> list[str]:
    return sorted(set(_URL.findall(page.read_text(encoding="utf-8"))))


PAGES = [page for page in pages.pages() if found_in(page)]


@pytest.mark.parametrize("page", PAGES, ids=pages.name)
def test_a_url_opens_a_store_at_hand(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in found_in(page):
        absolute = url.removeprefix("sqlite:///") if url.startswith("sqlite:") else str(_folder(url, tmp_path))
        if absolute.startswith("/") and not url.startswith(("memory", "none")):
            assert absolute.startswith(_MEANT_ABSOLUTE), f"{url} is the absolute path {absolute}"
            continue
        with sync.connect(url) as store:
            assert store.append_message("c", "user", "x")


def _folder(url: str, here: Path) -> Path:
    """Relative to the working directory, if it lies there."""
    if not url.startswith("file:"):
        return Path()
    folder = folder_of(Url(url))
    return folder.relative_to(here) if folder.is_relative_to(here) else folder


def test_the_search_finds_urls() -> None:
    """Otherwise the test above would prove nothing."""
    everything = {url for page in PAGES for url in found_in(page)}
    assert everything >= {"sqlite:///chats.db", "file:chats", "file:///var/lib/chats", "memory://", "none://"}
