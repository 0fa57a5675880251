"""A tenant's blobs and usage, and which participants take part in which conversations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from hansard import codec, rules
from hansard.backends.redis import read, rows
from hansard.backends.redis.batch import Operations
from hansard.backends.redis.keys import BUCKETS, RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.backends.redis.rows import StoredState
from hansard.backends.redis.state_cache import RedisStateCache
from hansard.backends.shared.lists import select_usage
from hansard.contract.types import Context, Participation
from hansard.model import NOT_YET, UsageRow, to_micros

_PIECE = 200
_FOREVER = "9999-99-99"


async def run_operations(nodes: Nodes, operations: Operations) -> list[int]:
    """Runs operations at one place, without conditions. Returns how many blobs and records they removed."""
    return (await operations.run(nodes))[1:] if operations.values else [0, 0]


# Blobs


async def put_blob(nodes: Nodes, keys: RedisKeys, tenant: str, sha256: str, data: bytes, keep_until: datetime) -> None:
    own = Operations()
    own.add("keep", keys.bucket(tenant, sha256), sha256, data, to_micros(keep_until))
    known = ("SADD", keys.tenants, tenant)
    # Before the commit, so that the tenant is known as soon as it holds data; and after, in case it was removed
    # meanwhile.
    await nodes.ask(keys.tenants, known, write=True)
    await run_operations(nodes, own)
    await nodes.ask(keys.tenants, known, write=True)


async def get_blobs(nodes: Nodes, keys: RedisKeys, tenant: str, digests: Sequence[str]) -> dict[str, bytes]:
    """One after another, because each may be large."""
    found: dict[str, bytes] = {}
    for sha256 in dict.fromkeys(digests):
        key = f"{keys.bucket(tenant, sha256)}:data:{sha256}"
        data = await nodes.ask(key, ("GET", key), write=False)
        if data is not None:
            found[sha256] = data
    return found


async def has_blobs(nodes: Nodes, keys: RedisKeys, tenant: str, digests: Sequence[str]) -> list[bool]:
    names = [f"{keys.bucket(tenant, sha256)}:data:{sha256}" for sha256 in digests]
    return [bool(each) for each in await nodes.ask_many([(name, ("EXISTS", name)) for name in names])]


async def damaged_blobs(nodes: Nodes, keys: RedisKeys, tenant: str) -> AsyncIterator[str]:
    """Yields the hashes of blobs whose bytes have another hash."""
    async for _, digests in _blobs(nodes, keys, tenant):
        for sha256 in digests:
            data = (await get_blobs(nodes, keys, tenant, [sha256])).get(sha256)
            if data is not None and not codec.is_blob(sha256, data):
                yield sha256


async def has_any_blob(nodes: Nodes, keys: RedisKeys, tenant: str) -> bool:
    buckets = [f"{keys.bucket(tenant, digit)}:kept" for digit in BUCKETS]
    return any(await nodes.ask_many([(name, ("EXISTS", name)) for name in buckets]))


async def measure_blobs(nodes: Nodes, keys: RedisKeys, tenant: str) -> tuple[int, int]:
    """Returns the number and total size of a tenant's blobs."""
    number = size = 0
    async for bucket, digests in _blobs(nodes, keys, tenant):
        names = [f"{bucket}:data:{sha256}" for sha256 in digests]
        lengths = await nodes.ask_many([(name, ("STRLEN", name)) for name in names])
        number, size = number + len(digests), size + sum(lengths)
    return number, size


async def _blobs(nodes: Nodes, keys: RedisKeys, tenant: str) -> AsyncIterator[tuple[str, list[str]]]:
    for digit in BUCKETS:
        bucket = keys.bucket(tenant, digit)
        start = 0
        while digests := await nodes.ask(bucket, ("ZRANGE", f"{bucket}:kept", start, start + _PIECE - 1), write=False):
            yield bucket, [each.decode() for each in digests]
            start += len(digests)


