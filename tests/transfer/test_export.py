"""What an export is: its first and last line, its seals, its blobs, and what happens while it is written."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.transfer.odd import Odd
from tests.transfer.rich import fill

from hansard import ConversationNotFound, Corrupt, Message, Store, ValidationError
from hansard.backends.memory import MemoryBackend
from hansard.contract.types import Image, StoredBranch
from hansard.model import Conversation
from hansard.transfer.export import numbered


async def exported(store: Store, **choice: Any) -> list[bytes]:
    return [line async for line in store.export(**choice)]


def test_every_line_is_json_and_the_first_names_the_format() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)
        lines = await exported(store)
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
        header, *_, last = map(json.loads, lines)
        assert header["hansard"] == "export"
        assert header["version"] == 1
        assert header["tenant"] == "default"
        counts = {name: last[name] for name in ("conversations", "messages", "summaries", "records", "blobs")}
        assert counts == {"conversations": 6, "messages": 37, "summaries": 2, "records": 7, "blobs": 2}

    asyncio.run(check())


def test_an_empty_store() -> None:
    lines = asyncio.run(exported(Store(MemoryBackend())))
    assert [json.loads(line).get("type") for line in lines] == [None, "eof"]


def test_seals_cover_every_line_between_the_first_and_them() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)
        before = hashlib.sha256()
        seals = 0
        for line in (await exported(store))[1:]:
            found = json.loads(line)
            if found["type"] in ("check", "end", "eof"):
                assert found["sha256"] == before.hexdigest()
                seals += 1
            before.update(line)
        assert seals == 10

    asyncio.run(check())


def test_a_long_conversation_is_sealed_again_and_again() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        for start in range(0, 5000, 1000):
            await store.append("long", [Message("user", str(start + number)) for number in range(1000)])
        kinds = [json.loads(line).get("type") for line in await exported(store)]
        runs = "".join("m" if kind == "message" else "." for kind in kinds).split(".")
        assert [len(run) for run in runs if run] == [2000, 2000, 1000]
        assert kinds.count("check") == 2

    asyncio.run(check())


def test_large_blobs_are_sealed_in_pieces() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        pictures = [base64.b64encode(bytes([number]) * 3_000_000).decode() for number in range(7)]
        await store.append("album", [Message("user", picture) for picture in pictures])
        kinds = [json.loads(line).get("type") for line in await exported(store)][2:-2]
        assert "".join(kind[0] for kind in kinds) == "bbmmcbbmmcbbmmcbm"

    asyncio.run(check())


def test_blobs_come_once_and_before_their_message() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)
        seen: set[str] = set()
        for line in map(json.loads, (await exported(store))[1:]):
            if line["type"] == "blob":
                assert line["sha256"] not in seen
                seen.add(line["sha256"])
            if line["type"] == "message":
                assert {ref[0] for ref in line["message"].get("blobs", [])} <= seen
        assert len(seen) == 2

    asyncio.run(check())


def test_defaults_are_left_out() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await store.append("c", [Message("user", "Hello", id="m")])
        message = json.loads((await exported(store))[2])
        assert set(message) == {"type", "line", "message"}
        assert set(message["message"]) == {"id", "seq", "role", "content", "format", "created_at"}

    asyncio.run(check())


def test_wrong_choices() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        with pytest.raises(ConversationNotFound):
            await exported(store, conversation_ids=["nowhere"])
        with pytest.raises(ValidationError, match="cannot be used together"):
            await exported(store, conversation_ids=["a"], user_id="u")
        with pytest.raises(ValidationError, match="must be a list"):
            await exported(store, conversation_ids="abc")

    asyncio.run(check())


def test_what_is_written_meanwhile_is_left_out() -> None:
    async def check() -> None:
        odd = Odd()
        store = odd.store()
        await store.append("c", [Message("user", "One", id="1"), Message("user", "Two", id="2")])

        async def write(*_: Any) -> None:
            await Store(odd.inner).append_message("c", "user", "Three")

        odd.after["read_image"] = write
        lines = await exported(store)
        found = [json.loads(line) for line in lines]
        assert [line["message"]["id"] for line in found if line.get("type") == "message"] == ["1", "2"]
        assert "changed" not in found[-2]
        other = Store(MemoryBackend())
        report = await other.import_(lines)
        assert report.verified
        assert not report.losses

    asyncio.run(check())


def test_what_is_deleted_meanwhile_is_said() -> None:
    async def check() -> None:
        odd = Odd()
        store = odd.store()
        await store.append("c", [Message("user", "One", id="1"), Message("user", "Two", id="2")])

        async def delete(*_: Any) -> None:
            await Store(odd.inner).delete_message("c", "2")

        odd.after["read_image"] = delete
        lines = await exported(store)
        assert json.loads(lines[-2])["changed"]
        other = Store(MemoryBackend())
        report = await other.import_(lines)
        assert report.verified
        assert [loss.what for loss in report.losses] == ["messages of it were deleted while it was exported"]
        assert [message.id for message in await other.get_messages("c")] == ["1"]

    asyncio.run(check())


def test_a_conversation_deleted_before_its_turn_is_passed_over() -> None:
    async def check() -> None:
        odd = Odd()
        store = odd.store()
        for name in ("a", "b"):
            await store.append_message(name, "user", "Hello")

        async def delete(*_: Any) -> None:
            await Store(odd.inner).delete_conversation("b")

        odd.after["list_conversations"] = delete
        assert json.loads((await exported(store))[-1])["conversations"] == 1

    asyncio.run(check())


def test_a_missing_blob_is_reported() -> None:
    async def check() -> None:
        store = Store(MemoryBackend())
        await fill(store)
        store.backend.storage.tenants["default"].blobs.clear()  # type: ignore[attr-defined]
        with pytest.raises(Corrupt, match="is missing, but a message refers to it"):
            await exported(store)

    asyncio.run(check())


def test_conversations_that_move_in_the_listing_come_once() -> None:
    async def check() -> None:
        odd = Odd()
        store = odd.store()
        for number in range(250):
            await store.append_message(f"c{number:03}", "user", "Hello")

        async def touch(*_: Any) -> None:
            await Store(odd.inner).append_message("c000", "user", "Again")
            await Store(odd.inner).append_message("c249", "user", "Again")

        odd.after["list_conversations"] = touch
        lines = [json.loads(line) for line in await exported(store)]
        ids = [line["conversation"]["id"] for line in lines if line.get("type") == "conversation"]
        assert sorted(ids) == [f"c{number:03}" for number in range(250)]

    asyncio.run(check())


def test_branches_come_in_the_order_of_time_whatever_order_a_storage_has() -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    branches = [
        StoredBranch(name, segment, created_at=begun + timedelta(seconds=segment))
        for segment, name in enumerate(("main", "z", "b", "y", "a"), start=3)
    ]
    conversation = Conversation(id="c", created_at=begun, updated_at=begun)
    written = [numbered(Image(conversation, 0, tuple(each))) for each in (branches, branches[::-1])]
    assert written[0] == written[1]
    assert [branch.id for branch in written[0].image.branches] == ["main", "z", "b", "y", "a"]
