"""Rewrites checkpoints of the first form, in which texts of messages were cut out of the serializer's bytes.

In that form a value was a tag and pieces: bytes, and between them references to a text of a row. Here the pieces are
joined again, and the messages in the value become entries, as `references` writes them. The value is not loaded through
the serializer: the classes of its objects need not be installed where a store is upgraded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec
import ormsgpack
from langchain_core import messages as langchain
from langchain_core.messages import BaseMessage
from msgspec import Struct

from hansard.adapters.langgraph import records
from hansard.adapters.langgraph.forms import WRITES
from hansard.adapters.langgraph.messages import FORMAT, message_from, versions_of
from hansard.adapters.langgraph.records import Saved, TaskWrite, TaskWrites
from hansard.adapters.langgraph.references import (
    Extraction,
    HistoryPosition,
    Marked,
    SerializedValue,
    placeholder,
    refer_to_rows,
    replaced,
)
from hansard.adapters.langgraph.threads import StateMessages, Thread, state_of
from hansard.errors import Corrupt
from hansard.model import Message, Record
from hansard.store import Store
from hansard.store.records import Put

T = TypeVar("T")

_DUMPED = frozenset(("content", "additional_kwargs", "response_metadata", "type", "id"))
"""Fields of every message that a Pydantic model dumps."""
_SAYING = ("content", "tool_calls", "invalid_tool_calls", "additional_kwargs", "artifact")
"""The fields of a message whose strings were cut out."""
_NAMING = frozenset(("type", "id", "name", "index", "role", "mime_type", "source_type", "signature"))
"""Fields in them that were kept."""
_CHUNK = 100


class _OldBlob(Struct, frozen=True, array_like=True):
    tag: str
    pieces: tuple[bytes | tuple[int, str, int, int], ...]
    """Bytes; or the seq and the id of a row, which of its texts, and the length of that in bytes."""


class _OldWrite(Struct, frozen=True, array_like=True):
    idx: int
    channel: str
    blob: _OldBlob


class _OldTask(Struct, frozen=True, array_like=True):
    task_path: str
    task_id: str
    writes: tuple[_OldWrite, ...]


class _OldSaved(Struct, frozen=True, array_like=True):
    parent: str | None
    body: dict[str, Any]
    metadata: _OldBlob
    values: dict[str, _OldBlob] = {}
    homes: dict[str, str] = {}
    tasks: tuple[_OldTask, ...] = ()
    runs: tuple[tuple[int, int], ...] | None = None
    branch: str | None = None
    tail: int = 0
    unseen: tuple[int, ...] = ()
    added: tuple[tuple[int, int], ...] = ()
    replaces_messages: bool = False


async def rewrite(tenant: Store, owner: Store, old: Sequence[Record]) -> None:
    """Upgrades records of one thread, from the records of an owner, to the form of this version.

    If it is interrupted, it can be repeated.
    """
    history = await _read(tenant, old[0].namespace[1])
    for begin in range(0, len(old), _CHUNK):
        await owner.records.write([_rewritten(record, history) for record in old[begin : begin + _CHUNK]])


def _rewritten(record: Record, history: _History) -> Put:
    value: Saved | TaskWrites
    if record.namespace[0] == WRITES:
        value = history.task(_decoded(record, _OldTask))
    else:
        value = history.saved(_decoded(record, _OldSaved))
    packed = records.pack(value)
    return Put(record.namespace, record.key, packed, record.revision, record.expires_at, record.conversation_id)


def _decoded(record: Record, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(records.inflate(record.value), type=kind)
    except records.UNREADABLE as error:
        where = f"record {record.key!r} of {record.namespace!r}"
        raise Corrupt(f"{where} is not a checkpoint of any version of Hansard: {error}", where=where) from error


async def _read(store: Store, thread_id: str) -> _History:
    found: dict[int, Message] = {}
    for branch in await store.list_branches(thread_id):
        async for row in store.iter_messages(thread_id, branch=branch.id):
            found[row.seq] = row
    return _History(found)


class _History:
    """The rows of a thread, and old values rewritten with them."""

    def __init__(self, rows: Mapping[int, Message]) -> None:
        self._thread = Thread("")
        self._texts: dict[int, list[bytes]] = {}
        self._places: dict[int, list[HistoryPosition]] = {}
        for seq, row in rows.items():
            state = state_of([(row, versions_of(row))])
            self._thread.add(state.places())
            self._texts[seq] = list(_texts(row, state))
            self._places[seq] = list(state.places())

    def saved(self, old: _OldSaved) -> Saved:
        fields = {name: getattr(old, name) for name in Saved.__struct_fields__}
        fields["metadata"] = SerializedValue(*self._joined(old.metadata))
        fields["values"] = {name: self._blob(blob) for name, blob in old.values.items()}
        fields["tasks"] = tuple(map(self.task, old.tasks))
        return Saved(**fields)

    def task(self, old: _OldTask) -> TaskWrites:
        writes = [TaskWrite(write.idx, write.channel, self._blob(write.blob)) for write in old.writes]
        return TaskWrites(old.task_path, old.task_id, tuple(writes))

    def _blob(self, old: _OldBlob) -> SerializedValue:
        tag, data = self._joined(old)
        if tag != "msgpack":
            return SerializedValue(tag, data)
        extraction = _TreeExtraction(self._thread.place_of)
        try:
            packed = _pack(replaced(_unpack(data), extraction.leaf))
        except (Marked, RecursionError, ormsgpack.MsgpackDecodeError, ormsgpack.MsgpackEncodeError):
            return SerializedValue(tag, data)  # As in `dump`; or a custom serializer uses the same tag.
        if not extraction.entries:
            return SerializedValue(tag, data)
        seqs = dict.fromkeys(piece[0] for piece in old.pieces if not isinstance(piece, bytes))
        referred = [place for seq in seqs for place in self._places.get(seq, ())]
        return refer_to_rows(
            SerializedValue(tag, packed, tuple(extraction.entries)),
            lambda id: self._thread.places(id) if id else referred,
        )

    def _joined(self, old: _OldBlob) -> tuple[str, bytes]:
        """Returns the serializer's bytes. A text that was deleted from the history or changed is blank."""
        pieces = [piece if isinstance(piece, bytes) else self._text(*piece) for piece in old.pieces]
        return old.tag, b"".join(pieces)

    def _text(self, seq: int, _: str, which: int, size: int) -> bytes:
        texts = self._texts.get(seq, [])
        text = texts[which] if which < len(texts) else b""
        return text if len(text) == size else b" " * size


