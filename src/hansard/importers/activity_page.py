"""Google's `MyActivity.html` as records, one at a time: the page that Takeout makes unless people ask for JSON.

A record is a cell with the prompt, its time and the answer, as text and HTML in a row. The time is written in the
language of the account: English ones are read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser
from typing import IO

from msgspec import Struct

_BLOCK = 1 << 16
_MOST = 64 << 20
"""Characters of one record."""
_BLOCKS = frozenset(("p", "br", "li", "div", "pre", "tr", "ul", "ol", "h1", "h2", "h3", "h4", "table"))
_TIME = re.compile(
    r"(?P<at>(?:[A-Z][a-z]{2} \d{1,2}, \d{4}|\d{1,2} [A-Z][a-z]{2,3} \d{4}), \d{1,2}:\d\d:\d\d(?: [AP]M)?) "
    r"(?P<zone>[A-Z]{2,5}(?:[+-]\d{1,2}(?::?\d\d)?)?)"
)
_FORMATS = ("%b %d, %Y, %I:%M:%S %p", "%b %d, %Y, %H:%M:%S", "%d %b %Y, %H:%M:%S", "%d %b %Y, %I:%M:%S %p")
_EASTERN = {"BST": 1, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "MSK": 3, "JST": 9, "KST": 9}
_AMERICAN = {"EDT": -4, "EST": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8}
_ZONES = {"UTC": 0, "GMT": 0, "WET": 0} | _EASTERN | _AMERICAN
"""Hours from UTC of the names that Google writes."""


class ActivityRecord(Struct, frozen=True):
    """The texts of a record: what was done, when, and the answer."""

    title: str
    at: datetime | None
    answer: str
    zone: str | None = None
    """The time zone, if it is not known: then the time is taken as UTC."""


def records(file: IO[bytes]) -> Iterator[ActivityRecord]:
    """The records of a page. A page that is no page has none."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    page = _Page()
    while block := file.read(_BLOCK):
        page.feed(decode(block))
        yield from page.taken()
        if len(page.rawdata) > _MOST:
            return  # a tag that does not end
    page.feed(decode(b"", final=True))
    page.close()
    yield from page.taken()


def plain_text(html: str) -> str:
    """The text of HTML, with a line for each block."""
    reader = HtmlText()
    reader.feed(html)
    reader.close()
    return reader.text()


class HtmlText(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []

    def text(self) -> str:
        lines = "".join(self.pieces).splitlines()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []
        self.pieces += ["- "] if tag == "li" else []

    def handle_endtag(self, tag: str) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []


class _Page(HtmlText):
    """Collects the text of each content cell; the cells for links and captions are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        """Of `div` elements inside a content cell; 0 outside."""
        self._size = 0
        self._found: list[ActivityRecord] = []

    def taken(self) -> list[ActivityRecord]:
        found, self._found = self._found, []
        return found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._depth:
            self._depth += tag == "div"
            super().handle_starttag(tag, attrs)
        elif tag == "div":
            classes = (dict(attrs).get("class") or "").split()
            is_content = "content-cell" in classes and "mdl-typography--body-1" in classes
            self._depth = int(is_content and "mdl-typography--text-right" not in classes)

    def handle_endtag(self, tag: str) -> None:
        if not self._depth:
            return
        self._depth -= tag == "div"
        super().handle_endtag(tag)
        if not self._depth:
            if (record := _record(self.text())) is not None:
                self._found.append(record)
            self.pieces, self._size = [], 0

    def handle_data(self, data: str) -> None:
        self._size += len(data) if self._depth else 0
        if self._depth and self._size <= _MOST:
            super().handle_data(data)


def _record(text: str) -> ActivityRecord | None:
    lines = text.replace("\u202f", " ").replace("\xa0", " ").splitlines()
    for place, line in enumerate(lines):
        if (match := _TIME.fullmatch(line.strip())) is not None:
            title, answer = "\n".join(lines[:place]).strip(), "\n".join(lines[place + 1 :]).strip()
            offset = _offset(match["zone"])
            at = _parsed(match["at"], offset or timedelta())
            return ActivityRecord(title, at, answer, match["zone"] if offset is None else None)
    return ActivityRecord("\n".join(lines), None, "") if text else None


def _offset(zone: str) -> timedelta | None:
    if zone in _ZONES:
        return timedelta(hours=_ZONES[zone])
    if (match := re.fullmatch(r"(?:GMT|UTC)([+-])(\d{1,2}):?(\d\d)?", zone)) is not None:
        sign = -1 if match[1] == "-" else 1
        return sign * timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
    return None


def _parsed(at: str, offset: timedelta) -> datetime | None:
    at = at.replace("Sept", "Sep")
    for format in _FORMATS:
        try:
            return datetime.strptime(at, format).replace(tzinfo=timezone(offset)).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
    return None
