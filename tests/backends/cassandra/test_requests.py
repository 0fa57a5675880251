"""How many requests a call takes: what the cluster does for it, whatever the load."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import cast

from tests.backends.cassandra.counted import backend_of, counted

import hansard
from hansard.backends import cassandra
from hansard.backends.cassandra.queries import QUERIES
from hansard.contract.backend import Indexed


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