def _texts(row: Message, state: StateMessages) -> Iterator[bytes]:
    """Yields the texts of a row, in the order in which references count them."""
    is_own = row.format == FORMAT and isinstance(row.content, dict) and isinstance(row.content.get("data"), dict)
    spoken = [row.content["data"]] if is_own else [version.message.__dict__ for version in state.versions]
    for data in spoken:
        for name in _SAYING:
            yield from (text.encode() for text in _strings(data.get(name)))


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


# LangGraph's MessagePack, as a tree


class _Extension(NamedTuple):
    """An object: how LangGraph creates it, and from what."""

    code: int
    value: Any


def _unpack(data: bytes) -> Any:
    return ormsgpack.unpackb(
        data, ext_hook=lambda code, inner: _Extension(code, _unpack(inner)), option=ormsgpack.OPT_NON_STR_KEYS
    )


def _pack(tree: Any) -> bytes:
    return ormsgpack.packb(tree, default=_extension, option=ormsgpack.OPT_NON_STR_KEYS)


def _extension(value: Any) -> ormsgpack.Ext:
    if not isinstance(value, _Extension):
        raise TypeError(f"{type(value).__name__} does not occur in MessagePack")
    return ormsgpack.Ext(value.code, _pack(value.value))


class _TreeExtraction(Extraction):
    """Takes messages out of a tree."""

    def leaf(self, value: Any) -> Any:
        if isinstance(value, _Extension):
            return self._object(value)
        if type(value) is dict and value.keys() >= _DUMPED:
            return self._dump(value)
        return super().leaf(value)

    def _object(self, value: _Extension) -> _Extension:
        """Handles a Pydantic object, for which LangGraph writes 5, its module, its class, its fields, and a method."""
        match value:
            case _Extension(code=5, value=[str(module), str(name), dict(fields), method]) if _is_message(module, name):
                dumped = self._placeholder(getattr(langchain, name), fields)
                return _Extension(value.code, [module, name, fields if dumped is None else dumped, method])
            case _Extension(code=5, value=[_, _, dict(fields), *_]) if fields.keys() >= _DUMPED:
                # A message of a custom class stays whole: the walk does not enter replaced values.
                return _Extension(*value)
        return value

    def _dump(self, value: dict[str, Any]) -> dict[str, Any]:
        """Handles a message that a Pydantic model has dumped."""
        data = {name: item for name, item in value.items() if name != "type"}
        dumped = self._placeholder(lambda **fields: message_from({"type": value["type"], "data": fields}), data)
        return value if dumped is None else dumped

    def _placeholder(self, make: Callable[..., BaseMessage], fields: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the placeholder of a message; None if LangChain reads something else from its fields."""
        try:
            message = make(**fields)
        except (ValueError, TypeError):
            return None
        number = self.note(message) if fields.items() <= message.model_dump().items() else None
        return None if number is None else placeholder(message, number).model_dump()


def _is_message(module: str, name: str) -> bool:
    kind = getattr(langchain, name, None)
    return isinstance(kind, type) and issubclass(kind, BaseMessage) and kind.__module__ == module
