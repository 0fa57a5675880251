"""Writes checkpoints and task writes as records and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from msgspec import structs

from hansard.adapters.langgraph import delta, records, references
from hansard.adapters.langgraph.delta import MESSAGES, AddedMessages
from hansard.adapters.langgraph.forms import CHECKPOINTS, WRITES, WRITTEN_AT
from hansard.adapters.langgraph.history_sync import Fork, Placed, store_messages, store_written
from hansard.adapters.langgraph.messages import is_messages, messages_in
from hansard.adapters.langgraph.reader import NO_CHECKPOINT, CheckpointReader, place_of
from hansard.adapters.langgraph.records import Saved, TaskWrite, TaskWrites
from hansard.adapters.langgraph.references import SerializedValue
from hansard.adapters.langgraph.threads import KnownCheckpoint, Thread, ThreadCache
from hansard.adapters.langgraph.versions import copied
from hansard.errors import Conflict, ConversationNotFound
from hansard.model import NOT_YET, Record
from hansard.store import Store
from hansard.store.records import Delete, Put


class Fold(NamedTuple):
    """What the writes of a checkpoint are folded with when the next one is put."""

    refer_to_rows: Callable[[SerializedValue], SerializedValue]
    """Refers to the rows that messages have got with it."""
    dump: Callable[[str], SerializedValue]
    """Serializes a value of the next one, given its channel."""


class CheckpointWriter:
    """Writes checkpoints, and the writes of tasks, in one call of the saver."""

    def __init__(self, store: Store, serde: SerializerProtocol, threads: ThreadCache, reader: CheckpointReader) -> None:
        self._store = store
        self._serde = serde
        self._threads = threads
        self._reader = reader

    # Checkpoints

    async def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> None:
        thread_id, ns = place_of(config)
        parent_id = _parent(config)
        thread, shared = await self._share(config, checkpoint)
        parent = self._threads.known(thread_id, ns, parent_id)
        saved = Saved(
            parent=parent_id,
            body={name: copied(value) for name, value in checkpoint.items() if name not in ("id", "channel_values")},
            metadata=references.dump(self._serde, get_checkpoint_metadata(config, metadata), None),
            **self._values(parent_id, parent, checkpoint, new_versions, thread, shared),
        )
        is_shared_delta = not ns and self._is_sharing and delta.is_delta(checkpoint)
        if is_shared_delta or (shared is not None and shared.runs is not None):
            runs = shared.runs if shared is not None else None
            saved = structs.replace(
                saved, runs=runs, branch=thread.branch, tail=thread.tail, unseen=tuple(thread.unseen)
            )
        added = delta.added_in(config)
        if is_shared_delta and added is not None:
            saved = structs.replace(saved, added=added.runs, replaces_messages=added.is_all)
        if get_checkpoint_id(config) == NO_CHECKPOINT and MESSAGES in _delta_channels(metadata):
            # A delta channel is rebuilt from its writes; messages that others wrote before the first are its initial
            # value.
            begun = self._dump(thread.state.messages(), thread)
            saved = structs.replace(saved, values={**saved.values, MESSAGES: begun})
        fold = self._fold(thread, shared, checkpoint["channel_values"])
        place = records.namespace(CHECKPOINTS, thread_id, ns)
        await self._write(place, checkpoint["id"], saved, parent, fold)
        if ns and self._is_sharing:
            self._threads.note_subgraph(thread_id, place, checkpoint["id"])
        if not ns:
            await self._refer_subgraphs(thread_id, shared, fold.refer_to_rows)
            thread.head = max(thread.head, checkpoint["id"])
            # Replace the cached thread: a concurrent read may have cached an older one.
            self._threads.put(thread_id, thread)
            latest = shared.latest if shared is not None and thread.head == checkpoint["id"] else None
            self._threads.remember(thread_id, latest._replace(head=thread.head) if latest is not None else None)

    async def _share(self, config: RunnableConfig, checkpoint: Checkpoint) -> tuple[Thread, Placed | None]:
        """Puts the messages of a root graph's state into the history."""
        thread_id, ns = place_of(config)
        parent_id, values = _parent(config), checkpoint["channel_values"]
        thread = self._threads.get(thread_id) or await self._load_thread(config, thread_id, parent_id)
        await self._set_owner(thread_id, thread, _user(config))
        if ns or not self._is_sharing:
            return thread, None
        await self._follow(config, thread, checkpoint)
        if is_messages(values.get(MESSAGES)):
            fork = await self._fork(config, thread)
            latest = self._threads.latest(thread_id)
            latest = latest if latest is not None and latest.head == parent_id else None
            try:
                return thread, await store_messages(
                    self._store, thread_id, thread, values[MESSAGES], latest, fork, created_at=_time(config)
                )
            except BaseException:
                # It is unknown how much of them is stored, and on which branch.
                self._threads.forget(thread_id)
                raise
        tasks = self._threads.tasks(thread_id, ns, parent_id) if parent_id is not None else {}
        if delta.ADDED_TASK in tasks or (tasks and MESSAGES in (checkpoint.get("updated_channels") or ())):
            written = await self._written(thread_id, thread, tasks.values())
            return thread, await store_written(self._store, thread_id, thread, written, created_at=_time(config))
        return thread, None

    async def _follow(self, config: RunnableConfig, thread: Thread, checkpoint: Checkpoint) -> None:
        """Handles a change between an ordinary messages channel and a delta channel, or a delta channel that stays one.

        Sets up to which row the state that a checkpoint continues from knows the history.
        """
        thread_id, parent_id = place_of(config)[0], _parent(config)
        parent, added = self._threads.known(thread_id, "", parent_id), delta.added_in(config)
        was_delta = parent is not None and delta.was_delta(parent.saved)
        if parent_id is None or not (was_delta or delta.is_delta(checkpoint)):
            return
        if added is not None:
            thread.switch_branch(added.branch)
            thread.tail, thread.unseen = added.tail, []
        elif parent is not None and parent_id == thread.head and parent.saved.branch == thread.branch:
            thread.tail, thread.unseen = parent.saved.tail, list(parent.saved.unseen)
        elif parent is None or parent_id != thread.head or was_delta:
            # A delta channel that goes back, or one that an older version wrote: the rows there are its own.
            newest = await self._store.get_messages(thread_id, last=1, branch=thread.branch)
            thread.tail, thread.unseen = newest[-1].seq if newest else 0, []
        value = checkpoint["channel_values"].get(MESSAGES)
        if delta.is_snapshot(value) or is_messages(value):
            rows = await self._reader.rows(thread_id).after(thread.branch, 0)
            messages: Sequence[BaseMessage] = value if value is not None and is_messages(value) else ()
            delta.index_rebuilt_state(thread, rows, self._reader.state(thread_id, rows), messages)

    async def _fork(self, config: RunnableConfig, thread: Thread) -> Fork | None:
        """Whether a checkpoint continues from another one than the newest: then finds the messages of that one."""
        thread_id, parent_id = place_of(config)[0], _parent(config)
        added, known = delta.added_in(config), self._threads.known(thread_id, "", parent_id)
        if not thread.head or parent_id == thread.head:
            _limit_to_known(thread, known.saved if known is not None else None, added)
            return None
        if parent_id is None:
            return Fork(None)
        if known is None:
            await self._reader.get(thread_id, "", parent_id)
            known = self._threads.known(thread_id, "", parent_id)
        if known is None:
            return Fork(None)
        # Others may have read the thread since this run did, and cached another one, without these messages.
        await self._reader.pin(thread_id, thread, parent_id, known.saved)
        if added is None:
            return Fork(known.saved.branch)
        thread.pin("", added.branch, await self._reader.state_of_runs(thread_id, added.branch, added.runs))
        return Fork(added.branch)

    async def _written(self, thread_id: str, thread: Thread, tasks: Iterable[TaskWrites]) -> list[BaseMessage]:
        """Returns the messages that tasks wrote to a delta channel."""
        writes = [write for task in records.all_tasks((), tasks) for write in task.writes]
        blobs = [write.blob for write in writes if write.channel == MESSAGES]
        latest = [messages_in(value) for value in await self._reader.load(thread_id, thread.branch, blobs)]
        return [message for each in latest for message in each if not isinstance(message, RemoveMessage)]

    async def _load_thread(self, config: RunnableConfig, thread_id: str, parent_id: str | None) -> Thread:
        """Loads a thread that is not cached: creates the conversation if it is missing, and reads its messages."""
        conversation = await self._store.get_conversation(thread_id)
        if conversation is None:
            try:
                conversation = await self._store.create_conversation(thread_id, user_id=_user(config))
            except (Conflict, ConversationNotFound):
                # Created by another process at the same time; a backend may report it either way.
                conversation = await self._store.get_conversation(thread_id)
                if conversation is None:
                    raise
        if parent_id is not None:
            await self._reader.get(thread_id, "", None)
            await self._reader.get(thread_id, "", parent_id)
        thread = self._threads.get(thread_id) or Thread(conversation.branch)
        thread.is_owned = conversation.user_id is not None
        self._threads.put(thread_id, thread)
        return thread

    async def _set_owner(self, thread_id: str, thread: Thread, user: str | None) -> None:
        """Makes the user the owner of a conversation without one, so that erasing the user deletes it."""
        if user is not None and not thread.is_owned:
            with suppress(Conflict):
                await self._store.update_conversation(thread_id, user_id=user)
            thread.is_owned = True

    def _values(
        self,
        parent_id: str | None,
        parent: KnownCheckpoint | None,
        checkpoint: Checkpoint,
        new_versions: ChannelVersions,
        thread: Thread,
        shared: Placed | None,
    ) -> dict[str, Any]:
        """Returns the new values, and which records hold the others."""
        own: dict[str, SerializedValue] = {}
        homes: dict[str, str] = {}
        for name, value in checkpoint["channel_values"].items():
            if name == MESSAGES and shared is not None and shared.runs is not None:
                continue
            is_new = name in new_versions or not _has_version_of(parent, checkpoint, name)
            home = _holder_of(parent_id, parent, name) if not is_new else None
            if home is None:
                own[name] = self._dump(value, thread)
            else:
                homes[name] = home
        return {"values": own, "homes": homes}

    async def _write(
        self, place: tuple[str, ...], id: str, saved: Saved, parent: KnownCheckpoint | None, fold: Fold
    ) -> None:
        """Stores a checkpoint and folds the writes of its parent, in one step."""
        if parent is None or saved.parent is None:
            written = await self._store.records.write([_put(place, id, saved)])
        else:
            saved, written = await self._write_and_fold(place, id, saved, saved.parent, parent, fold)
        assert written[0] is not None
        self._threads.remember_checkpoint(
            place[1], records.checkpoint_ns(place), id, KnownCheckpoint(saved, written[0].revision)
        )

    async def _write_and_fold(
        self, place: tuple[str, ...], id: str, saved: Saved, parent_id: str, parent: KnownCheckpoint, fold: Fold
    ) -> tuple[Saved, list[Record | None]]:
        thread_id, ns = place[1], records.checkpoint_ns(place)
        tasks = dict(self._threads.tasks(thread_id, ns, parent_id))
        ours = dict(tasks)
        writes = records.namespace(WRITES, thread_id, ns)
        while True:
            slim = records.folded(parent.saved, tasks.values(), fold.refer_to_rows)
            late = [task for task in tasks if ((thread_id, ns, parent_id), task) in self._threads.in_flight]
            # At the revision that was read, even if nothing is added: deletions must be included in it, and values that
            # the parent and this one leave to older checkpoints must still exist.
            is_changed = tasks or saved.homes or slim != parent.saved
            batch: list[Put | Delete] = [_put(place, id, saved)]
            batch += [_put(place, parent_id, slim, parent.revision)] if is_changed else []
            batch += [Delete(writes, f"{parent_id}.{task}") for task in tasks]
            try:
                written = await self._store.records.write(batch)
            except Conflict:
                # Another process has folded the parent, or pruned: fold into what it left.
                is_there = await self._reader.refresh(thread_id, ns, parent_id, parent, tasks)
                saved = _rehomed(saved, parent if is_there else None, fold.dump)
                if not is_there:
                    return saved, await self._store.records.write([_put(place, id, saved)])
                continue
            if len(batch) > 1:
                assert written[1] is not None
                parent.saved, parent.revision = slim, written[1].revision
            self._threads.drop(thread_id, ns, parent_id, ours)
            if late:
                await self._delete_late(thread_id, ns, parent_id, late)
            return saved, written

    async def _refer_subgraphs(
        self, thread_id: str, shared: Placed | None, refer_to_rows: Callable[[SerializedValue], SerializedValue]
    ) -> None:
        """Makes records of subgraphs refer to the rows that their messages have got in the root graph's state."""
        places = self._threads.take_subgraphs(thread_id) if shared is not None and shared.new else []
        if not places:
            return
        found = await self._store.records.get_many(places)
        new = [(record, value) for record in found if record and (value := records.rewritten(record, refer_to_rows))]
        try:
            await self._store.records.write(
                [Put(old.namespace, old.key, value, old.revision, None, thread_id) for old, value in new]
            )
        except Conflict:
            # A running subgraph has changed one of them.
            for namespace, key in places:
                self._threads.note_subgraph(thread_id, namespace, key)

    def _fold(self, thread: Thread, shared: Placed | None, values: Mapping[str, Any]) -> Fold:
        new = shared.new if shared is not None else []
        return Fold(
            lambda blob: references.refer_to_rows(blob, lambda id: thread.places(id) if id else new),
            lambda channel: self._dump(values[channel], thread),
        )

    @property
    def _is_sharing(self) -> bool:
        return references.is_sharing(self._serde)

    async def _delete_late(self, thread_id: str, ns: str, id: str, tasks: Iterable[str]) -> None:
        """Deletes writes that were stored after they were folded. A task that stores its writes even later deletes them
        itself.

        One of the two always does: writes leave `in_flight` before their task checks what is cached, and the fold drops
        what is cached before it checks `in_flight`.
        """
        kept = self._threads.tasks(thread_id, ns, id)
        place = records.namespace(WRITES, thread_id, ns)
        await self._store.records.write(
            [
                Delete(place, f"{id}.{task}")
                for task in tasks
                if ((thread_id, ns, id), task) not in self._threads.in_flight and task not in kept
            ]
        )

    # Writes of tasks

    async def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread_id, ns = place_of(config)
        id = config["configurable"]["checkpoint_id"]
        thread = self._threads.get(thread_id)
        made = tuple(
            TaskWrite(WRITES_IDX_MAP.get(channel, idx), channel, self._dump(value, thread))
            for idx, (channel, value) in enumerate(writes)
        )
        place, key = records.namespace(WRITES, thread_id, ns), f"{id}.{task_id}"
        # Cache them before they are stored: the next checkpoint may be put at the same time, and folds them.
        kept = self._threads.tasks(thread_id, ns, id)
        before = kept[task_id].writes if task_id in kept else ()
        kept[task_id] = task = TaskWrites(task_path, task_id, records.merged(before, made))
        flight = ((thread_id, ns, id), task_id)
        self._threads.in_flight.add(flight)
        try:
            slim = (
                task if thread is not None else (await self._load_thread(config, thread_id, None)).with_references(task)
            )
            stored = await self._put_task(place, key, thread_id, slim)
            stored = task if stored is slim else stored
        finally:
            self._threads.in_flight.discard(flight)
        if ns and self._is_sharing:
            self._threads.note_subgraph(thread_id, place, key)
        if kept.get(task_id) is task:
            kept[task_id] = stored
        else:
            # They were folded before they were stored.
            await self._store.records.delete(place, key)

    async def _put_task(self, place: tuple[str, ...], key: str, thread_id: str, task: TaskWrites) -> TaskWrites:
        """Stores the writes of a task, merged with its earlier ones."""
        revision, merged = 0, task
        while True:
            try:
                await self._store.records.put(
                    place, key, records.pack(merged), expected_revision=revision, conversation_id=thread_id
                )
                return merged
            except Conflict:
                stored = await self._store.records.get(place, key)
                revision = stored.revision if stored else 0
                first = records.read_task(stored).writes if stored else ()
                merged = TaskWrites(task.task_path, task.task_id, records.merged(first, task.writes))

    def _dump(self, value: Any, thread: Thread | None) -> SerializedValue:
        if not self._is_sharing:
            return references.dump(self._serde, value, None)
        return references.dump(self._serde, value, thread.place_of if thread is not None else lambda _: None)


