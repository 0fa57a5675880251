"""A LangGraph checkpointer on the Store, blocking and async in one object.

The thread is a conversation, and the root graph's `messages` are its history: see `threads`. Everything else is stored
in records of the conversation: see `records`. With a serializer that encrypts, messages stay in the checkpoints, and
the history does not show them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from hansard.adapters.blocking import Call
from hansard.adapters.history import uninterrupted
from hansard.adapters.langgraph import prune, records
from hansard.adapters.langgraph.delta import ADDED, ADDED_TASK, added_in, with_added
from hansard.adapters.langgraph.forms import CHECKPOINTS, WRITES
from hansard.adapters.langgraph.reader import CheckpointReader, LoadedCheckpoint, config_of, place_of
from hansard.adapters.langgraph.threads import ThreadCache
from hansard.adapters.langgraph.writer import CheckpointWriter
from hansard.store import Store


class HansardSaver(BaseCheckpointSaver[Any]):
    """Every method of a LangGraph checkpointer, including the optional ones."""

    def __init__(self, store: Store, call: Call, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._store = store
        self._call = call
        self._threads = ThreadCache()

    @property
    def _reader(self) -> CheckpointReader:
        return CheckpointReader(self._store, self.serde, self._threads)

    @property
    def _writer(self) -> CheckpointWriter:
        return CheckpointWriter(self._store, self.serde, self._threads, self._reader)

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Versions are numbers from 1 on; a thread that another saver created keeps its text versions."""
        if not isinstance(current, str):
            return super().get_next_version(current, channel)
        count = int(current.partition(".")[0]) + 1
        return f"{count:032}.{random.random():016}"

    # Reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns = place_of(config)
        found = await self._reader.get(thread_id, ns, get_checkpoint_id(config))
        if found is not None and ADDED in config["configurable"] and ADDED not in found.config["configurable"]:
            # A named checkpoint is read as it was, without what others wrote since.
            return found._replace(config=with_added(found.config, None))
        return found

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = 0
        async for each in self._reader.newest_first(config, before):
            if limit is not None and found >= limit:
                return
            if all(each.metadata.get(key) == value for key, value in (filter or {}).items()):
                found += 1
                yield each

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread_id, ns = place_of(config)
        id, added = get_checkpoint_id(config), added_in(config)
        return await self._reader.delta_history(thread_id, ns, id, channels, added) if channels else {}

    # Writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        # A checkpoint is several writes: complete them even if the run is stopped.
        return await uninterrupted(self._put_in_turn(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await uninterrupted(self._writer.put_writes(config, writes, task_id, task_path))

    async def _put_in_turn(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        async with self._threads.turn(place_of(config)[0]):
            return await self._put(config, checkpoint, metadata, new_versions)

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        await self._writer.put(config, checkpoint, metadata, new_versions)
        return config_of(*place_of(config), checkpoint["id"])

    # Deleting and copying

    async def adelete_thread(self, thread_id: str) -> None:
        """Deletes the conversation, with its messages."""
        await self._store.delete_conversation(thread_id)
        self._threads.discard(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        for thread_id in await prune.delete_runs(self._store, self._reader, set(run_ids)):
            self._threads.discard(thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`keep_latest` keeps, in each namespace, the newest checkpoint and what it depends on; `delete` keeps none.

        The messages in the history stay either way.
        """
        for thread_id in thread_ids:
            await prune.prune(self._store, self._reader, thread_id, strategy)
            self._threads.discard(thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies every checkpoint with its writes, oldest first, and the messages with them."""
        reader = self._reader
        for found in sorted(await reader.everything((CHECKPOINTS, source_thread_id)), key=lambda found: found.id):
            each = await reader.whole(found)
            # The versions do not matter here, only which values are the checkpoint's own.
            new: ChannelVersions = dict.fromkeys(found.saved.values, 0)
            config = config_of(target_thread_id, found.ns, found.saved.parent)
            place = records.namespace(WRITES, target_thread_id, found.ns)
            await self._copy_added(found, place)
            await self._put(config, each.checkpoint, each.metadata, new)
            # The next checkpoint folds them, and finds the messages of a delta channel in them.
            kept = self._threads.tasks(target_thread_id, found.ns, found.id)
            thread = self._threads.get(target_thread_id)
            for whole in await reader.tasks(found):
                task = thread.with_references(whole) if thread is not None else whole
                key = f"{found.id}.{task.task_id}"
                await self._store.records.put(place, key, records.pack(task), conversation_id=target_thread_id)
                kept[task.task_id] = task

    async def _copy_added(self, found: LoadedCheckpoint, place: tuple[str, ...]) -> None:
        """Copies what others wrote before a checkpoint, as a write of its parent, so that the copy includes it."""
        writes, parent = await self._reader.added_before(found), found.saved.parent
        if writes and parent is not None:
            config = config_of(place[1], found.ns, parent)
            await self.aput_writes(config, [(channel, value) for _, channel, value in writes], ADDED_TASK)

    # Blocking methods

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return cast("CheckpointTuple | None", self._call(self.aget_tuple(config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = self.alist(config, filter=filter, before=before, limit=limit)
        while (each := self._call(_next(found))) is not None:
            yield each

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        history = self._call(self.aget_delta_channel_history(config=config, channels=channels))
        return cast("Mapping[str, DeltaChannelHistory]", history)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        if not self._store.capabilities.blocking:
            return cast(RunnableConfig, self._call(self._put_in_turn(config, checkpoint, metadata, new_versions)))
        with self._threads.lock(place_of(config)[0]):
            return cast(RunnableConfig, self._call(self._put(config, checkpoint, metadata, new_versions)))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._call(self._writer.put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._call(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._call(self.adelete_for_runs(run_ids))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._call(self.aprune(thread_ids, strategy=strategy))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._call(self.acopy_thread(source_thread_id, target_thread_id))


async def _next(tuples: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    return await anext(tuples, None)
