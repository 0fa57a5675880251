"""Entries outside the dialogue: their position in the transcript, and what they quote.

Such an entry names the message that it came after or, at the start of its batch, the one that it came before. Claude's
process repeats prompts in these entries, whole or truncated. The quotations are not stored: the record names the quoted
message and the quoted length, and the text is inserted when it is read. So a prompt that is deleted or changed is also
gone from, or changed in, the entries that quoted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from hansard.adapters.claude.entries import FORMAT, Entry, answer_in, entries_of, texts_of
from hansard.adapters.history import value_of
from hansard.model import Message, Record

QUOTING = ("content", "lastPrompt")
"""The fields of entries in which Claude's process repeats a prompt."""
_ENDING = 2
"""How many characters may follow a truncated quotation."""
_SURE = 20
"""From this many equal characters on, the beginning of a text is certainly a quotation."""


class Quote(msgspec.Struct, frozen=True, array_like=True):
    """A beginning of a message's text, and what follows it."""

    message_id: str
    text: int
    """Which of the message's texts."""
    form: int
    """The form in which the text is quoted: see `_forms`."""
    length: int
    ending: str = ""


class SideEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of an entry."""

    entry: Entry
    after: str = ""
    before: str = ""
    quotes: dict[str, Quote] = {}


def read(record: Record) -> SideEntry:
    return value_of(record, SideEntry)


def placed(entries: Iterable[Entry], rows: Mapping[int, Message], last: str) -> Iterator[SideEntry]:
    """Yields the entries of a batch that are not messages, each with its position.

    `rows` are the messages, by `id(entry)`.
    """
    leading: list[Entry] = []
    after = ""
    for entry in entries:
        row = rows.get(id(entry))
        if row is None and after:
            yield SideEntry(entry, after=after)
        elif row is None:
            leading.append(entry)
        else:
            yield from (SideEntry(each, before=row.id) for each in leading)
            leading, after = [], row.id
    yield from (SideEntry(each, after=last) for each in leading)


# Quotations


def unquoted(side: SideEntry) -> list[str]:
    """Returns the fields that may quote a message and still hold their text."""
    return [name for name in QUOTING if isinstance(side.entry.get(name), str) and side.entry[name]]


def referring(side: SideEntry, rows: Sequence[Message]) -> SideEntry:
    """Returns the entry with references in place of what it quotes from these messages, newest first."""
    quotes = dict(side.quotes)
    for name in unquoted(side):
        quote = next((found for row in reversed(rows) if (found := _quote(row, side.entry[name]))), None)
        if quote is not None:
            quotes[name] = quote
    entry = {name: "" if name in quotes else value for name, value in side.entry.items()}
    return msgspec.structs.replace(side, entry=entry, quotes=quotes) if quotes else side


def _quote(row: Message, written: str) -> Quote | None:
    for number, text in enumerate(texts_of(row)):
        for form, whole in enumerate(_forms(text)):
            length = _same(whole, written)
            is_sure = length == len(whole) or length >= _SURE
            if length and is_sure and len(written) - length <= _ENDING:
                return Quote(row.id, number, form, length, written[length:])
    return None


def _same(one: str, other: str) -> int:
    """Returns the length of the common beginning of two texts."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(at for at in range(most) if one[at] != other[at])


def _forms(text: str) -> tuple[str, str]:
    """Returns a text as it is, and as one line."""
    return text, text.replace("\n", " ").strip()


def quoting(side: SideEntry, rows: Mapping[str, Message]) -> Entry:
    """Returns the entry with its quotations. A quotation of a deleted message is empty."""
    if not side.quotes:
        return side.entry
    return side.entry | {name: _quoted_text(quote, rows) for name, quote in side.quotes.items()}


def _quoted_text(quote: Quote, rows: Mapping[str, Message]) -> str:
    row = rows.get(quote.message_id)
    texts = texts_of(row) if row is not None else []
    if quote.text >= len(texts):
        return ""
    whole = _forms(texts[quote.text])[quote.form]
    return whole[: quote.length] + quote.ending if whole else ""


# Transcripts


def merged(
    rows: Sequence[Message], side: Sequence[SideEntry], session_id: str, quoted: Sequence[Message] = ()
) -> Iterator[Entry]:
    """Yields messages in their order, with the entries between them and the entry to continue from.

    `quoted` are messages that are not among the rows but are quoted by these entries.
    """
    by_id = {row.id: row for row in (*rows, *quoted)}
    slots = _slots(rows, side)
    leaf: str | None = None
    answer: str | None = None
    for number, row in enumerate(rows):
        written = entries_of(row, session_id, leaf, answer)
        if written:
            answer = answer_in(written[-1]) if row.format != FORMAT else None
        for entry in [*(quoting(each, by_id) for each in slots[number]), *written]:
            leaf = entry.get("uuid") or leaf
            yield entry
    yield from (quoting(each, by_id) for each in slots[-1])
    if rows and rows[-1].format != FORMAT and leaf is not None and side:
        # Claude continues from the last leaf that an entry names: here, a message of another framework.
        yield {"type": "last-prompt", "lastPrompt": "", "leafUuid": leaf, "sessionId": session_id}


def _slots(rows: Sequence[Message], side: Iterable[SideEntry]) -> list[list[SideEntry]]:
    """Returns the entries before each message, and after the last.

    If its message is gone, an entry stays with the one before it.
    """
    places = {row.id: number for number, row in enumerate(rows)}
    slots: list[list[SideEntry]] = [[] for _ in range(len(rows) + 1)]
    place = 0
    for each in side:
        if each.after in places:
            place = places[each.after] + 1
        elif each.before in places:
            place = places[each.before]
        slots[place].append(each)
    return slots
