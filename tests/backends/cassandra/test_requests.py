"""How many requests a call takes: what the cluster does for it, whatever the load."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, cast

from tests.backends.cassandra.counted import backend_of, counted, counting_link

import hansard
from hansard.backends import cassandra
from hansard.backends.cassandra import read
from hansard.backends.cassandra.connection import Link, Row
from hansard.backends.cassandra.options import options_of
from hansard.backends.cassandra.queries import QUERIES
from hansard.backends.cassandra.rows import HEAD, HEAD_ERA, Head, encode_head
from hansard.contract.backend import Indexed
from hansard.urls import Url

MANY = 200
"""Messages of one call."""


def test_an_append_with_the_head_known_is_one_conditional_batch(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append_message("c", "user", "one", user_id="ann")
            counts.clear()
            await store.append("c", [hansard.Message("user", "two", id="m2"), hansard.Message("user", "three")])
            assert counts == {"swap": 1}

    asyncio.run(run())


def test_the_last_fifty_are_one_read(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append("c", [hansard.Message("user", f"{number}") for number in range(120)])
            counts.clear()
            found = await store.get_messages("c", last=50)
            assert [message.text for message in found] == [f"{number}" for number in range(70, 120)]
            assert counts == {"read_head": 1}

    asyncio.run(run())


def test_a_repeated_id_is_found_by_the_batch(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append("c", [hansard.Message("user", "one", id="m1")])
            counts.clear()
            again = await store.append("c", [hansard.Message("user", "one", id="m1")])
            assert again.messages[0].seq == 1
            assert counts["swap"] == 1
            assert (await store.get_conversation("c")).message_count == 1  # type: ignore[union-attr]

    asyncio.run(run())


def test_writers_of_one_conversation_share_batches(url: str) -> None:
    async def run() -> None:
        backend = backend_of(url)
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend) as store:
            await asyncio.gather(*(store.append_message("c", "user", f"{number}") for number in range(64)))
            commits, writes = backend.commits
            assert writes >= 64
            assert commits <= 8
            assert (await store.get_conversation("c")).message_count == 64  # type: ignore[union-attr]
            assert {each.text for each in await store.get_messages("c", last=64)} == {str(each) for each in range(64)}

    asyncio.run(run())


def test_the_usage_of_a_user_reads_no_other_conversations(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            for number in range(3):
                spent = hansard.Message("user", "Hello", usage=hansard.Usage(model="m", input_tokens=number))
                await store.append(f"c{number}", [spent], user_id=f"u{number % 2}")
            counts.clear()
            assert [row.input_tokens for row in await store.user("u0").usage()] == [2]
            assert (counts["read_usage"], counts["read_usage_of_user"]) == (0, 1)
            assert [row.input_tokens for row in await store.usage()] == [2, 1]
            counts.clear()
            receipt = await store.erase_user("u0")
            assert (receipt.usage_rows, counts["read_usage"], counts["delete_usage"]) == (1, 0, 2)
            assert [row.input_tokens for row in await store.usage()] == [1]

    asyncio.run(run())


def test_a_call_makes_few_requests_at_once(url: str) -> None:
    """Whatever it needs: servers answer time-outs to thousands at the same time."""

    async def run() -> None:
        backend = backend_of(url)
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend) as store:
            link = counting_link(store)
            who = hansard.Participant("user", "ann")
            said = [hansard.Message("user", f"number {each}", id=f"m{each}", participant=who) for each in range(MANY)]
            await store.append("c", said)
            assert link.counts["add_participant"] == MANY
            assert len((await store.append("c", said)).messages) == MANY
            assert link.counts["read_newest"] == MANY
            await cast(Indexed, backend).catch_up()
            await store.delete_messages("c", [each.id for each in said])
            assert link.counts["delete_terms"] == MANY
            assert link.most < MANY // 2

    asyncio.run(run())


def test_the_heads_of_thousands_of_conversations_are_read_by_few_requests_at_once() -> None:
    """As a search for a common word does in a large tenant."""

    async def run() -> None:
        link = UnconnectedLink(options_of(Url("cassandra://nowhere/none"))[0], "")
        ids = [f"c{number}" for number in range(5000)]
        found = await read.load_many(link, "t", ids)
        assert {id: head.n for id, head in found.items() if head} == {f"c{number}": number for number in range(5000)}
        assert link.asked == link.answered > 100
        assert link.most <= 8

    asyncio.run(run())


class UnconnectedLink(Link):
    """Has a head for each id, and answers a moment later."""

    asked = answered = most = 0

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        self.asked += 1
        self.most = max(self.most, self.asked - self.answered)
        await asyncio.sleep(0)
        self.answered += 1
        heads = [(id, Head(int(id[1:]), ["stamp"])) for id in arguments[1]]
        return [(HEAD_ERA, HEAD, 0, 0, "", "stamp", encode_head(head), id) for id, head in heads]


def test_every_query_is_used_and_known() -> None:
    folder = Path(cassandra.__file__).parent
    used = set(re.findall(r'"([a-z]+_[a-z_]+)"', "\n".join(path.read_text() for path in folder.glob("*.py"))))
    assert not QUERIES.keys() - used


def test_many_new_conversations_name_their_tenant_once(url: str) -> None:
    """Many conditional inserts of one row at once would time out."""

    async def run() -> None:
        async with counted(url) as (store, counts):
            await asyncio.gather(*(store.append_message(f"c{number}", "user", "one") for number in range(64)))
            assert counts["put_name"] == 1

    asyncio.run(run())


def test_the_messages_of_a_month_are_indexed_together(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append("c", [hansard.Message("user", f"number {number}") for number in range(150)])
            await store.append("d", [hansard.Message("user", "long text " * 4000) for _ in range(20)])
            counts.clear()
            await cast(Indexed, store.backend).catch_up()
            assert counts["put_terms"] == 0
            # Of each conversation: batches of at most 50 rows or 256 KB, and the end of its being listed as behind.
            assert counts["put_together"] == 3 + 1 + 3 + 1
            assert len(await store.search("number", order="newest", limit=10)) == 10

    asyncio.run(run())
