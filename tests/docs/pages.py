"""The pages of the documentation, taken apart: fenced blocks, headings, links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+)\s+(.*?)\s*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


class Block(NamedTuple):
    """A fenced block; `line` is that of its first line of text."""

    language: str
    text: str
    line: int


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 2) for found in _FENCE.finditer(text)]


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text)


def sections(text: str, level: int) -> dict[str, str]:
    """Heading → what stands under it, up to the next heading of this level or above."""
    words = prose(text)
    found = [each for each in _HEADING.finditer(words) if len(each[1]) <= level]
    ends = [*(each.start() for each in found[1:]), len(words)]
    return {each[2]: words[each.end() : end] for each, end in zip(found, ends, strict=True) if len(each[1]) == level}


def anchors(text: str) -> set[str]:
    """The names under which a browser finds the headings of a page."""
    seen: dict[str, int] = {}
    found = set()
    for heading in _HEADING.finditer(prose(text)):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[2]).lower())
        slug = words.replace(" ", "-")
        number = seen.get(slug, 0)
        seen[slug] = number + 1
        found.add(f"{slug}-{number}" if number else slug)
    return found


def links(text: str) -> list[str]:
    return _LINK.findall(re.sub(r"`[^`\n]*`", "", prose(text)))


def code_words(text: str) -> set[str]:
    """Every identifier that stands between backticks, in prose and tables."""
    return {word for span in re.findall(r"`([^`\n]+)`", prose(text)) for word in re.findall(r"\w+", span)}
