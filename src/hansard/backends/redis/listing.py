"""Lists of conversations: sorted sets whose members are a time and an id, so that a page is one range of them.

A member is only a pointer. The conversations are read from their own places; if one has moved since, the page is read
again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from hansard import rules
from hansard.backends.redis.connection import Command
from hansard.backends.redis.keys import RedisKeys, list_member, list_members
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.rows import StoredState, state_of
from hansard.contract.types import Context, ConversationQuery
from hansard.model import Conversation

_PIECE = 200
_TRIES = 5


async def list_conversations(
    nodes: Nodes, keys: RedisKeys, context: Context, query: ConversationQuery, settle: Callable[[str], Awaitable[None]]
) -> tuple[list[Conversation], bool]:
    """`settle` finishes the writes that others have left open in the tenant: they may have died since the last try."""
    page: list[Conversation] = []
    moved, tries = True, 0
    while moved and tries < _TRIES:
        # Under constant writing, a conversation that keeps moving is shown at its new position, by a later page or
        # call.
        await settle(context.tenant)
        page, moved = await _page(nodes, keys, context, query)
        tries += 1
    return page[: query.limit], len(page) > query.limit


async def list_unless(
    nodes: Nodes,
    keys: RedisKeys,
    context: Context,
    query: ConversationQuery,
    settle: Callable[[str], Awaitable[None]],
    unless: tuple[str, Command],
) -> tuple[list[Conversation], bool] | None:
    """Lists conversations, or returns None if the command `unless` finds anything. Both are asked in one round trip."""
    await settle(context.tenant)
    piece = min(query.offset + query.limit + 1, _PIECE)
    noted, first = await nodes.ask_many([unless, _range(keys, context, query, piece)])
    if noted:
        return None
    page, moved = await _page(nodes, keys, context, query, first)
    if moved:
        return await list_conversations(nodes, keys, context, query, settle)
    return page[: query.limit], len(page) > query.limit


async def _page(
    nodes: Nodes, keys: RedisKeys, context: Context, query: ConversationQuery, first: list[bytes] | None = None
) -> tuple[list[Conversation], bool]:
    """Returns the matches, one more than the limit if there are more; and whether a conversation moved meanwhile.

    `first` are the first members, if they were read already.
    """
    found: list[Conversation] = []
    skip, moved = query.offset, False
    wanted = query.offset + query.limit + 1
    async for members, entries in _walk(nodes, keys, context, query, min(wanted, _PIECE), first):
        for member, entry in zip(members, entries, strict=True):
            if entry is None or list_members(entry.state.conversation)[query.sort] != member:
                moved = True
                continue
            if not rules.matches(entry.state.conversation, query, context):
                continue
            if skip:
                skip -= 1
                continue
            found.append(entry.state.conversation)
            if len(found) > query.limit:
                return found, moved
    return found, moved


async def _walk(
    nodes: Nodes, keys: RedisKeys, context: Context, query: ConversationQuery, piece: int, first: list[bytes] | None
) -> AsyncIterator[tuple[list[bytes], list[StoredState | None]]]:
    members = first
    last: bytes | None = None
    while True:
        if members is None:
            key, command = _range(keys, context, query, piece, last)
            members = await nodes.ask(key, command, write=False)
        if members:
            yield members, await states_of(nodes, keys, context.tenant, [id_of(each) for each in members])
        if len(members) < piece:
            return
        last, piece = members[-1], _PIECE
        members = None


def _range(
    keys: RedisKeys, context: Context, query: ConversationQuery, piece: int, last: bytes | None = None
) -> tuple[str, Command]:
    """Returns the key of a list, and the command that reads so many members of it, after the last one."""
    key = f"{_list_root(keys, context, query)}:{query.sort}"
    low = b"-" if query.above is None else b"(" + list_member(*query.above)
    high = b"+" if query.below is None else b"(" + list_member(*query.below)
    if query.newest_first:
        high = high if last is None else b"(" + last
        return key, ("ZREVRANGEBYLEX", key, high, low, "LIMIT", 0, piece)
    low = low if last is None else b"(" + last
    return key, ("ZRANGEBYLEX", key, low, high, "LIMIT", 0, piece)


def _list_root(keys: RedisKeys, context: Context, query: ConversationQuery) -> str:
    owner = query.user_id if query.user_id is not None else context.user
    if owner is not None:
        return keys.list_root(context.tenant, "user", owner)
    return keys.list_root(context.tenant, "agent", query.agent_id)


async def states_of(nodes: Nodes, keys: RedisKeys, tenant: str, ids: Sequence[str]) -> list[StoredState | None]:
    """Returns conversations by their ids; None for one that is gone."""
    heads = [f"{keys.conversation(tenant, id)}:head" for id in ids]
    found = await nodes.ask_many([(head, ("HGETALL", head)) for head in heads])
    return [_state_or_none(fields, tenant, id) for id, fields in zip(ids, found, strict=True)]


def _state_or_none(fields: list[Any], tenant: str, id: str) -> StoredState | None:
    pairs = dict(zip(fields[::2], fields[1::2], strict=True))
    return state_of(pairs, f"conversation {id!r} of tenant {tenant!r}") if pairs else None


def id_of(member: bytes) -> str:
    return member[8:].decode()


async def everything(nodes: Nodes, keys: RedisKeys, tenant: str) -> AsyncIterator[list[bytes]]:
    """Yields the list members of all of a tenant's conversations, including expired ones, by the time of their last
    change."""
    key = f"{keys.tenant(tenant)}:updated_at"
    low = b"-"
    while True:
        members: list[bytes] = await nodes.ask(key, ("ZRANGEBYLEX", key, low, b"+", "LIMIT", 0, _PIECE), write=False)
        if members:
            yield members
        if len(members) < _PIECE:
            return
        low = b"(" + members[-1]
