"""Values of channels and writes, with references in place of the messages in them.

Before a value is serialized, each message in it is replaced by a placeholder: an empty message of the same class, whose
content is a marker with a number. The number is an index into the entries of the `SerializedValue`. An entry refers to
a row of the history, or holds the message itself if it has no row yet. When the row exists, only the entry is
rewritten; the serializer's bytes stay as they are. So a checkpoint holds no copy of a message of the history, and a
message that is deleted there is gone from the checkpoint too.

Pairs such as `("user", "Hello")` and objects with a role stand for messages; their content is replaced. A plain
string is never replaced.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, cast

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send
from msgspec import Struct
from pydantic import BaseModel

from hansard import codec
from hansard.adapters.langgraph.messages import draft_of, message_from, message_of, native_of, required
from hansard.adapters.langgraph.versions import Version, copied, is_same

_MARK = "\x00hansard:"
_MESSAGE, _CONTENT = f"{_MARK}message:", f"{_MARK}content:"
_SAYING = frozenset(("content", "tool_calls", "tool_call_id"))
"""The fields in which versions of one message must agree."""

Row = tuple[int, str, int]
"""The seq and the id of a row, and which of its messages: a row of another format may hold several."""
Find = Callable[[BaseMessage], "HistoryPosition | None"]
Candidates = Callable[[str | None], Iterable["HistoryPosition"]]
"""Returns the positions of the messages with an id; for None, of those that may have been written without one."""
Leaf = Callable[[Any], Any]
"""Returns the replacement of a value, or the value itself."""


class HistoryPosition(NamedTuple):
    """The position of a message in the history: which part of a row, of how many."""

    version: Version
    seq: int
    row_id: str
    part: int = 0
    parts: int = 1


class MessageReference(Struct, frozen=True, array_like=True):
    """A message of a value: a row and the fields that differ from it, or the whole message, as JSON."""

    row: Row | None
    json: str = ""


class SerializedValue(Struct, frozen=True, array_like=True):
    """A value as the serializer wrote it, and the messages that were taken out before."""

    tag: str
    data: bytes
    entries: tuple[MessageReference, ...] = ()


def is_sharing(serde: SerializerProtocol) -> bool:
    """Whether messages can be replaced. Only LangGraph's own serializer is known to keep placeholders intact."""
    return type(serde) is JsonPlusSerializer


def dump(serde: SerializerProtocol, value: Any, find: Find | None) -> SerializedValue:
    """Serializes a value. `find` looks up messages in the history; None leaves them in the value."""
    extraction = Extraction(find) if find is not None else None
    try:
        slim = replaced(value, extraction.leaf) if extraction is not None else value
    except (Marked, RecursionError):
        slim, extraction = value, None
    return SerializedValue(*serde.dumps_typed(slim), tuple(extraction.entries) if extraction is not None else ())


def load(serde: SerializerProtocol, blob: SerializedValue, rows: Mapping[int, Sequence[Version]]) -> Any:
    """Returns the value of a blob. A message whose row is gone is empty, except for its id."""
    value = serde.loads_typed((blob.tag, blob.data))
    return replaced(value, _Restoration(blob.entries, rows).leaf) if blob.entries else value


def rows_in(blob: SerializedValue) -> Iterator[tuple[int, str]]:
    """Yields the rows that a blob refers to."""
    return (entry.row[:2] for entry in blob.entries if entry.row is not None)


def refer_to_rows(blob: SerializedValue, candidates: Candidates) -> SerializedValue:
    """Refers to the rows that messages of a blob have got since it was written."""
    if all(entry.row is not None for entry in blob.entries):
        return blob
    return SerializedValue(blob.tag, blob.data, tuple(_referring(entry, candidates) for entry in blob.entries))


def detach(blob: SerializedValue, rows: Mapping[int, Sequence[Version]]) -> SerializedValue:
    """Returns the same value with whole messages in place of references."""
    return SerializedValue(blob.tag, blob.data, tuple(_detached(entry, rows) for entry in blob.entries))


# Entries


def _entry_at(place: HistoryPosition, message: BaseMessage) -> MessageReference:
    # A delta channel stores messages without an id, whose rows have one.
    changes = "" if message.id is not None else codec.encode({"data": {"id": None}})
    return MessageReference((place.seq, place.row_id, place.part), changes)


def _referring(entry: MessageReference, candidates: Candidates) -> MessageReference:
    if entry.row is not None:
        return entry
    native = _native(entry)
    found = [each for place in candidates(native["data"]["id"]) if (each := _entry_like(native, place)) is not None]
    return min(found, key=lambda each: len(each.json), default=entry)


def _entry_like(native: dict[str, Any], place: HistoryPosition) -> MessageReference | None:
    """Refers to a row with the same content as a message; the id may be new, or the message a chunk. Else None."""
    row = native_of(place.version.message)
    mine, theirs = native["data"], row["data"]
    changed = {name: mine.get(name) for name in (*mine, *theirs) if not is_same(mine.get(name), theirs.get(name))}
    kinds = {each["type"].removesuffix("MessageChunk").lower() for each in (native, row)}
    if not _SAYING.isdisjoint(changed) or len(kinds) > 1 or mine["id"] not in (None, theirs["id"]):
        return None
    is_exact = not changed and native["type"] == row["type"]
    json = "" if is_exact else codec.encode({"type": native["type"], "data": changed})
    return MessageReference((place.seq, place.row_id, place.part), json)


