"""The two sides of a mirror, and the state that both directions share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import datetime
from typing import Literal

from msgspec import structs

from hansard import codec, rules
from hansard.backends.openai import names
from hansard.backends.openai.mirror_state import MirrorState, MirrorStates
from hansard.backends.openai.remote import Remote, RemoteEntry, RemotePart
from hansard.contract.backend import Backend
from hansard.contract.types import Context, Row
from hansard.errors import Unavailable
from hansard.model import Conversation, Message

Mode = Literal["delta", "snapshot"]
PULLED = "openai.pulled"
"""The key in the metadata of a message that others added at the API: a hash of its content there."""
OURS = "hansard_"
"""The prefix of metadata keys that only a mirror writes at the API."""
_ROWS, _BYTES = 200, 8_000_000
_KEY, _VALUE = 64, 512
PAIRS = 16
"""Characters of a metadata value, at most."""


class MirrorPair:
    def __init__(
        self, index: Backend, remote: Remote, states: MirrorStates, mark: str, mode: Mode, *, pulls: bool
    ) -> None:
        self.index = index
        self.remote = remote
        self.states = states
        self.mark = mark
        self.mode = mode
        self.pulls = pulls
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def one_at_a_time(self, context: Context, id: str) -> AsyncIterator[None]:
        """Serializes the work on a conversation in this process. Other processes are recognised by what they write."""
        place = context.tenant, id
        lock, users = self._locks.get(place) or (asyncio.Lock(), 0)
        self._locks[place] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[place]
            self._locks[place] = lock, users - 1
            if users == 1:
                del self._locks[place]

    # Messages and their counterparts at the API

    async def rows(self, context: Context, id: str, after: int = 0) -> AsyncIterator[list[Row]]:
        while rows := await self.index.read_rows(context, id, after, _ROWS, _BYTES):
            yield rows
            after = rows[-1].message.seq

    def stem(self, context: Context, id: str, message: Message, state: MirrorState) -> tuple[int, str]:
        return message.seq, names.stem_of(context, id, message, state.generation)

    async def pieces(
        self, context: Context, id: str, messages: Iterable[Message], state: MirrorState
    ) -> list[RemotePart]:
        """Returns the items to add for messages."""
        found: list[RemotePart] = []
        for message in await self._whole(context, list(messages)):
            found += self.remote.pieces(message, self.stem(context, id, message, state)[1])
        return found

    async def _whole(self, context: Context, messages: list[Message]) -> list[Message]:
        """Returns the messages with their blobs restored."""
        digests = {ref.sha256 for message in messages for ref in message.blobs}
        if not digests:
            return messages
        found = await self.index.get_blobs(context, list(digests))
        # In a copy: the stored messages are returned to callers unchanged.
        return [
            structs.replace(message, content=codec.restore(deepcopy(message.content), message.blobs, found), blobs=())
            for message in messages
        ]

    # The API itself

    async def ensure_anchor(self, context: Context) -> None:
        """Ensures that the API can be recognised later."""
        if await self.states.anchor(context) is None:
            made = await self.remote.create({f"{OURS}index": self.mark})
            if not await self.states.set_anchor(context, made):
                await self.remote.delete(made)

    async def is_gone(self, context: Context, state: MirrorState) -> bool:
        """Returns whether another client deleted the conversation there. Another server or account has none of ours."""
        if await self.remote.find(state.remote) is not None:
            return False
        anchor = await self.states.anchor(context)
        if anchor is None or await self.remote.find(anchor) is None:
            raise Unavailable(
                "the API knows neither this conversation nor this index: is it another server, or another key?",
                retryable=False,
            )
        return True


class SeenEntries:
    """The items that were read from the API."""

    def __init__(self) -> None:
        self.entries: list[RemoteEntry] = []
        self._others: dict[str, RemoteEntry] = {}
        self._parts: dict[tuple[int, str], set[int]] = {}
        self._counts: dict[tuple[int, str], int] = {}

    def add(self, entry: RemoteEntry) -> None:
        self.entries.append(entry)
        if entry.name is None:
            self._others[entry.id] = entry
            return
        self._parts.setdefault(entry.name.of, set()).add(entry.name.number)
        self._counts[entry.name.of] = entry.name.count

    def other(self, id: str) -> RemoteEntry | None:
        """Returns the item of another client with this id."""
        return self._others.get(id)

    def has(self, message: Message, stem: tuple[int, str]) -> bool:
        """Returns whether a message is there with all its parts."""
        if is_pulled(message) and message.id in self._others:
            return True
        return len(self._parts.get(stem, ())) == self._counts.get(stem, -1)


def is_pulled(message: Message) -> bool:
    return bool(message.metadata and message.metadata.get(PULLED))


def is_growing(message: Message, now: datetime) -> bool:
    """Returns whether a message is still in progress: one whose writer died is complete as it is."""
    return message.status == "in_progress" and not rules.is_lapsed(message, now)


def initial_metadata(context: Context, conversation: Conversation) -> dict[str, str]:
    """Returns the initial metadata at the API: the owner, and as much of ours as the API accepts."""
    ours = {f"{OURS}tenant": context.tenant[:_VALUE], f"{OURS}id": conversation.id[:_VALUE]}
    return {**dict(list(storable_metadata(conversation).items())[: PAIRS - len(ours)]), **ours}


def storable_metadata(conversation: Conversation) -> dict[str, str]:
    """Returns the metadata that an API can store."""
    return {
        key: value
        for key, value in conversation.metadata.items()
        if isinstance(value, str) and len(key) <= _KEY and len(value) <= _VALUE and not key.startswith(OURS)
    }


def ids_of(entries: Sequence[RemoteEntry]) -> list[str]:
    return [entry.id for entry in entries]
