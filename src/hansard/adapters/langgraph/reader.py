"""Reads checkpoints from records and rows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    empty_checkpoint,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from hansard import cursors
from hansard.adapters.history import answered
from hansard.adapters.langgraph import delta, records, references
from hansard.adapters.langgraph.delta import MESSAGES, AddedMessages
from hansard.adapters.langgraph.forms import CHECKPOINTS, WRITES
from hansard.adapters.langgraph.messages import FORMAT, id_of
from hansard.adapters.langgraph.records import Saved, TaskWrites
from hansard.adapters.langgraph.references import SerializedValue
from hansard.adapters.langgraph.rows import HistoryRows
from hansard.adapters.langgraph.threads import (
    KnownCheckpoint,
    LatestState,
    Runs,
    StateMessages,
    Thread,
    ThreadCache,
    runs_of,
    state_of,
)
from hansard.adapters.langgraph.versions import Version, copied
from hansard.contract.types import RecordQuery
from hansard.errors import ValidationError
from hansard.model import Conversation, Message, Record
from hansard.store import Store

NO_CHECKPOINT = "00000000-0000-0000-0000-000000000000"
"""The id of a thread's state before its first checkpoint, if others created the conversation."""

_PAGE = 100


class LoadedCheckpoint:
    """The decoded record of a checkpoint."""

    def __init__(self, record: Record) -> None:
        self.thread_id = record.namespace[1]
        self.ns = records.checkpoint_ns(record.namespace)
        self.id = record.key
        self.saved = records.read_saved(record)
        self.revision = record.revision
        self.namespace = record.namespace