def _limit_to_known(thread: Thread, parent: Saved | None, added: AddedMessages | None) -> None:
    """Limits the rows that a thread knows to those that a run knows, which continues from the newest checkpoint.

    Others may have read the thread since the run did, and cached newer rows. The run has not removed these from its
    state: it has never seen them.
    """
    if added is not None and added.branch == thread.branch:
        thread.tail, thread.unseen = added.tail, []
    elif added is None and parent is not None and parent.branch == thread.branch:
        thread.tail, thread.unseen = parent.tail, list(parent.unseen)


def _rehomed(saved: Saved, parent: KnownCheckpoint | None, dump: Callable[[str], SerializedValue]) -> Saved:
    """Returns the checkpoint after others have changed its parent: values of older records may have moved."""
    homes = {name: home for name in saved.homes if (home := _holder_of(saved.parent, parent, name)) is not None}
    own = {name: dump(name) for name in saved.homes if name not in homes}
    return structs.replace(saved, homes=homes, values={**saved.values, **own})


def _put(place: tuple[str, ...], id: str, saved: Saved, revision: int | None = None) -> Put:
    return Put(place, id, records.pack(saved), revision, conversation_id=place[1])


def _user(config: RunnableConfig) -> str | None:
    user = config["configurable"].get("user_id")
    return user if isinstance(user, str) else None


def _time(config: RunnableConfig) -> datetime:
    """When the messages of an imported checkpoint were written; the store says it of others."""
    time = config["configurable"].get(WRITTEN_AT)
    return time if isinstance(time, datetime) else NOT_YET


def _delta_channels(metadata: CheckpointMetadata) -> Iterable[str]:
    return metadata.get("counters_since_delta_snapshot") or ()


def _parent(config: RunnableConfig) -> str | None:
    id = get_checkpoint_id(config)
    return None if id == NO_CHECKPOINT else id


def _has_version_of(parent: KnownCheckpoint | None, checkpoint: Checkpoint, channel: str) -> bool:
    """Whether a channel has the same version as in the parent.

    LangGraph names no new versions when it copies a checkpoint, and the copy's parent is the parent of the original.
    """
    version = checkpoint["channel_versions"].get(channel)
    before = parent.saved.body["channel_versions"] if parent is not None else {}
    return version is not None and before.get(channel) == version


def _holder_of(parent_id: str | None, parent: KnownCheckpoint | None, channel: str) -> str | None:
    """Returns the checkpoint whose record holds the parent's value."""
    if parent is None:
        return None
    return parent_id if channel in parent.saved.values else parent.saved.homes.get(channel)
