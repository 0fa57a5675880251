"""The sample: on every kind of store, twice, and by the command."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.shell import Shell

from hansard import Conversation, connect
from hansard.server.web.sample_data import SampleReport, load_sample


async def filled(url: str, user: str | None = None) -> tuple[SampleReport, SampleReport, int]:
    async with connect(url) as store:
        view = store if user is None else store.user(user)
        first, again = await load_sample(view), await load_sample(view)
        assert await store.check() == []
        return first, again, (await store.stats()).conversations


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{folder}/s.db", "file:///{folder}/s"])
def test_the_sample_is_stored_once(url: str, tmp_path: Path) -> None:
    first, again, conversations = asyncio.run(filled(url.format(folder=tmp_path)))
    assert first.conversations == conversations > 60
    assert first.messages > 2600
    assert again == SampleReport(0, 0)


def test_a_user_owns_the_sample_of_their_view() -> None:
    first, _, conversations = asyncio.run(filled("memory://", "ada"))
    assert first.conversations == conversations


def test_the_sample_contains_every_feature(tmp_path: Path) -> None:
    async def look() -> None:
        async with connect("memory://") as store:
            await load_sample(store)
            assert (await store.get_conversation("sample-long")).message_count >= 2000  # type: ignore[union-attr]
            assert len(await store.list_branches("sample-kyoto")) == 3
            async for conversation in store.iter_conversations():
                oldest = (await store.get_messages(conversation.id, limit=1))[0]
                assert conversation.created_at <= oldest.created_at, "as old as what was said in it"
            assert len(await store.list_summaries("sample-long")) == 2
            assert (await store.stats()).blobs >= 1
            assert {row.model for row in await store.usage()} >= {"gpt-5-mini", "claude-sonnet-5", "qwen3-32b"}

    asyncio.run(look())


def test_the_sample_ends_at_the_current_time() -> None:
    async def newest(now: datetime) -> Conversation:
        async with connect("memory://") as store:
            await load_sample(store, now)
            assert await load_sample(store, now + timedelta(days=1)) == SampleReport(0, 0), (
                "what is there stays as it is"
            )
            return (await store.list_conversations(limit=1)).items[0]

    for now in (datetime(2024, 2, 29, 12, 30, tzinfo=UTC), datetime.now(UTC)):
        found = asyncio.run(newest(now))
        assert found.last_message_at is not None
        assert timedelta() < now - found.last_message_at < timedelta(hours=3)
        assert found.updated_at <= now


def test_the_command_stores_the_sample(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    done = shell("demo", "sqlite:///s.db", "--json").json
    assert done["conversations"] > 60
    assert shell("demo", "--url", "sqlite:///s.db", "--json").json == {"conversations": 0, "messages": 0}
    told = shell("demo", "sqlite:///other.db", "--tenant", "acme").err
    assert told.rstrip().endswith("See: hansard serve sqlite:///other.db")
    assert shell("tenants", "--url", "sqlite:///other.db", "--json").json["items"] == ["acme"]