async def sweep_blobs(nodes: Nodes, keys: RedisKeys, context: Context, limit: int) -> int:
    """Removes blobs of a tenant that are no longer needed."""
    gone = 0
    now = to_micros(context.now)
    for digit in BUCKETS:
        bucket = keys.bucket(context.tenant, digit)
        ask = ("ZRANGEBYSCORE", f"{bucket}:idle", "-inf", now, "LIMIT", 0, limit - gone)
        digests = await nodes.ask(bucket, ask, write=True) if gone < limit else []
        own = Operations()
        for sha256 in digests:
            own.add("release", bucket, sha256, "", 0, now)
        gone += (await run_operations(nodes, own))[0]
    return gone


async def erase_blobs(nodes: Nodes, keys: RedisKeys, tenant: str) -> int:
    """Removes all blobs of a tenant, regardless of their keeping time, but not those that a message now refers to."""
    number = 0
    for digit in BUCKETS:
        bucket = keys.bucket(tenant, digit)
        digests = await nodes.ask(bucket, ("ZRANGE", f"{bucket}:kept", 0, -1), write=True)
        for start in range(0, len(digests), _PIECE):
            own = Operations()
            for sha256 in digests[start : start + _PIECE]:
                own.add("release", bucket, sha256, "", 0, "inf")
            number += (await run_operations(nodes, own))[0]
    return number


# Usage


async def usage(
    nodes: Nodes, keys: RedisKeys, context: Context, since: str | None, until: str | None
) -> list[UsageRow]:
    totals: list[UsageRow] = []
    root = keys.usage(context.tenant)
    for day in await _days(nodes, root, since, until):
        found = await nodes.ask(root, ("HGETALL", f"{root}:{day}"), write=False)
        totals += [rows.usage_of(day, *pair) for pair in zip(found[::2], found[1::2], strict=True)]
    return select_usage(totals, context)


async def _days(nodes: Nodes, root: str, since: str | None = None, until: str | None = None) -> list[str]:
    ask = ("ZRANGEBYLEX", f"{root}:days", f"[{since or ''}", f"({until or _FOREVER}")
    return [day.decode() for day in await nodes.ask(root, ask, write=False)]


async def erase_usage(nodes: Nodes, keys: RedisKeys, tenant: str, user_id: str | None) -> int:
    """Removes the rows of a user, or all of them; returns how many."""
    number = 0
    root = keys.usage(tenant)
    for day in await _days(nodes, root):
        key = f"{root}:{day}"
        fields = await nodes.ask(root, ("HKEYS", key), write=True)
        gone = [each for each in fields if user_id is None or rows.usage_user(each) == user_id]
        own = Operations()
        own.add_many("HDEL", key, gone)
        own.add("unlist", f"{root}:days", day, key)
        await run_operations(nodes, own)
        number += len(gone)
    return number


# Participants


async def participations(
    nodes: Nodes, keys: RedisKeys, states: RedisStateCache, context: Context, participant_id: str, limit: int
) -> list[Participation]:
    """Reads the conversations that the index names, and removes entries whose messages are gone."""
    key = keys.participant(context.tenant, participant_id)
    marks = await nodes.ask(key, ("HGETALL", key), write=False)
    found: list[Participation] = []
    for name, n in zip(marks[::2], marks[1::2], strict=True):
        if limit <= 0:
            break
        id = name.decode()
        entry = (await states.read((context.tenant, id))).entry
        ids = await _ids_by(states, context, entry, participant_id, limit) if entry else []
        if not ids:
            own = Operations()
            own.add("forget", key, id, n)
            await run_operations(nodes, own)
        elif entry is not None and rules.is_visible(entry.state.conversation, context):
            found.append(Participation(id, ids))
            limit -= len(ids)
    return found


async def _ids_by(
    states: RedisStateCache, context: Context, entry: StoredState, participant_id: str, limit: int
) -> list[str]:
    id = entry.state.conversation.id
    # The owner decides what is returned, not whether the index entry is right.
    whole = Context(context.tenant, NOT_YET)
    ids: list[str] = []
    after = 0
    while piece := await read.read_segments(states, whole, id, entry, after, rows.piece_of(entry)):
        for _, row in piece:
            who = row.extra.participant if row.extra else None
            if who is not None and who.kind == "user" and who.id == participant_id:
                ids.append(row.id)
        after = piece[-1][1].seq
        if len(ids) >= limit:
            break
    return ids[:limit]
