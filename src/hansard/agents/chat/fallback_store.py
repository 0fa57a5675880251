"""Where a chat is recorded: its store and, while that is away, a local fallback whose messages are moved later.

A store that stores nothing has a substitute in memory, which lives as long as the chat, so that the model sees the
history.

A conversation in the fallback is marked in its metadata. `sync` appends its messages to the store, by their ids, and
then removes it. So an interrupted sync can be repeated, and nothing is stored twice.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from hansard.agents import delivery
from hansard.backends.memory import MemoryBackend
from hansard.errors import Conflict, ConversationNotFound, HansardError, Unavailable
from hansard.model import Conversation, Message, Problem
from hansard.store import Store

logger = logging.getLogger("hansard.chat")

T = TypeVar("T")
MARK = "awaiting_sync"
_REMEMBERED = 50
_PAUSE = 5.0
"""Seconds between two attempts to reach a store that was away."""
_BATCH = 100
_TWIN_CONVERSATIONS, _TWIN_MESSAGES = 100, 1000
"""The most that the substitute of a store that stores nothing holds; the oldest are removed first."""


class Synced(Struct):
    """The result of a sync."""

    conversations: int = 0
    messages: int = 0
    conflicts: list[Problem] = []
    """What the store did not accept. It stays in the fallback."""


class Stores:
    """A store and, optionally, a fallback."""

    def __init__(self, store: Store, fallback: Store | None) -> None:
        self.primary = store
        self.fallback = fallback
        self.recorded_in = _recording_store(store)
        """Where the chat is recorded while the store is available."""
        self._retry = delivery.Retry(_PAUSE)
        self._recent: deque[Message] = deque(maxlen=_REMEMBERED)
        """What this chat has recorded of its conversation, so that it can continue elsewhere."""

    @property
    def is_away(self) -> bool:
        return self._retry.is_behind

    @property
    def current(self) -> Store:
        return self.fallback if self.is_away and self.fallback is not None else self.recorded_in

    def use(self, store: Store) -> None:
        self.primary = store
        self.recorded_in = _recording_store(store)
        self._retry.succeeded()
        self.discard_recent()

    def discard_recent(self) -> None:
        """Drops the remembered messages, for another conversation."""
        self._recent.clear()

    def remember(self, message: Message) -> None:
        if self.fallback is not None:
            kept = [each for each in self._recent if each.id != message.id]
            self._recent = deque([*kept, message], maxlen=_REMEMBERED)

    async def run_in_store(self, conversation_id: str, act: Callable[[Store], Awaitable[T]]) -> T:
        """Runs `act` in the store or, while that is away, in the fallback."""
        try:
            return await act(self.current)
        except Unavailable as error:
            if self.fallback is None or self.is_away:
                raise
            logger.warning("the store is away (%s): continuing in the fallback", error)
        await self._move(conversation_id)
        return await act(self.fallback)

    async def read(self, conversation_id: str, act: Callable[[Store], Awaitable[T]], *, sought: str | None = None) -> T:
        """Reads from the store or, while that is away, from the fallback, if the conversation is there.

        Raises `Unavailable` for what only the store has. `sought` is the conversation to read, if it is another one.
        """
        await self.come_back()
        id = sought or conversation_id
        found = await self.run_in_store(conversation_id, act)
        if self.is_away and self.fallback is not None and await self.fallback.get_conversation(id) is None:
            raise Unavailable(
                f"the store is away, and conversation {id!r} is not in the fallback: only the store has it"
            )
        return found

    async def _move(self, conversation_id: str) -> None:
        assert self.fallback is not None
        self._retry.failed()
        if self._recent:
            # `revive`: earlier messages in the fallback were deleted when they were synced.
            await self.fallback.append(conversation_id, self._recent, metadata={MARK: True}, revive=True)

    async def append(self, conversation_id: str, message: Message, **owner: str | None) -> Message:
        """Returns the message as it is stored, in the store or the fallback."""

        async def act(store: Store) -> Message:
            marked: dict[str, Any] = {"metadata": {MARK: True}} if store is self.fallback else {}
            appended = await store.append(conversation_id, message, **owner, **marked)  # type: ignore[arg-type]
            if marked and not appended.created:
                await self._mark(store, conversation_id)
            return appended.messages[0]

        stored = await self.run_in_store(conversation_id, act)
        self.remember(stored)
        return stored

    async def _mark(self, fallback: Store, conversation_id: str) -> None:
        conversation = await fallback.get_conversation(conversation_id)
        if conversation is not None and conversation.metadata.get(MARK) is not True:
            await fallback.update_conversation(conversation_id, metadata={MARK: True})

    async def come_back(self) -> None:
        """Returns to the store, with the messages of the fallback, if it is available again."""
        if not self.is_away or not self._retry.is_due:
            return
        try:
            await self.sync()
        except Unavailable:
            self._retry.failed()

    async def sync(self) -> Synced:
        """Moves the messages in the fallback to the store, and continues there."""
        done = Synced()
        if self.fallback is None:
            return done
        while True:
            page = await self.fallback.list_conversations(metadata={MARK: True}, archived=None, limit=_BATCH)
            for conversation in page.items:
                await self._sync_one(self.fallback, conversation, done)
            if not page.items:
                break
        self._retry.succeeded()
        return done

    async def _sync_one(self, fallback: Store, conversation: Conversation, done: Synced) -> None:
        before = len(done.conflicts)
        batch: list[Message] = []
        async for message in fallback.iter_messages(conversation.id):
            batch.append(message)
            if len(batch) == _BATCH:
                await self._store(conversation, batch, done)
                batch = []
        if batch:
            await self._store(conversation, batch, done)
        if len(done.conflicts) == before:
            try:
                # Remove only what was read: another chat may have written since.
                await fallback.clear_messages(conversation.id, expected_version=conversation.version)
            except (Conflict, ConversationNotFound):
                return  # If it is still there, it is still marked, and is synced again.
            await fallback.delete_conversation(conversation.id)
            done.conversations += 1
        else:
            await fallback.update_conversation(conversation.id, metadata={MARK: "conflict"})

    async def _store(self, conversation: Conversation, batch: list[Message], done: Synced) -> None:
        try:
            await self._append(conversation, batch, done)
        except Conflict:
            # One of them is refused: store the others one by one.
            for message in batch:
                try:
                    await self._append(conversation, [message], done)
                except HansardError as error:
                    if not delivery.is_refusal(error):
                        raise
                    done.conflicts.append(Problem(f"{conversation.id}/{message.id}", str(error)))

    async def _append(self, conversation: Conversation, batch: list[Message], done: Synced) -> None:
        appended = await self.recorded_in.append(
            conversation.id,
            batch,
            user_id=conversation.user_id,
            agent_id=conversation.agent_id,
            title=conversation.title,
            metadata={key: value for key, value in conversation.metadata.items() if key != MARK},
            split=True,
        )
        done.messages += appended.stored
        for mine, stored in zip(batch, appended.messages, strict=True):
            if stored.status == "in_progress" and mine.status != "in_progress":
                # Started in the store, completed in the fallback.
                await delivery.complete(self.recorded_in, conversation.id, mine)


def _recording_store(store: Store) -> Store:
    if store.capabilities.keeps:
        return store
    backend = MemoryBackend(max_conversations=_TWIN_CONVERSATIONS, max_messages=_TWIN_MESSAGES)
    twin = Store(backend, limits=store.limits, tenant=store.tenant_id)
    return twin if store.user_id is None else twin.user(store.user_id)
