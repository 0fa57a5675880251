"""What the index remembers of each conversation's other side, as records of a tenant that nobody else opens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
from msgspec import Struct

from hansard import ids
from hansard.backend import Backend
from hansard.requests import Context, RecordQuery, RecordWrite

TENANT = "hansard:openai"
_IDENTITY = (("identity",), "mark")
_PAGE = 100


class State(Struct, frozen=True):
    remote: str
    """Its id at the API."""
    pushed: int = 0
    """Up to which seq messages were added there."""
    seen: str | None = None
    """Up to which entry others' were taken over."""
    generation: int = 0
    """How often it was written anew: keys differ, because an API may not take a deleted id again."""


class States:
    def __init__(self, index: Backend) -> None:
        self._index = index

    async def mark(self, now: datetime) -> str:
        """What only this index writes behind its keys."""
        context = Context(TENANT, now)
        found = (await self._index.get_records(context, [_IDENTITY]))[0]
        if found is None:
            mark = ids.new_id("")[-16:]
            await self._index.write_records(context, [RecordWrite(*_IDENTITY, mark)])
            return mark
        return str(found.value)

    async def get(self, context: Context, id: str) -> State | None:
        found = (await self._index.get_records(_ours(context), [(_place(context), id)]))[0]
        return None if found is None else msgspec.convert(found.value, State)

    async def put(self, context: Context, id: str, state: State) -> None:
        value = msgspec.to_builtins(state)
        await self._index.write_records(_ours(context), [RecordWrite(_place(context), id, value)])

    async def forget(self, context: Context, id: str) -> None:
        await self._index.write_records(_ours(context), [RecordWrite(_place(context), id, delete=True)])

    async def all(self, context: Context, tenant: str | None = None) -> AsyncIterator[tuple[str, str, State]]:
        """Tenant, conversation and state."""
        query = RecordQuery(prefix=("state",) if tenant is None else ("state", tenant), limit=_PAGE)
        more = True
        while more:
            found, more = await self._index.scan_records(_ours(context), query)
            for record in found:
                yield record.namespace[1], record.key, msgspec.convert(record.value, State)
            if found:
                query = msgspec.structs.replace(query, after=(found[-1].namespace, found[-1].key))


def _ours(context: Context) -> Context:
    return Context(TENANT, context.now)


def _place(context: Context) -> tuple[str, ...]:
    return "state", context.tenant
