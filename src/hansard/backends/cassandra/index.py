"""The search index: one row for each message, with the set of its terms under SAI.

A row is in the partition of its owner and of the month of its message, so that the view of a user asks few partitions
and none grows without a bound. Terms begin with a digest of the prefix and the tenant: a search without a user asks
SAI over all partitions. A term is `=word`, or the first one (`1w`) or three (`3wor`) characters of words, for prefixes.

Appends do not touch the index. The head of a conversation says up to which seq its messages are indexed, and the table
`unindexed` names the conversations with others. A search reads those messages, or indexes them if they are many, in the
three steps of `heads.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from msgspec import structs

from hansard.analysis import GAP, VERSION, columns, searchable
from hansard.backends.cassandra import effects, read
from hansard.backends.cassandra.connection import Link, Statement, some_at_once
from hansard.backends.cassandra.heads import Heads
from hansard.backends.cassandra.read import ConversationView, Name
from hansard.backends.cassandra.rows import Head
from hansard.contract.types import Row
from hansard.errors import TimedOut
from hansard.executor import run_in_thread
from hansard.model import Message, from_micros, to_micros

_PIECE = 500
_PIECE_BYTES = 4 << 20
_TOGETHER = 50
"""Messages whose terms are found at once."""
_AT_ONCE = 4
"""Conversations."""
_PATIENCE = 10.0
"""Seconds for which a conversation is indexed that others keep changing."""
_SECOND = 1_000_000
# Not the global generator, which is the application's: it may be seeded alike in all processes.
_random = random.SystemRandom()


# Rows


def scope_of(prefix: str, tenant: str) -> str:
    """What the terms of a tenant begin with."""
    return hashlib.sha256(f"{prefix}\0{tenant}".encode()).hexdigest()[:12]


def month_of(created_at: int) -> int:
    time = from_micros(created_at)
    return time.year * 100 + time.month


def period_of(month: int) -> tuple[int, int]:
    """From its first moment to before the first one of the next month."""
    year, number = divmod(month, 100)
    begin = to_micros(datetime(year, number, 1, tzinfo=UTC))
    return begin, begin + monthrange(year, number)[1] * 86_400 * _SECOND


def place_of(prefix: str, tenant: str, owner: str, month: int, id: str) -> tuple[str, str, str, int, int]:
    """The partition of a message. What has no owner is spread over several."""
    return prefix, tenant, owner, month, 0 if owner else effects.bucket_of(id)


def terms_of(scope: str, words: Iterable[str]) -> set[str]:
    found = set(words) - {GAP}
    begins = {f"{scope}1{word[0]}" for word in found} | {f"{scope}3{word[:3]}" for word in found if len(word) > 2}
    return {f"{scope}={word}" for word in found} | begins


def begin_of(scope: str, start: str) -> str:
    """The term of all words that may begin so."""
    return f"{scope}3{start[:3]}" if len(start) > 2 else f"{scope}1{start[0]}"


def put_terms(prefix: str, tenant: str, owner: str, segment: int, message: Message, n: int) -> Statement:
    words, more = columns(searchable(message))
    created = to_micros(message.created_at)
    place = place_of(prefix, tenant, owner, month_of(created), message.conversation_id)
    listed = words.split()
    terms = terms_of(scope_of(prefix, tenant), (*listed, *more.split()))
    who = message.participant.id if message.participant else None
    cells = (created, message.role, who, len(listed), terms, words, more)
    return "put_terms", (*place, message.conversation_id, segment, message.seq, *cells, n)


async def replace_terms(link: Link, name: Name, owner: str, place: tuple[int, int, int, int], n: int) -> None:
    """Indexes a changed message again, if it is still there."""
    era, month, segment, seq = place
    head = await read.load(link, name)
    row = None
    if head is not None and head.state is not None and head.era == era:
        row = await ConversationView(link, name, head, head.state).at(segment, seq)
    if row is None:
        partition = place_of(link.prefix, name[0], owner, month, name[1])
        await link.put("delete_terms", n, *partition, name[1], segment, seq)
        return
    (message,) = await read.messages_of(link, name[1], [row])
    query, arguments = await run_in_thread(put_terms, link.prefix, name[0], owner, segment, message, n)
    await link.put(query, *arguments)


async def delete_all_terms(link: Link, name: Name, owner: str, months: Sequence[int], n: int) -> None:
    """Deletes the rows of a conversation, and the names of months that have no others."""
    for month in months:
        partition = place_of(link.prefix, name[0], owner, month, name[1])
        await link.put("delete_terms_of_conversation", n, *partition, name[1])
        if owner and not await link.read("has_terms", *partition[1:]):
            await link.put("delete_search_month", n, *partition[:4])


# The table of conversations that are behind


def bucket_of(owner: str, id: str) -> int:
    return effects.bucket_of(owner or id)


def list_unindexed(prefix: str, name: Name, owner: str, n: int) -> Statement:
    return "put_unindexed", (prefix, name[0], bucket_of(owner, name[1]), owner, name[1], n)


def unlist(prefix: str, name: Name, owner: str, n: int) -> Statement:
    return "delete_unindexed", (n, prefix, name[0], bucket_of(owner, name[1]), owner, name[1])


def owner_of(head: Head | None) -> str:
    return (head.state.conversation.user_id or "") if head and head.state else ""


class Indexer:
    def __init__(self, link: Link, heads: Heads) -> None:
        self._link = link
        self._heads = heads

    async def unindexed(self, tenant: str, owner: str | None) -> list[tuple[str, str]]:
        """Owner and id of the conversations that may be behind; None for all owners."""
        if owner:
            return await self._read_unindexed("read_unindexed_of_owner", tenant, bucket_of(owner, ""), owner)
        return await self._read_unindexed("read_unindexed", tenant, list(range(effects.BUCKETS)))

    async def _read_unindexed(self, query: str, *arguments: object) -> list[tuple[str, str]]:
        return [(row[0], row[1]) for row in await self._link.read(query, *arguments)]

    async def behind(self, tenant: str, owner: str, id: str, head: Head | None) -> int:
        """How many messages a conversation has that are not indexed. Its entry is removed if it should not be there."""
        behind = 0
        if head is not None and head.state is not None and owner_of(head) == owner:
            behind = head.state.seq - start_of(head)
        if not behind and not (head and head.index.is_listed and owner_of(head) == owner):
            # The head does not know this entry. A conversation that is being made enters it again, later.
            n = head.n if head else time.time_ns() // 1000 - 60 * _SECOND
            await self._link.put_together([unlist(self._link.prefix, (tenant, id), owner, n)])
        return behind

    async def index(self, name: Name, *, again: bool = False) -> int:
        """Indexes the messages that a conversation has now and that are not, or all of them again. Returns how many."""
        done, target = 0, None
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            head = await read.load(self._link, name)
            state = head.state if head else None
            if head is None or state is None:
                return done
            target = state.seq if target is None else target
            if again:
                head = structs.replace(head, index=structs.replace(head.index, version=0))
            if start_of(head) < state.seq and not head.index.is_listed:
                # So that others go on if this process dies.
                n = max(head.n + 1, time.time_ns() // 1000)
                await self._link.put_together([list_unindexed(self._link.prefix, name, owner_of(head), n)])
                head = structs.replace(head, index=structs.replace(head.index, is_listed=True))
            count, is_whole = await self._pieces(name, head, target)
            done += count
            if is_whole:
                return done
            again = again and not count
            # Others are writing: not all at the same time again.
            await asyncio.sleep(_random.random() * 0.05)
        raise TimedOut(f"others kept changing conversation {name[1]!r} while it was indexed", outcome="unknown")

    async def _pieces(self, name: Name, head: Head | None, target: int) -> tuple[int, bool]:
        """Returns how many messages were indexed, and whether these are all up to the target."""
        done = 0
        while head is not None and head.state is not None:
            after, last = start_of(head), head.state.seq
            if after >= target and (after < last or not head.index.is_listed):
                return done, True
            view = ConversationView(self._link, name, head, head.state)
            found = await view.rows(after, _PIECE, _PIECE_BYTES) if after < last else []
            upto = found[-1].message.seq if len(found) == _PIECE else last
            upto = await self._end_of(view, found, upto)
            head = await self._index_piece(name, head, found, upto)
            done += len(found) if head is not None else 0
        return done, False

    async def _end_of(self, view: ConversationView, found: Sequence[Row], upto: int) -> int:
        """A piece may also end at its number of bytes."""
        if found and upto > found[-1].message.seq and await view.rows(found[-1].message.seq, 1, 1):
            return found[-1].message.seq
        return upto

    async def _index_piece(self, name: Name, head: Head, found: Sequence[Row], upto: int) -> Head | None:
        """Returns the head that says so; None if another writer was faster."""
        if found:
            months = {month_of(to_micros(row.message.created_at)) for row in found}
            known = tuple(sorted({*head.index.months, *months}))
            index = structs.replace(head.index, claimed=max(head.index.claimed, upto), months=known)
            claimed = await self._heads.swap(name, head, structs.replace(head, index=index))
            if claimed is None:
                return None
            await self._put(name, claimed, found, months)
            head = claimed
        claim = head

        def end(now: Head) -> Head | None:
            """Also after other writes: the claim still holds for what is left of its messages."""
            is_same = (now.birth, now.era, owner_of(now)) == (claim.birth, claim.era, owner_of(claim))
            if now.state is None or not is_same or (found and now.index.claimed < upto):
                return None
            done = max(upto, start_of(now))
            is_listed = now.index.is_listed and done < now.state.seq
            index = structs.replace(now.index, upto=done, version=VERSION, is_listed=is_listed)
            return structs.replace(now, index=index)

        finished = await self._heads.finish(name, claim, end)
        if finished is not None and not finished.index.is_listed:
            await self._link.put_together([unlist(self._link.prefix, name, owner_of(finished), finished.n)])
        return finished

    async def _put(self, name: Name, claim: Head, found: Sequence[Row], months: Iterable[int]) -> None:
        prefix, tenant, owner = self._link.prefix, name[0], owner_of(claim)
        for first in range(0, len(found), _TOGETHER):
            some = found[first : first + _TOGETHER]
            batch = await run_in_thread(
                lambda some=some: [put_terms(prefix, tenant, owner, row.segment, row.message, claim.n) for row in some]
            )
            by_month: dict[int, list[Statement]] = {}
            for each in batch:
                by_month.setdefault(each[1][3], []).append(each)
            await asyncio.gather(*map(self._link.put_many, by_month.values()))
        # After the rows, and later than a deletion that has seen none.
        n = max(claim.n, time.time_ns() // 1000)
        for month in months if owner else ():
            await self._link.put("put_search_month", prefix, tenant, owner, month, n)

    async def catch_up(self, tenant: str) -> None:
        behind = await self.unindexed(tenant, None)
        await some_at_once((self.index((tenant, id)) for _, id in behind), _AT_ONCE)


def start_of(head: Head) -> int:
    """Up to which seq the messages of a conversation are indexed, by this version of the terms."""
    return head.index.upto if head.index.version == VERSION else 0
