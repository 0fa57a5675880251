"""What is large: batches, messages and records that no single request could carry."""

from __future__ import annotations

import asyncio
import os
import random
import string

import pytest
from tests.backends.cassandra.counted import counted

import hansard

_CHARACTERS = string.ascii_letters + string.digits + " .,"  # not base64, which would be a blob


# Enough for several parts.
MANY = 200_000 if "HANSARD_KILLS" in os.environ else 7000


def _noise(size: int, seed: int) -> str:
    """Text that cannot be compressed much."""
    return "".join(random.Random(seed).choices(_CHARACTERS, k=size))


def test_a_batch_of_many_megabytes(url: str) -> None:
    bodies = [_noise(60_000, seed) for seed in range(120)]

    async def run() -> None:
        async with counted(url) as (store, counts):
            await store.append("c", [hansard.Message("user", body) for body in bodies])
            assert counts["swap"] == 1
            assert counts["put_chunk"] > 90
            assert [each.text for each in await store.get_messages("c", last=200)] == bodies
            await store.delete_conversation("c")
            assert counts["delete_upload"] == counts["put_chunk"]

    asyncio.run(run())


def test_what_no_request_can_carry_is_refused(url: str) -> None:
    async def run() -> None:
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "one")
            metadata = {"much": _noise(10_000_000, 0)}
            with pytest.raises(hansard.QuotaExceeded, match="send less"):
                await store.append("c", [hansard.Message("user", "two", metadata=metadata)])
            await store.append_message("c", "user", "three")
            assert [each.text for each in await store.get_messages("c")] == ["one", "three"]

    asyncio.run(run())


def test_a_large_record(url: str) -> None:
    async def run() -> None:
        async with hansard.connect(url) as store:
            for seed in (1, 2):
                value = _noise(9_000_000, seed)
                await store.records.put(("a",), "k", value)
                found = await store.records.get(("a",), "k")
                assert found is not None
                assert found.value == value
            await store.records.delete(("a",), "k")
            assert await store.records.get(("a",), "k") is None

    asyncio.run(run())


@pytest.mark.timeout(1200)
def test_a_long_conversation_costs_no_more_than_a_short_one(url: str) -> None:
    async def run() -> None:
        async with counted(url) as (store, counts):
            for first in range(0, MANY, 1000):
                await store.append("c", [hansard.Message("user", f"message {first + n}") for n in range(1000)])
            counts.clear()
            await store.append_message("c", "user", "the last one")
            assert counts == {"swap": 1}
            counts.clear()
            newest = await store.get_messages("c", last=50)
            assert counts == {"read_head": 1}
            assert [each.seq for each in newest] == list(range(MANY - 48, MANY + 2))
            assert (await store.delete_conversation("c")).messages == MANY + 1
            assert await store.get_messages("c") == []

    asyncio.run(run())
