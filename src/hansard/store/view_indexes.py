"""Indexes of the vectors of views that have more than a search compares, as a cache in this process.

An index is made from the stored vectors in the background, and follows them: each search lists its conversations, and
what has another version than the index has is read again. Nothing of it is stored, so nothing has to be repaired.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Iterable
from typing import TYPE_CHECKING

from msgspec import structs

from hansard.analysis import Lookup
from hansard.contract.backend import Backend
from hansard.contract.types import Context
from hansard.executor import run_in_thread
from hansard.model import Conversation
from hansard.search import scan, vector_index
from hansard.search.vector_index import VectorIndex
from hansard.search.vectors import VectorRow
from hansard.store import vector_records

if TYPE_CHECKING:
    from asyncio import Task

logger = logging.getLogger("hansard.embeddings")

MOST = 2_000_000
"""Vectors that all indexes of a store hold together: about 900 MB at 384 dimensions."""
_PAGE = 100

Scope = tuple[str, str | None, str | None]
"""The tenant, the user of the view, and the user whose conversations are searched."""


def scope_of(context: Context, lookup: Lookup) -> Scope:
    return context.tenant, context.user, lookup.user_id


class ViewIndexes:
    """The indexes of one embedder in a store. Shared by all views."""

    def __init__(self, backend: Backend, embedder: str, dimensions: int, tasks: set[Task[None]]) -> None:
        self._backend = backend
        self._embedder = embedder
        self._dimensions = dimensions
        self._tasks = tasks
        self._indexes: OrderedDict[Scope, ViewIndex] = OrderedDict()
        """The least recently used comes first."""
        self._has_warned = False

    def get(self, scope: Scope) -> ViewIndex | None:
        index = self._indexes.get(scope)
        if index is not None:
            self._indexes.move_to_end(scope)
        return index

    def add(self, scope: Scope, limit: int) -> ViewIndex | None:
        """Returns an empty index; None, with a warning, if its package is not installed."""
        if vector_index.is_installed():
            return self._indexes.setdefault(scope, ViewIndex(self))
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "search by meaning compares %s vectors, and there are more: to search all of them, "
                "pip install 'hansard[vectors]'",
                f"{limit:,}",
            )
        return None

    def drop(self, tenant: str, user: str) -> None:
        """Forgets the indexes of one user's conversations."""
        for scope in list(self._indexes):
            if scope[0] == tenant and user in scope[1:]:
                del self._indexes[scope]

    def room(self, index: ViewIndex) -> int:
        """Returns how many more vectors an index may hold; drops others for it, the least recently used first."""
        while (total := sum(map(len, list(self._indexes.values())))) >= MOST and len(self._indexes) > 1:
            del self._indexes[next(scope for scope, each in self._indexes.items() if each is not index)]
        return MOST - total

    def new_vectors(self) -> VectorIndex:
        return VectorIndex(self._dimensions)

    def start(self, work: Task[None]) -> None:
        self._tasks.add(work)
        work.add_done_callback(self._ended)

    def _ended(self, work: Task[None]) -> None:
        self._tasks.discard(work)
        if not work.cancelled() and (error := work.exception()) is not None:
            logger.warning("an index of vectors was not updated: %s: %s", type(error).__name__, error)

    async def versions(self, context: Context, conversations: Collection[Conversation]) -> list[int | None]:
        """Returns the version of each conversation that its vectors belong to."""
        keys = [(self._namespace(each.id), vector_records.STATE) for each in conversations]
        states = await self._backend.get_records(context, keys)
        return [None if state is None else state.value.get("version") for state in states]

    def rows(self, context: Context, id: str) -> AsyncIterator[list[VectorRow]]:
        return vector_records.chunks_of(self._backend, context, id, self._embedder)

    def listed(self, context: Context, lookup: Lookup) -> AsyncIterator[Conversation]:
        return scan.conversations(self._backend, context, lookup)

    def _namespace(self, id: str) -> tuple[str, ...]:
        return vector_records.namespace(id, self._embedder)


class ViewIndex:
    """The index of one view, and which versions of the conversations it has."""

    def __init__(self, indexes: ViewIndexes) -> None:
        self._indexes = indexes
        self.vectors = indexes.new_vectors()
        self.is_built = False
        self.is_full = False
        """Some conversations were left out, because the indexes hold `MOST` vectors."""
        self._versions: dict[str, int] = {}
        self._task: Task[None] | None = None

    def __len__(self) -> int:
        return len(self.vectors)

    async def refresh(
        self, context: Context, lookup: Lookup, conversations: Collection[Conversation], seconds: float | None
    ) -> bool:
        """Reads what has changed in these conversations; returns whether that was done within the time.

        The first time, all conversations of the view are read. Work that takes longer continues in the background.
        """
        loop = asyncio.get_running_loop()
        while (work := self._task) is not None and not work.done() and work.get_loop() is loop:
            if not (await asyncio.wait({work}, timeout=seconds))[0]:
                return False
        whole = Lookup(lookup.query, user_id=lookup.user_id)
        is_whole = lookup.conversation_id is None and lookup.agent_id is None and not lookup.metadata
        changed = self._changed(conversations)
        gone = self.vectors.conversations() - {each.id for each in conversations} if is_whole else set()
        if self.is_built and not changed and not gone:
            return True
        work = loop.create_task(self._update(context, changed, gone) if self.is_built else self._build(context, whole))
        self._task = work
        self._indexes.start(work)
        done, _ = await asyncio.wait({work}, timeout=seconds)
        if not done or work.cancelled():  # cancelled: the store is being closed
            return False
        work.result()
        return True

    def _changed(self, conversations: Iterable[Conversation]) -> list[Conversation]:
        return [each for each in conversations if self._versions.get(each.id) != each.version]

    async def _build(self, context: Context, whole: Lookup) -> None:
        await self._update(context, [each async for each in self._indexes.listed(context, whole)], ())
        self.is_built = True

    async def _update(self, context: Context, changed: list[Conversation], gone: Collection[str]) -> None:
        for id in gone:
            self._versions.pop(id, None)
            await run_in_thread(self.vectors.replace, id, ())
        self.is_full = False
        shared = structs.replace(context, user=None)  # vectors belong to the conversation
        for at in range(0, len(changed), _PAGE):
            page = changed[at : at + _PAGE]
            # Read before the vectors: if these change meanwhile, they are read again.
            for conversation, version in zip(page, await self._indexes.versions(shared, page), strict=True):
                if conversation.id not in self._versions and self._indexes.room(self) <= 0:
                    self.is_full = True
                    return
                await self._read(shared, conversation, version)

    async def _read(self, context: Context, conversation: Conversation, version: int | None) -> None:
        rows = [row async for chunk in self._indexes.rows(context, conversation.id) for row in chunk]
        await run_in_thread(self.vectors.replace, conversation.id, rows)
        if version == conversation.version or not (rows or conversation.message_count):
            self._versions[conversation.id] = conversation.version
