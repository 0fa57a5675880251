"""The index's record of each conversation's other side, in a tenant that only the mirror uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct, structs

from hansard import ids
from hansard.contract.backend import Backend
from hansard.contract.types import Context, RecordQuery, RecordWrite
from hansard.errors import Conflict
from hansard.model import Conversation, Record

TENANT = "hansard:openai"
_MARK = (("identity",), "mark")
_ANCHOR = (("identity",), "anchor")
_SWEEP = (("sweep",), "due")
_PAGE = 100
_COPY_TIME = timedelta(days=1)
"""In which a copy is completed. Afterwards it was given up, and never reached the API."""


class MirrorState(Struct, frozen=True):
    """The state of a conversation at the API."""

    remote: str
    """Its id at the API."""
    born: str | None = None
    """When the conversation was created: one that expired and was created again has the same id."""
    pushed: int = 0
    """Up to which seq messages were added there."""
    seen: str | None = None
    """The last item of others that was taken over."""
    generation: int = 0
    """How often it was rewritten: keys differ, because an API may refuse a deleted id."""
    branch: str | None = None
    """In snapshots: the branch that was added."""
    metadata: dict[str, str] | None = None
    """The last known metadata at the API; None if unknown."""
    is_dirty: bool = False
    """Something was removed or changed here, and perhaps not there. Set before the change here."""
    is_dying: bool = False
    """It was being deleted: the items at the API are deleted, whatever became of it here."""

    def is_unchanged_since(self, other: MirrorState | None) -> bool:
        """Returns whether the API's side is unchanged: nothing was added or removed since."""
        if other is None:
            return False
        return structs.replace(self, seen=None, metadata=None) == structs.replace(other, seen=None, metadata=None)


class MirrorStates:
    def __init__(self, index: Backend) -> None:
        self._index = index

    # Of the index

    async def mark(self, now: datetime) -> str:
        """Returns the suffix of keys that only this index writes."""
        context = Context(TENANT, now)
        found = await self._one(context, _MARK)
        if found is None:
            made = RecordWrite(*_MARK, ids.new_id("")[-16:], expected_revision=0)
            with suppress(Conflict):  # another process was first
                await self._index.write_records(context, [made])
            found = await self._one(context, _MARK)
            assert found is not None
        return str(found.value)

    async def anchor(self, context: Context) -> str | None:
        """Returns a conversation at the API that only this index knows: if it is missing, the API is another one."""
        found = await self._one(_ours(context), _ANCHOR)
        return None if found is None else str(found.value)

    async def set_anchor(self, context: Context, remote: str) -> bool:
        """Returns False if there is one already."""
        try:
            await self._index.write_records(_ours(context), [RecordWrite(*_ANCHOR, remote, expected_revision=0)])
        except Conflict:
            return False
        return True

    async def sweep_is_due(self, context: Context) -> bool:
        return await self._one(_ours(context), _SWEEP) is not None

    async def set_sweep(self, context: Context, *, due: bool) -> None:
        """Records whether expired conversations may still have items at the API."""
        write = RecordWrite(*_SWEEP, True) if due else RecordWrite(*_SWEEP, delete=True)
        await self._index.write_records(_ours(context), [write])

    # Of conversations

    async def get(self, context: Context, id: str) -> MirrorState | None:
        found = await self._one(_ours(context), (_place(context), id))
        return None if found is None else _state(found)

    async def create(self, context: Context, id: str, state: MirrorState) -> bool:
        """Returns False if there is one already: another process was first."""
        write = RecordWrite(_place(context), id, msgspec.to_builtins(state), expected_revision=0)
        try:
            await self._index.write_records(_ours(context), [write])
        except Conflict:
            return False
        return True

    async def change(self, context: Context, id: str, **fields: Any) -> MirrorState | None:
        """Changes only these fields, whatever other processes change; None if there is no state."""
        return await self.rewrite(context, id, lambda state: structs.replace(state, **fields))

    async def rewrite(
        self, context: Context, id: str, change: Callable[[MirrorState], MirrorState]
    ) -> MirrorState | None:
        """Changes the current state, which may be newer than the one that was read."""
        while True:
            found = await self._one(_ours(context), (_place(context), id))
            if found is None:
                return None
            before = _state(found)
            state = change(before)
            if state == before:
                return state
            value = msgspec.to_builtins(state)
            write = RecordWrite(_place(context), id, value, expected_revision=found.revision)
            with suppress(Conflict):
                await self._index.write_records(_ours(context), [write])
                return state

    async def delete(self, context: Context, id: str) -> None:
        await self._index.write_records(_ours(context), [RecordWrite(_place(context), id, delete=True)])

    # Of copies, which reach the API when they are complete

    async def note_copy(self, context: Context, conversation: Conversation) -> None:
        """Records that a conversation is being copied to the index."""
        until = datetime.now(UTC) + _COPY_TIME
        write = RecordWrite(_copy_place(context), conversation.id, _birth(conversation), expires_at=until)
        await self._index.write_records(_ours(context), [write])

    async def forget_copy(self, context: Context, id: str) -> None:
        """Records that a conversation is no longer being copied: it is complete, or deleted."""
        await self._index.write_records(_ours(context), [RecordWrite(_copy_place(context), id, delete=True)])

    async def forget_copies(self, context: Context) -> None:
        """The same for all conversations of a tenant."""
        query = RecordQuery(prefix=_copy_place(context), exact=True, limit=_PAGE)
        more = True
        while more:
            found, more = await self._index.scan_records(_ours(context), query)
            gone = [RecordWrite(record.namespace, record.key, delete=True) for record in found]
            await self._index.write_records(_ours(context), gone)

    async def unreached(self, context: Context, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Returns the conversations that the API has never had, without those that are being copied."""
        stored = await self._named(_ours(context), _place(context), conversations)
        copied = await self._named(Context(TENANT, datetime.now(UTC)), _copy_place(context), conversations)
        return [each for each in conversations if each.id not in stored and copied.get(each.id) != _birth(each)]

    async def _named(
        self, context: Context, place: tuple[str, ...], conversations: Sequence[Conversation]
    ) -> dict[str, Any]:
        found = await self._index.get_records(context, [(place, each.id) for each in conversations])
        return {record.key: record.value for record in found if record is not None}

    async def all(self, context: Context, tenant: str | None = None) -> AsyncIterator[tuple[str, str, MirrorState]]:
        """Yields tenant, conversation and state."""
        query = RecordQuery(prefix=("state",) if tenant is None else ("state", tenant), limit=_PAGE)
        more = True
        while more:
            found, more = await self._index.scan_records(_ours(context), query)
            for record in found:
                yield record.namespace[1], record.key, _state(record)
            if found:
                query = structs.replace(query, after=(found[-1].namespace, found[-1].key))

    async def _one(self, context: Context, key: tuple[tuple[str, ...], str]) -> Record | None:
        return (await self._index.get_records(context, [key]))[0]


def _state(record: Record) -> MirrorState:
    return msgspec.convert(record.value, MirrorState)


def _ours(context: Context) -> Context:
    return Context(TENANT, context.now)


def _place(context: Context) -> tuple[str, ...]:
    return "state", context.tenant


def _copy_place(context: Context) -> tuple[str, ...]:
    return "copy", context.tenant


def _birth(conversation: Conversation) -> str:
    """Returns when it was created: another conversation of the same id was created at another time."""
    return conversation.created_at.isoformat()
