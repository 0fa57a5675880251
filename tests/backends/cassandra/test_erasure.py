"""What an erasure leaves, by raw reads of every table."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.backends.cassandra.counted import backend_of
from tests.backends.cassandra.raw import rows_with

import hansard

NAME = "ann-whose-name-must-go"
SAID = "what-ann-has-said"
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD" * 40_000}}


async def _fill(store: hansard.Store) -> None:
    user = hansard.Participant(id=NAME, kind="user", display_name=NAME)
    soon = datetime.now(UTC) + timedelta(days=400)
    usage = hansard.Usage(model="m", input_tokens=1)
    await store.append("c", [hansard.Message("user", SAID, participant=user, usage=usage)], user_id=NAME)
    await store.append("c", [hansard.Message("user", [PICTURE], format="anthropic", pinned=True)])
    await store.append_message("c", "user", SAID * 10_000)
    await store.update_conversation("c", expires_at=soon, title=SAID)
    view = store.user(NAME)
    await view.records.put(("a",), "k", SAID, expires_at=soon)
    await view.records.put(("b",), "k", SAID * 10_000)
    await view.records.put(("c",), "k", SAID, conversation_id="c")
    await store.append_message("d", "user", SAID, user_id=NAME)
    await store.delete_conversation("d")


@pytest.mark.parametrize("word", [NAME, SAID])
def test_nothing_is_left_of_an_erased_user(url: str, word: str) -> None:
    async def run() -> None:
        backend = backend_of(url)
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend) as store:
            await _fill(store)
            await backend.storage.catch_up()
            assert await rows_with(backend.storage.link, word)
            receipt = await store.erase_user(NAME)
            assert (receipt.conversations, receipt.records, receipt.blobs) == (1, 3, 1)
            assert receipt.physically_gone is False
            assert await rows_with(backend.storage.link, word) == []

    asyncio.run(run())