class CheckpointReader:
    """Reads checkpoints in one call of the saver; each row of the history is read once."""

    def __init__(self, store: Store, serde: SerializerProtocol, threads: ThreadCache) -> None:
        self._store = store
        self._serde = serde
        self._threads = threads
        self._rows: dict[str, HistoryRows] = {}

    def rows(self, thread_id: str) -> HistoryRows:
        return self._rows.setdefault(thread_id, HistoryRows(self._store, thread_id))

    # One checkpoint

    async def get(self, thread_id: str, ns: str, id: str | None) -> CheckpointTuple | None:
        """Returns the checkpoint of that id as it was; or the newest, with what others have written since."""
        place = records.namespace(CHECKPOINTS, thread_id, ns)
        if id is not None:
            record = await self._store.records.get(place, id)
        else:
            page = await self._store.records.scan(place, exact=True, order="desc", limit=1)
            record = page.items[0] if page.items else None
        if record is None:
            return await self._before_the_first(thread_id) if id is None and not ns else None
        found = LoadedCheckpoint(record)
        separate = await self._separate(found)
        self._threads.remember_checkpoint(thread_id, ns, found.id, KnownCheckpoint(found.saved, found.revision))
        self._threads.tasks(thread_id, ns, found.id).update({task.task_id: task for task in separate})
        return await self._tuple(found, separate, is_newest=id is None, is_kept=True)

    async def refresh(
        self, thread_id: str, ns: str, id: str, known: KnownCheckpoint, tasks: dict[str, TaskWrites]
    ) -> bool:
        """Reads a checkpoint that others have changed, and their separate writes. False if it is gone."""
        record = await self._store.records.get(records.namespace(CHECKPOINTS, thread_id, ns), id)
        if record is None:
            return False
        found = LoadedCheckpoint(record)
        known.saved, known.revision = found.saved, found.revision
        for task in await self._separate(found):
            ours = tasks.get(task.task_id)
            tasks[task.task_id] = records.all_tasks([task], [ours])[0] if ours else task
        return True

    async def _before_the_first(self, thread_id: str) -> CheckpointTuple | None:
        """Returns, for a thread that others created, a checkpoint that is not stored, with their messages."""
        conversation = await self._store.get_conversation(thread_id)
        if conversation is None:
            # Others may have deleted it: drop it from the cache.
            self._threads.discard(thread_id)
            return None
        if not conversation.message_count or not references.is_sharing(self._serde):
            return None
        rows = self.rows(thread_id)
        thread = Thread(
            conversation.branch, _state_of(rows, answered(await rows.after(conversation.branch, 0), FORMAT))
        )
        thread.is_owned = conversation.user_id is not None
        if not thread.state:
            return None
        self._threads.put(thread_id, thread)
        checkpoint = empty_checkpoint()
        checkpoint["id"] = NO_CHECKPOINT
        checkpoint["channel_values"] = {"messages": thread.state.messages()}
        checkpoint["channel_versions"] = {"messages": 1}
        metadata: CheckpointMetadata = {"source": "fork", "step": -2, "parents": {}}
        return CheckpointTuple(config_of(thread_id, "", NO_CHECKPOINT), checkpoint, metadata, None, [])

    async def whole(self, found: LoadedCheckpoint) -> CheckpointTuple:
        """Returns the checkpoint as it was when it was put."""
        return await self._tuple(found, await self._separate(found))

    async def tasks(self, found: LoadedCheckpoint) -> list[TaskWrites]:
        """Returns the writes of a checkpoint, with whole messages in place of references."""
        tasks = records.all_tasks(found.saved.tasks, await self._separate(found))
        blobs = [write.blob for task in tasks for write in task.writes]
        rows = await self._referred(found.thread_id, found.saved.branch, blobs)
        return [records.changed(task, lambda blob: references.detach(blob, rows)) for task in tasks]

    async def _separate(self, found: LoadedCheckpoint) -> list[TaskWrites]:
        place = records.namespace(WRITES, found.thread_id, found.ns)
        scan = self._store.records.iter(place, key_prefix=f"{found.id}.", exact=True)
        return [records.read_task(record) async for record in scan]

    async def _tuple(
        self, found: LoadedCheckpoint, separate: Sequence[TaskWrites], *, is_newest: bool = False, is_kept: bool = False
    ) -> CheckpointTuple:
        saved = found.saved
        tasks = records.all_tasks(saved.tasks, separate)
        homes = await self._homes(found)
        writes = [(task.task_id, write) for task in tasks for write in task.writes]
        blobs = [*homes.values(), *(write.blob for _, write in writes)]
        loaded = iter(await self.load(found.thread_id, saved.branch, blobs))
        values: dict[str, Any] = {name: next(loaded) for name in homes}
        added: AddedMessages | None = None
        if saved.runs is not None:
            values[MESSAGES], added = await self._messages(found, is_newest=is_newest, is_kept=is_kept)
        elif is_newest and saved.branch is not None:
            added = await self._added_since(found)
        if added is not None and delta.is_snapshot(values.get(MESSAGES)):
            latest = (await self.state_of_runs(found.thread_id, added.branch, added.runs)).messages()
            values[MESSAGES] = delta.with_more(values[MESSAGES], latest, is_all=added.is_all)
        config = config_of(found.thread_id, found.ns, found.id)
        # Copy it: runs change what they receive, and the cached checkpoint is written again.
        checkpoint = {**copied(saved.body), "id": found.id, "channel_values": values}
        return CheckpointTuple(
            config=delta.with_added(config, added) if added is not None else config,
            checkpoint=cast(Checkpoint, checkpoint),
            metadata=cast(CheckpointMetadata, self.metadata(found)),
            parent_config=config_of(found.thread_id, found.ns, saved.parent) if saved.parent else None,
            pending_writes=[(task_id, write.channel, next(loaded)) for task_id, write in writes],
        )

    async def load(self, thread_id: str, branch: str | None, blobs: Sequence[SerializedValue]) -> list[Any]:
        """Returns the values of blobs, with the messages of the history that they refer to."""
        rows = await self._referred(thread_id, branch, blobs)
        return [references.load(self._serde, blob, rows) for blob in blobs]

    async def _referred(
        self, thread_id: str, branch: str | None, blobs: Sequence[SerializedValue]
    ) -> Mapping[int, list[Version]]:
        wanted = dict(row for blob in blobs for row in references.rows_in(blob))
        return await self.rows(thread_id).messages(branch, wanted) if wanted else {}

    async def _homes(self, found: LoadedCheckpoint) -> dict[str, SerializedValue]:
        """Returns every value of the checkpoint, from the records that hold them."""
        values = dict(found.saved.values)
        ids = list(dict.fromkeys(found.saved.homes.values()))
        held = await self._store.records.get_many([(found.namespace, id) for id in ids]) if ids else []
        homes = {record.key: records.read_saved(record).values for record in held if record is not None}
        for name, id in found.saved.homes.items():
            if name in homes.get(id, {}):
                values[name] = homes[id][name]
        return values

    async def _messages(
        self, found: LoadedCheckpoint, *, is_newest: bool, is_kept: bool
    ) -> tuple[list[Any], AddedMessages | None]:
        """Returns the messages of a checkpoint, and which of them others have written since."""
        conversation = await self._store.get_conversation(found.thread_id) if is_newest else None
        added: AddedMessages | None = None
        if conversation is not None:
            state = await self._newest_state(found, conversation)
            added = delta.added_since(found.id, found.saved, conversation.branch, state)
        else:
            state = await self._pinned_state(found.thread_id, found.saved)
            thread = self._threads.get(found.thread_id) if is_kept else None
            if thread is not None and found.saved.branch is not None:
                thread.pin(found.id, found.saved.branch, state)
        return state.messages(), added

    async def pin(self, thread_id: str, thread: Thread, id: str, saved: Saved) -> None:
        """Pins the messages of a checkpoint to a thread that is written, unless they are pinned already."""
        if saved.branch is not None and not thread.has_pinned(id):
            thread.pin(id, saved.branch, await self._pinned_state(thread_id, saved))

    async def _pinned_state(self, thread_id: str, saved: Saved) -> StateMessages:
        rows = self.rows(thread_id)
        return _state_of(rows, await rows.runs(saved.branch, saved.runs or ()))

    async def _newest_state(self, found: LoadedCheckpoint, conversation: Conversation) -> StateMessages:
        """Returns the messages of the newest checkpoint, and those that others have written since."""
        thread_id, saved, branch = found.thread_id, found.saved, conversation.branch
        latest = self._threads.latest(thread_id)
        if latest is not None and latest.is_at(conversation.version, found.id, branch):
            state = latest.state
        else:
            rows = self.rows(thread_id)
            # If others have continued on another branch, that is the history now.
            if branch == saved.branch:
                lines = await rows.runs(branch, saved.runs or ())
                more = await rows.runs(branch, [(seq, seq) for seq in saved.unseen])
                lines += _unknown(lines, [*more, *await rows.after(branch, saved.tail)])
            else:
                lines = _unknown((), await rows.after(branch, 0))
            state = _state_of(rows, answered(lines, FORMAT))
            # A message in progress changes without a new version.
            is_settled = all(row.status != "in_progress" for row in lines)
            latest = LatestState(conversation.version, found.id, branch, state) if is_settled else None
        before = self._threads.get(thread_id)
        if before is None or before.head <= found.id:
            thread = Thread(branch, state)
            thread.head, thread.is_owned = found.id, conversation.user_id is not None
            thread.tail = max(saved.tail if branch == saved.branch else 0, thread.tail)
            self._threads.put(thread_id, thread)
            self._threads.remember(thread_id, latest)
        return state

    async def _added_since(self, found: LoadedCheckpoint) -> AddedMessages | None:
        """Returns what others have written since a thread's newest checkpoint, if its messages are a delta channel."""
        thread_id, saved = found.thread_id, found.saved
        conversation = await self._store.get_conversation(thread_id)
        if conversation is None:
            return None
        rows, branch, is_all = self.rows(thread_id), conversation.branch, conversation.branch != saved.branch
        if is_all:
            more = await rows.after(branch, 0)
        else:
            more = await rows.runs(branch, [(seq, seq) for seq in saved.unseen])
            more += [row for row in await rows.after(branch, saved.tail) if not delta.is_nameless(row)]
        tail = max([0 if is_all else saved.tail, *(row.seq for row in more)])
        added = AddedMessages(found.id, branch, tuple(runs_of(row.seq for row in more)), tail, is_all)
        await self._remember(found, conversation, added)
        return added if more or is_all else None

    async def _remember(self, found: LoadedCheckpoint, conversation: Conversation, added: AddedMessages) -> None:
        """Caches the thread of a newest checkpoint whose messages are a delta channel."""
        thread = self._threads.get(found.thread_id)
        if thread is None or (thread.branch != added.branch and thread.head <= found.id):
            thread = Thread(added.branch)
            thread.tail, thread.is_owned = added.tail, conversation.user_id is not None
            self._threads.put(found.thread_id, thread)
        if thread.branch == added.branch:
            thread.head = max(thread.head, found.id)
            thread.add((await self.state_of_runs(found.thread_id, added.branch, added.runs)).places())

    def state(self, thread_id: str, rows: Sequence[Message]) -> StateMessages:
        return _state_of(self.rows(thread_id), rows)

    async def state_of_runs(self, thread_id: str, branch: str | None, runs: Runs) -> StateMessages:
        rows = self.rows(thread_id)
        return _state_of(rows, answered(_unknown((), await rows.runs(branch, runs)), FORMAT))

    # Many

    async def newest_first(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> AsyncIterator[CheckpointTuple]:
        configurable = config["configurable"] if config else {}
        limit = get_checkpoint_id(before) if before else None
        if config is not None and (id := get_checkpoint_id(config)):
            found = await self.get(_thread_of(configurable), configurable.get("checkpoint_ns") or "", id)
            if found is not None and (limit is None or id < limit):
                yield found
            return
        if config is not None and "checkpoint_ns" in configurable:
            place = records.namespace(CHECKPOINTS, _thread_of(configurable), configurable["checkpoint_ns"] or "")
            async for each in self._descending(place, limit):
                yield await self.whole(each)
            return
        prefix = (CHECKPOINTS, _thread_of(configurable)) if config is not None else (CHECKPOINTS,)
        every = await self.everything(prefix)
        for each in sorted(every, key=lambda found: found.id, reverse=True):
            if limit is None or each.id < limit:
                yield await self.whole(each)

    async def _descending(self, place: tuple[str, ...], before: str | None) -> AsyncIterator[LoadedCheckpoint]:
        scan = RecordQuery(prefix=place, exact=True)
        cursor = cursors.of_record(Record(place, before, None), scan) if before else None
        while True:
            page = await self._store.records.scan(place, exact=True, order="desc", after=cursor, limit=_PAGE)
            for record in page.items:
                yield LoadedCheckpoint(record)
            cursor = page.next_cursor
            if cursor is None:
                return

    async def everything(self, prefix: tuple[str, ...]) -> list[LoadedCheckpoint]:
        return [LoadedCheckpoint(record) async for record in self._store.records.iter(prefix)]

    def metadata(self, found: LoadedCheckpoint) -> dict[str, Any]:
        return cast("dict[str, Any]", references.load(self._serde, found.saved.metadata, {}))

    # Delta channels

    async def delta_history(
        self, thread_id: str, ns: str, id: str | None, channels: Sequence[str], added: AddedMessages | None = None
    ) -> dict[str, DeltaChannelHistory]:
        """Returns what each channel's value is rebuilt from: the writes of the ancestors, back to one that holds the
        value.

        They include what others wrote before the checkpoints on the way and, if the newest one was read, since.
        """
        place = records.namespace(CHECKPOINTS, thread_id, ns)
        writes: dict[str, list[PendingWrite]] = {name: [] for name in channels}
        seeds: dict[str, Any] = {}
        if added is not None and MESSAGES in writes:
            latest = await self.state_of_runs(thread_id, added.branch, added.runs)
            writes[MESSAGES].append(delta.write_of(latest.messages(), is_all=added.is_all))
        wanted: str | None = id
        child: LoadedCheckpoint | None = None
        async for each in self._descending(place, None):
            if wanted is not None and each.id != wanted:
                continue
            wanted = each.saved.parent
            if child is not None:
                _gather(await self.whole(each), writes, seeds, await self.added_before(child))
            child = each
            if wanted is None or len(seeds) == len(channels):
                break
        history: dict[str, DeltaChannelHistory] = {}
        for name in channels:
            history[name] = {"writes": writes[name][::-1]}
            if name in seeds:
                history[name]["seed"] = seeds[name]
        return history

    async def added_before(self, found: LoadedCheckpoint) -> list[PendingWrite]:
        """Returns what others wrote between the parent of a checkpoint and the checkpoint."""
        saved = found.saved
        if not saved.added and not saved.replaces_messages:
            return []
        latest = await self.state_of_runs(found.thread_id, saved.branch, saved.added)
        return [delta.write_of(latest.messages(), is_all=saved.replaces_messages)]


def _unknown(known: Sequence[Message], more: Sequence[Message]) -> list[Message]:
    """Returns the rows without those whose ids, as graphs give them, are known: an interrupted run may have put one
    too.

    A message that a graph has changed is a new row, in the position of the old one.
    """
    ids = {id_of(row) for row in known} - {None} if more else set()
    unknown: list[Message] = []
    places: dict[str, int] = {}
    for row in more:
        id = id_of(row)
        if id is None:
            unknown.append(row)
        elif id not in ids and id not in places:
            places[id] = len(unknown)
            unknown.append(row)
        elif id in places and unknown[places[id]].content != row.content:
            unknown[places[id]] = row
    return unknown


def _state_of(rows: HistoryRows, lines: Sequence[Message]) -> StateMessages:
    return state_of((row, rows.versions(row)) for row in lines)


def _gather(
    ancestor: CheckpointTuple,
    writes: dict[str, list[PendingWrite]],
    seeds: dict[str, Any],
    added: Sequence[PendingWrite],
) -> None:
    for write in reversed([*added, *(ancestor.pending_writes or [])]):
        if write[1] in writes and write[1] not in seeds:
            writes[write[1]].append(write)
    values = ancestor.checkpoint["channel_values"]
    for name in writes:
        if name in values and name not in seeds:
            seeds[name] = values[name]


def place_of(config: RunnableConfig) -> tuple[str, str]:
    """Returns the thread and the namespace."""
    configurable = config["configurable"]
    return _thread_of(configurable), configurable.get("checkpoint_ns") or ""


def _thread_of(configurable: Mapping[str, Any]) -> str:
    """Refuses no id: all runs whose id was forgotten would share the conversation 'None'."""
    thread_id = configurable["thread_id"]
    if thread_id is None or thread_id == "":
        raise ValidationError(f"thread_id is {thread_id!r} in the config of the run: it must name a conversation")
    return str(thread_id)


def config_of(thread_id: str, ns: str, id: str | None) -> RunnableConfig:
    configurable = {"thread_id": thread_id, "checkpoint_ns": ns}
    return {"configurable": configurable | ({"checkpoint_id": id} if id else {})}
