"""Google Takeout of Gemini Apps: `MyActivity.json` or `MyActivity.html`, alone, in a folder or in its zip file.

Takeout has no threads: a record is one prompt with its answer, in HTML. Prompts that follow each other within half an
hour are taken as one conversation, and every such conversation says `guessed_thread` in its metadata. A record is known
by its second and its words, so that the JSON and the page of the same activity are stored once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

from hansard.formats import parts
from hansard.importers import activity_page, json_stream
from hansard.importers.attachments import AttachedFiles
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, text, time
from hansard.model import Message

_GAP = 30 * 60
"""Seconds without a prompt that end a conversation."""
_SIGN = re.compile(rb'"header"\s*:\s*"[^"]*(Gemini|Bard)[^"]*"')
_PROMPTED = "Prompted "
_OTHER_ACTIVITY = ("Used ", "Gave feedback", "Created Gemini Canvas", "Selected preferred draft", "Viewed ", "Visited ")
_PAGE_HEAD = 1 << 20
"""Bytes of a page that are looked at: it begins with a long style sheet."""
_TITLE_WORDS = 12


class GeminiTakeout:
    name = "gemini-takeout"
    title = "Google Takeout of Gemini Apps: MyActivity.json or .html (threads are guessed)"

    def recognises(self, source: ImportSource) -> bool:
        return bool(_files(source) or _pages(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with RowSorter() as sorter:
            for name in _files(source):
                for where, given in json_stream.array_objects(source, name, report, "record"):
                    at = time(given.get("time"))
                    if at is None:
                        report.complain(where, "it has no time")
                    elif _is_prompt(text(given.get("title")), where, report):
                        sorter.add("", given, at.timestamp())
            for name in _pages(source):
                _sort_in_page(sorter, source, name, report)
            yield from _conversations(sorter, AttachedFiles(source, report), report)


def _files(source: ImportSource) -> list[str]:
    return [name for name in source.named(".json") if _SIGN.search(source.head(name))]


def _pages(source: ImportSource) -> list[str]:
    return [name for name in source.named(".html") if _is_page(source, name)]


def _is_page(source: ImportSource, name: str) -> bool:
    with source.open(name) as file:
        head = file.read(_PAGE_HEAD)
    return b"outer-cell" in head and b"content-cell" in head and (b"Gemini Apps" in head or b"Bard" in head)


def _sort_in_page(sorter: RowSorter, source: ImportSource, name: str, report: ImportReport) -> None:
    with source.open(name) as file:
        for number, record in enumerate(activity_page.records(file), 1):
            where = f"{name}, record {number}"
            if record.at is None:
                report.complain(where, "its time is not English: ask Takeout for JSON, or set the account to English")
            elif _is_prompt(record.title, where, report):
                if record.zone is not None:
                    report.lose("time zone that is not known: the time was taken as UTC", f"{where}: {record.zone}")
                given = {"title": record.title, "time": record.at.isoformat(), "answer": record.answer}
                sorter.add("", given, record.at.timestamp())


def _is_prompt(title: str, where: str, report: ImportReport) -> bool:
    """Only English titles tell prompts from other activity: any other title is taken as a prompt."""
    if not title or title.startswith(_OTHER_ACTIVITY):
        report.lose("activity that is no prompt", f"{where}: {title[:120]}")
        return False
    return True


def _conversations(sorter: RowSorter, files: AttachedFiles, report: ImportReport) -> Iterator[ForeignConversation]:
    found: list[ForeignMessage] = []
    ids: set[str] = set()
    last = 0.0
    for at, given in sorter.places(""):
        if found and at - last > _GAP:
            yield _conversation(found)
            found, ids = [], set()
        last = at
        id = _id(given)
        if id in ids:
            continue  # the JSON and the page of one Takeout hold the same activity
        ids.add(id)
        for message in _messages(id, given, files, report):
            found.append(ForeignMessage(message, found[-1].message.id if found else None))
    if found:
        yield _conversation(found)


def _id(given: dict[str, Any]) -> str:
    """The same for a record of the JSON and of the page, which has no fractions of seconds and other line ends."""
    at = time(given["time"])
    assert at is not None
    words = " ".join(text(given["title"]).split())
    return hashlib.sha256(f"{int(at.timestamp())} {words}".encode()).hexdigest()[:24]


def _messages(id: str, given: dict[str, Any], files: AttachedFiles, report: ImportReport) -> Iterator[Message]:
    at = time(given.get("time"))
    assert at is not None
    asked: list[parts.AnyPart] = [parts.Text(text=text(given["title"]).removeprefix(_PROMPTED))]
    for file in [*items(given.get("attachedFiles")), *filter(None, [given.get("imageFile")])]:
        path = files.find(text(file))
        if path is None:
            report.lose("file that Takeout only names", str(file)[:120])
        elif (part := files.part(path, text(file))) is not None:
            asked.append(part)
    content, format = content_of(asked)
    yield Message("user", content, f"{id}-prompt", format=format, created_at=at)
    html = [text(mapping(each).get("html")) for each in items(given.get("safeHtmlItem"))]
    answer = text(given.get("answer")) or "\n\n".join(map(activity_page.plain_text, html))
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
