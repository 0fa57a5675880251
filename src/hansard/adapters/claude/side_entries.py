"""Entries beside what was said: where they stand in the transcript, and what they quote.

An entry beside the messages names the message that it came after or, where it leads its batch, the one that it came
before. Claude's process repeats prompts in such entries, whole or cut off. Those quotations are not stored: the record
says which message it quotes and how much of it, and the text is put back when it is read. So a prompt that is deleted
or changed is gone from, or changed in, the entries that quoted it too.
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
"""How many characters may follow a quotation that was cut off."""
_SURE = 20
"""Characters from which on the beginning of a text is sure to be quoted."""


class Quote(msgspec.Struct, frozen=True, array_like=True):
    """A beginning of a message's text, and what stands behind it."""

    message_id: str
    text: int
    """Which of the message's texts."""
    form: int
    """In which form the text is quoted: see `_forms`."""
    length: int
    ending: str = ""


class SideEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the record of an entry holds."""

    entry: Entry
    after: str = ""
    before: str = ""
    quotes: dict[str, Quote] = {}


def read(record: Record) -> SideEntry:
    return value_of(record, SideEntry)


def placed(entries: Iterable[Entry], rows: Mapping[int, Message], last: str) -> Iterator[SideEntry]:
    """The entries of a batch that are no messages, each with its place. `rows` are those that are, by `id(entry)`."""
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


# --- quotations -------------------------------------------------------------------------------------------------------


def unquoted(beside: SideEntry) -> list[str]:
    """The fields that may quote a message, and hold their text still."""
    return [name for name in QUOTING if isinstance(beside.entry.get(name), str) and beside.entry[name]]


def referring(beside: SideEntry, rows: Sequence[Message]) -> SideEntry:
    """The entry with references in place of what it quotes of these messages. The newest is looked at first."""
    quotes = dict(beside.quotes)
    for name in unquoted(beside):
        quote = next((found for row in reversed(rows) if (found := _quote(row, beside.entry[name]))), None)
        if quote is not None:
            quotes[name] = quote
    entry = {name: "" if name in quotes else value for name, value in beside.entry.items()}
    return msgspec.structs.replace(beside, entry=entry, quotes=quotes) if quotes else beside


def _quote(row: Message, said: str) -> Quote | None:
    for number, text in enumerate(texts_of(row)):
        for form, whole in enumerate(_forms(text)):
            length = _same(whole, said)
            is_sure = length == len(whole) or length >= _SURE
            if length and is_sure and len(said) - length <= _ENDING:
                return Quote(row.id, number, form, length, said[length:])
    return None


def _same(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    return next(at for at in range(most) if one[at] != other[at])


def _forms(text: str) -> tuple[str, str]:
    """A text as it is, and as a line."""
    return text, text.replace("\n", " ").strip()


def quoting(beside: SideEntry, rows: Mapping[str, Message]) -> Entry:
    """The entry with its quotations. What is gone is empty."""
    if not beside.quotes:
        return beside.entry
    return beside.entry | {name: _said(quote, rows) for name, quote in beside.quotes.items()}


def _said(quote: Quote, rows: Mapping[str, Message]) -> str:
    row = rows.get(quote.message_id)
    texts = texts_of(row) if row is not None else []
    if quote.text >= len(texts):
        return ""
    whole = _forms(texts[quote.text])[quote.form]
    return whole[: quote.length] + quote.ending if whole else ""


# --- transcripts ------------------------------------------------------------------------------------------------------


def merged(
    rows: Sequence[Message], beside: Sequence[SideEntry], session_id: str, quoted: Sequence[Message] = ()
) -> Iterator[Entry]:
    """Messages in their order, with the entries beside them, and where to go on from.

    `quoted` are messages that are not among the rows, but quoted beside them.
    """
    by_id = {row.id: row for row in (*rows, *quoted)}
    slots = _slots(rows, beside)
    leaf: str | None = None
    answer: str | None = None
    for number, row in enumerate(rows):
        said = entries_of(row, session_id, leaf, answer)
        if said:
            answer = answer_in(said[-1]) if row.format != FORMAT else None
        for entry in [*(quoting(each, by_id) for each in slots[number]), *said]:
            leaf = entry.get("uuid") or leaf
            yield entry
    yield from (quoting(each, by_id) for each in slots[-1])
    if rows and rows[-1].format != FORMAT and leaf is not None and beside:
        # Claude goes on from the last leaf that an entry names. That is what somebody else said.
        yield {"type": "last-prompt", "lastPrompt": "", "leafUuid": leaf, "sessionId": session_id}


def _slots(rows: Sequence[Message], beside: Iterable[SideEntry]) -> list[list[SideEntry]]:
    """What comes before each message, and after the last. Without its message, an entry stays with its forerunner."""
    places = {row.id: number for number, row in enumerate(rows)}
    slots: list[list[SideEntry]] = [[] for _ in range(len(rows) + 1)]
    place = 0
    for each in beside:
        if each.after in places:
            place = places[each.after] + 1
        elif each.before in places:
            place = places[each.before]
        slots[place].append(each)
    return slots
