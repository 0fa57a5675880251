"""Google Takeout of Gemini Apps: `MyActivity.json`, alone, in a folder or in its zip file.

Takeout has no threads: a record is one prompt with its answer, in HTML. Prompts that follow each other within half an
hour are taken as one conversation, and every such conversation says `guessed_thread` in its metadata.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, text, time
from hansard.model import Message

_GAP = 30 * 60
"""Seconds without a prompt that end a conversation."""
_SIGN = re.compile(rb'"header"\s*:\s*"[^"]*(Gemini|Bard)[^"]*"')
_PROMPTED = "Prompted "
_BLOCKS = {"p", "br", "li", "div", "pre", "tr", "ul", "ol", "h1", "h2", "h3", "h4", "table"}
_TITLE_WORDS = 12


class GeminiTakeout:
    name = "gemini-takeout"
    title = "Google Takeout of Gemini Apps: MyActivity.json (threads are guessed)"

    def recognises(self, source: ImportSource) -> bool:
        return any(_SIGN.search(source.head(name)) for name in _files(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            for name in _files(source):
                for where, given in json_stream.array_objects(source, name, report, "record"):
                    at = time(given.get("time"))
                    if at is None:
                        report.complain(where, "it has no time")
                    elif text(given.get("title")):
                        sorter.add("", given, at.timestamp())
            yield from _conversations(sorter, report)


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.named(".json") if _SIGN.search(source.head(name))]


def _conversations(sorter: RowSorter, report: ImportReport) -> Iterator[ForeignConversation]:
    found: list[ForeignMessage] = []
    last = 0.0
    for at, given in sorter.places(""):
        if found and at - last > _GAP:
            yield _conversation(found)
            found = []
        last = at
        for message in _messages(given, report):
            found.append(ForeignMessage(message, found[-1].message.id if found else None))
    if found:
        yield _conversation(found)


def _messages(given: dict[str, Any], report: ImportReport) -> Iterator[Message]:
    at = time(given.get("time"))
    assert at is not None
    id = hashlib.sha256(f"{given['time']} {given['title']}".encode()).hexdigest()[:24]
    for file in items(given.get("attachedFiles")):
        report.lose("file that Takeout only names", str(file)[:120])
    yield Message("user", text(given["title"]).removeprefix(_PROMPTED), f"{id}-prompt", created_at=at)
    answer = "\n\n".join(_plain(text(mapping(each).get("html"))) for each in items(given.get("safeHtmlItem")))
    if answer.strip():
        yield Message("assistant", answer, id, created_at=at)
    else:
        report.lose("answer that Takeout leaves out", text(given["title"])[:120])


def _conversation(found: list[ForeignMessage]) -> ForeignConversation:
    first = found[0].message
    return ForeignConversation(
        id=f"gemini-{first.id.removesuffix('-prompt')}",
        messages=found,
        first_words=" ".join(first.text.split()[:_TITLE_WORDS]) or None,
        created_at=first.created_at,
        agent_id="gemini",
        metadata={"imported_from": "gemini-takeout", "guessed_thread": True},
    )


def _plain(html: str) -> str:
    reader = _Text()
    reader.feed(html)
    reader.close()
    lines = ("".join(reader.pieces)).splitlines()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip()


class _Text(HTMLParser):
    """The text of an answer, with a line for each block."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []
        self.pieces += ["- "] if tag == "li" else []

    def handle_endtag(self, tag: str) -> None:
        self.pieces += ["\n"] if tag in _BLOCKS else []
