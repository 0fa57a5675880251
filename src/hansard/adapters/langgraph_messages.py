"""LangChain's messages as messages of the history, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict

from hansard import codec
from hansard.adapters.history import reading_of
from hansard.errors import NotFound, ValidationError
from hansard.formats import registry
from hansard.model import Message
from hansard.store import Store

FORMAT = "langchain"
_set = object.__setattr__

_SAYING = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "artifact")
"""The fields of a message that hold what was said or done."""
_NAMING = frozenset(("type", "id", "name", "index", "role", "mime_type", "source_type", "signature"))
"""Fields in them that say what a part is, not what it says."""
_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}


def is_messages(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, BaseMessage) for item in value)


def row_of(message: BaseMessage) -> Message | None:
    """The message for the history; None when JSON could not give back the very same."""
    native = message_to_dict(message)
    data = native["data"]
    lean = {name: value for name, value in data.items() if value or name in ("content", "id")}
    lean.pop("type", None)
    content = {"type": native["type"], "data": lean}
    try:
        _, plain = codec.snapshot(content, "message")
        if messages_from_dict([plain]) != [message]:
            return None
    except (ValidationError, ValueError, TypeError):
        return None  # An artifact that is no JSON, say: the checkpoint keeps the messages itself.
    return Message(_ROLES.get(message.type.removesuffix("MessageChunk").lower(), "user"), plain, format=FORMAT)


def messages_of(row: Message) -> list[BaseMessage]:
    """What a message of the history is to a graph: its very self where a graph wrote it."""
    if row.format == FORMAT and _is_native(row.content):
        return messages_from_dict([row.content])
    said = messages_from_dict(registry.write(reading_of(row), FORMAT, row))
    for number, message in enumerate(said):
        message.id = row.id if len(said) == 1 else f"{row.id}.{number}"
    return said


def _is_native(content: Any) -> bool:
    return isinstance(content, dict) and isinstance(content.get("data"), dict)


def texts_of(row: Message) -> list[bytes]:
    """The texts that a serializer writes for what the message says, as bytes: each string of its content and calls."""
    data = row.content.get("data") if isinstance(row.content, dict) else None
    if not isinstance(data, dict):
        return []
    return [text.encode() for name in _SAYING if name in data for text in _strings(data[name])]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in _NAMING:
                yield from _strings(item)


def copied(message: BaseMessage) -> BaseMessage:
    """A message that shares nothing that can be changed.

    What `message.__copy__()` and a copy of every container do, without asking for each what it is: a thread has
    thousands.
    """
    if message.__pydantic_private__:
        return deepcopy(message)
    kind = type(message)
    made = kind.__new__(kind)
    fields = message.__dict__.copy()
    for name, item in fields.items():
        if type(item) is dict or type(item) is list:
            fields[name] = deepcopy(item) if item else type(item)()
    extra = message.__pydantic_extra__
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_extra__", deepcopy(extra) if extra else None if extra is None else {})
    # Which fields were given is shared: nothing that was said hangs on it.
    _set(made, "__pydantic_fields_set__", message.__pydantic_fields_set__)
    _set(made, "__pydantic_private__", None)
    return made


class Rows:
    """Messages of one conversation by seq, each read once."""

    def __init__(self, store: Store, conversation_id: str) -> None:
        self._store = store
        self._id = conversation_id
        self._branch: dict[str | None, dict[int, Message]] = {}
        self._read: dict[int, list[BaseMessage]] = {}

    def messages(self, row: Message) -> list[BaseMessage]:
        if row.seq not in self._read:
            self._read[row.seq] = messages_of(row)
        return self._read[row.seq]

    async def run(self, branch: str | None, first: int, last: int | None) -> list[Message]:
        """The rows of a branch from a seq to another, or to the end."""
        known = self._branch.setdefault(branch, {})
        if last is not None and all(seq in known for seq in range(first, last + 1)):
            return [known[seq] for seq in range(first, last + 1)]
        found = []
        place = Message("user", "", conversation_id=self._id, seq=first - 1).cursor
        try:
            async for row in self._store.iter_messages(self._id, after=place, branch=branch):
                if last is not None and row.seq > last:
                    break
                known[row.seq] = row
                found.append(row)
        except NotFound:
            return []  # The branch was deleted, and its messages with it.
        return found

    async def texts(self, branch: str | None, wanted: dict[int, str]) -> dict[int, list[bytes]]:
        """The texts of these rows, by seq. Most lie on the branch, in few runs; a text that is gone is left out."""
        found: dict[int, list[bytes]] = {}
        for first, last in _runs(sorted(wanted)):
            found |= {row.seq: texts_of(row) for row in await self.run(branch, first, last)}
        for seq in wanted.keys() - found.keys():
            with suppress(NotFound):
                found[seq] = texts_of(await self._store.get_message(self._id, wanted[seq]))
        return found


def _runs(seqs: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges that hold these numbers, with small gaps read over."""
    first = last = None
    for seq in seqs:
        if first is None or last is None:
            first = seq
        elif seq - last > 8:
            yield first, last
            first = seq
        last = seq
    if first is not None and last is not None:
        yield first, last
