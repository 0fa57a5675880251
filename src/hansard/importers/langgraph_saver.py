"""LangGraph's savers: the SQLite file of `SqliteSaver`, or the PostgreSQL database of `PostgresSaver`.

Every checkpoint of a thread is stored through the LangGraph adapter, oldest first, with its pending writes. So a graph
goes on with Hansard's checkpointer where it stopped, and the thread's messages are a conversation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, cast

from hansard.adapters.langgraph.forms import WRITTEN_AT
from hansard.errors import Conflict, Unsupported, ValidationError
from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import items, mapping, time
from hansard.store import Store

_CHECKPOINTS = ("thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint")


class LangGraphSaver:
    name = "langgraph"
    title = "LangGraph: the database of SqliteSaver or PostgresSaver"

    def recognises(self, source: ImportSource) -> bool:
        return source.has_table("checkpoints", *_CHECKPOINTS)

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            assert database is not None
            saver = _saver(database, _serializer(source))
            for (thread_id,) in list(database.rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")):
                thread = _Thread(saver, thread_id)
                yield ForeignConversation(
                    id=thread_id, messages=[], metadata={"imported_from": self.name}, writer=thread
                )


def _serializer(source: ImportSource) -> Any:
    try:
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    except ImportError:
        raise Unsupported(
            "checkpoints of LangGraph need langgraph: pip install 'hansard[langgraph]'", capability="langgraph"
        ) from None
    # A checkpoint names the classes of its values. Only a trusted one may choose which are imported.
    return JsonPlusSerializer() if source.is_trusted else JsonPlusSerializer(allowed_msgpack_modules=None)


class _Checkpoint:
    """One checkpoint, with its writes as (task, path, channel, value)."""

    def __init__(
        self,
        place: Sequence[Any],
        checkpoint: dict[str, Any],
        metadata: dict[str, Any],
        writes: list[tuple[str, str, str, Any]],
    ) -> None:
        self.namespace, self.id, self.parent = place
        self.checkpoint = checkpoint
        self.metadata = metadata
        self.writes = writes


class _SqliteSaver:
    def __init__(self, database: ForeignDatabase, serde: Any) -> None:
        self._database = database
        self._serde = serde
        self._path = "task_path" if "task_path" in database.columns("writes") else "''"

    def checkpoints(self, thread_id: str) -> Iterator[_Checkpoint]:
        query = "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
        for *place, kind, body, metadata in self._database.rows(
            f"{query} WHERE thread_id = ? ORDER BY checkpoint_id", thread_id
        ):
            checkpoint = _loaded(self._serde, kind, body)
            yield _Checkpoint(place, checkpoint, mapping(json_of(metadata)), self._writes(thread_id, place))

    def _writes(self, thread_id: str, place: Sequence[Any]) -> list[tuple[str, str, str, Any]]:
        query = (
            f"SELECT task_id, {self._path}, channel, type, value FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
        )
        found = self._database.rows(query, thread_id, *place[:2])
        return [(task, path, channel, _loaded(self._serde, kind, body)) for task, path, channel, kind, body in found]


class _PostgresSaver:
    """In PostgreSQL, values of channels are rows of their own, by their versions."""

    def __init__(self, database: ForeignDatabase, serde: Any) -> None:
        self._database = database
        self._serde = serde
        self._path = "task_path" if "task_path" in database.columns("checkpoint_writes") else "''"

    def checkpoints(self, thread_id: str) -> Iterator[_Checkpoint]:
        query = (
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, checkpoint::text, metadata::text "
            "FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id"
        )
        for *place, body, metadata in self._database.rows(query, thread_id):
            checkpoint = mapping(json_of(body))
            values = mapping(checkpoint.get("channel_values")) | self._values(thread_id, place[0], checkpoint)
            writes = self._writes(thread_id, place)
            yield _Checkpoint(place, checkpoint | {"channel_values": values}, mapping(json_of(metadata)), writes)

    def _values(self, thread_id: str, namespace: str, checkpoint: dict[str, Any]) -> dict[str, Any]:
        query = (
            "SELECT b.channel, b.type, b.blob FROM jsonb_each_text(?::text::jsonb) AS v JOIN checkpoint_blobs AS b "
            "ON b.channel = v.key AND b.version = v.value WHERE b.thread_id = ? AND b.checkpoint_ns = ?"
        )
        versions = _json_text(checkpoint.get("channel_versions"))
        found = self._database.rows(query, versions, thread_id, namespace)
        return {channel: _loaded(self._serde, kind, body) for channel, kind, body in found if kind != "empty"}

    def _writes(self, thread_id: str, place: Sequence[Any]) -> list[tuple[str, str, str, Any]]:
        query = (
            f"SELECT task_id, {self._path}, channel, type, blob FROM checkpoint_writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx"
        )
        found = self._database.rows(query, thread_id, *place[:2])
        return [(task, path, channel, _loaded(self._serde, kind, body)) for task, path, channel, kind, body in found]


def _loaded(serde: Any, kind: Any, body: Any) -> Any:
    """A value of a checkpoint. What wrote it may have encrypted it, or be damaged: the thread cannot be stored then."""
    if isinstance(kind, str) and "+" in kind:
        cipher = kind.partition("+")[2]
        raise ValidationError(f"its checkpoints are encrypted ({cipher}): store them without, then import them")
    try:
        return serde.loads_typed((kind, body))
    except Exception as error:
        raise ValidationError(f"a value of the kind {kind!r} cannot be read: {error}") from error


def _saver(database: ForeignDatabase, serde: Any) -> _SqliteSaver | _PostgresSaver:
    kind = _PostgresSaver if database.columns("checkpoint_blobs") else _SqliteSaver
    return kind(database, serde)


def _json_text(value: object) -> str:
    from msgspec import json

    return json.encode(mapping(value)).decode()


class _Thread:
    """A thread on its way into a store."""

    def __init__(self, saver: _SqliteSaver | _PostgresSaver, thread_id: str) -> None:
        self._saver = saver
        self._thread_id = thread_id

    def count(self) -> int:
        found: set[str] = set()
        for each in self._saver.checkpoints(self._thread_id):
            if each.namespace == "":
                messages = items(mapping(each.checkpoint.get("channel_values")).get("messages"))
                found.update(getattr(message, "id", None) or repr(message) for message in messages)
        return len(found)

    async def write(self, store: Store, user_id: str | None) -> None:
        saver = store.langgraph_checkpointer
        is_new = await store.get_conversation(self._thread_id) is None
        versions: dict[tuple[str, str | None], Mapping[str, Any]] = {}
        for each in self._saver.checkpoints(self._thread_id):
            known = versions.get((each.namespace, each.parent), {})
            versions[each.namespace, each.id] = own = mapping(each.checkpoint.get("channel_versions"))
            if await saver.aget_tuple(self._config(each, each.id)) is not None:
                continue
            if is_new:
                await self._create(store, user_id, time(each.checkpoint.get("ts")))
                is_new = False
            # Only what has changed since the parent: the rest is stored with it.
            changed = {name: version for name, version in own.items() if known.get(name) != version}
            config = self._config(each, each.parent, user_id)
            stored = await saver.aput(config, _complete(each.checkpoint), cast(Any, each.metadata), changed)
            await self._write_tasks(saver, stored, each)

    async def _create(self, store: Store, user_id: str | None, at: datetime | None) -> None:
        """Creates the conversation as old as its first checkpoint."""
        with suppress(Conflict):  # another import has created it
            is_past = at is not None and at <= datetime.now(UTC)
            await store.create_conversation(self._thread_id, user_id=user_id, created_at=at if is_past else None)

    async def _write_tasks(self, saver: Any, config: Any, each: _Checkpoint) -> None:
        tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
        for task, path, channel, value in each.writes:
            tasks.setdefault((task, path), []).append((channel, value))
        for (task, path), writes in tasks.items():
            await saver.aput_writes(config, writes, task, path)

    def _config(self, each: _Checkpoint, id: str | None, user_id: str | None = None) -> Any:
        place = {"thread_id": self._thread_id, "checkpoint_ns": each.namespace}
        more: dict[str, Any] = {"checkpoint_id": id} if id else {}
        more |= {"user_id": user_id} if user_id else {}
        return {"configurable": place | more | {WRITTEN_AT: time(each.checkpoint.get("ts"))}}


def _complete(checkpoint: dict[str, Any]) -> Any:
    return {"channel_values": {}, "channel_versions": {}, "versions_seen": {}} | checkpoint