def _message(entry: MessageReference, rows: Mapping[int, Sequence[Version]]) -> BaseMessage | None:
    """Returns the message of an entry; None if its row is gone."""
    if entry.row is None:
        return message_from(_native(entry))
    seq, _, part = entry.row
    found = rows.get(seq, ())
    if part >= len(found):
        return None
    if not entry.json:
        return found[part].make()
    changes = _native(entry)
    native = native_of(found[part].message)
    data = {**native["data"], **changes["data"]}
    kept = {name: value for name, value in data.items() if value is not None or name == "id"}
    return message_from({"type": changes.get("type", native["type"]), "data": kept})


def _detached(entry: MessageReference, rows: Mapping[int, Sequence[Version]]) -> MessageReference:
    message = _message(entry, rows) if entry.row is not None else None
    return entry if message is None else MessageReference(None, codec.encode(native_of(message)))


def _native(entry: MessageReference) -> dict[str, Any]:
    return cast("dict[str, Any]", codec.decode(entry.json, "a message of a checkpoint"))


# Leaves


class Marked(Exception):
    """A string of the user begins like our markers."""


class Extraction:
    """Takes messages out of a value, and collects them."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self.entries: list[MessageReference] = []

    def leaf(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            if value.startswith(_MARK):
                raise Marked
            return value
        if isinstance(value, BaseMessage):
            number = self.note(value)
            return value if number is None else placeholder(value, number)
        return self._without_content(value) if kind is dict or kind is list or kind is tuple else value

    def note(self, message: BaseMessage) -> int | None:
        """Returns the number of a message; None if it cannot be a row of the history."""
        place = self._find(message)
        if place is not None:
            self.entries.append(_entry_at(place, message))
        else:
            draft = draft_of(message)
            if draft is None:
                return None
            self.entries.append(MessageReference(None, codec.encode(draft.row.content)))
        return len(self.entries) - 1

    def _without_content(self, value: Any) -> Any:
        """Returns a pair or an object that represents a message without its content; any other value unchanged."""
        latest = message_of(value)
        content = None if latest is None else value.get("content") if isinstance(value, dict) else value[1]
        if latest is None or not content or type(content) is not type(latest.content) or latest.content != content:
            return value
        number = self.note(latest)
        if number is None:
            return value
        marker = f"{_CONTENT}{number}"
        return {**value, "content": marker} if isinstance(value, dict) else type(value)((value[0], marker))


class _Restoration:
    """Puts messages back into a value."""

    def __init__(self, entries: Sequence[MessageReference], rows: Mapping[int, Sequence[Version]]) -> None:
        self._entries = entries
        self._rows = rows

    def leaf(self, value: Any) -> Any:
        if isinstance(value, BaseMessage):
            if not _is_marked(value.content, _MESSAGE):
                return value
            return self._of(value.content, _MESSAGE) or value.model_copy(update={"content": ""})
        if type(value) is dict and _is_marked(value.get("content"), _MESSAGE):
            # LangGraph's serializer returns a message in an untyped field of a Pydantic model as its dump.
            message = self._of(value["content"], _MESSAGE)
            return {**value, "content": ""} if message is None else message.model_dump()
        if _is_marked(value, _CONTENT):
            message = self._of(value, _CONTENT)
            return "" if message is None else copied(message.content)
        return value

    def _of(self, marker: Any, kind: str) -> BaseMessage | None:
        return _message(self._entries[int(marker[len(kind) :])], self._rows)


def _is_marked(value: Any, kind: str) -> bool:
    return type(value) is str and value.startswith(kind)


def placeholder(message: BaseMessage, number: int) -> BaseMessage:
    """Returns an empty message of the same class, with a marker as its content."""
    fields = {name: getattr(message, name) for name in required(type(message))}
    return type(message)(**{**fields, "content": f"{_MESSAGE}{number}", "id": message.id})


# The walk


def replaced(value: Any, leaf: Leaf) -> Any:
    """Returns the value with everything in it replaced by `leaf`. Containers without replacements are not copied."""
    new = leaf(value)
    if new is not value:
        return new
    if isinstance(value, dict):
        return _new_or_same(value, {key: replaced(item, leaf) for key, item in value.items()})
    if isinstance(value, list | deque):
        items = [replaced(item, leaf) for item in value]
        return _new_or_same(value, items if isinstance(value, list) else deque(items, value.maxlen))
    if isinstance(value, tuple):
        items = [replaced(item, leaf) for item in value]
        return _new_or_same(value, type(value)(*items) if hasattr(value, "_fields") else tuple(items))
    return _replaced_object(value, leaf)


def _new_or_same(value: Any, new: Any) -> Any:
    """Returns the new container if anything in it is new, else the old one."""
    olds, news = (value.values(), new.values()) if isinstance(value, dict) else (value, new)
    return value if all(old is each for old, each in zip(olds, news, strict=True)) else new


def _replaced_object(value: Any, leaf: Leaf) -> Any:
    if isinstance(value, BaseModel):
        fields = {**value.__dict__, **(value.__pydantic_extra__ or {})}
    elif isinstance(value, Send):
        fields = {"arg": value.arg}
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    else:
        return value
    changed = {name: new for name, item in fields.items() if (new := replaced(item, leaf)) is not item}
    if not changed:
        return value
    if isinstance(value, BaseModel):
        return value.model_copy(update=changed)
    made = copy(value)
    for name, item in changed.items():
        object.__setattr__(made, name, item)
    return made
