"""OpenAI's APIs as a storage: what is written there, what is taken from there, and what breaks on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.backends.http.test_http import Cutting
from tests.server.kit import Served, serving
from tests.wait import PATIENCE

from hansard import connect
from hansard.errors import Unavailable, Unsupported, ValidationError
from hansard.model import Message
from hansard.store import Store
from hansard.store.core import utc_now
from hansard.testing import Clock

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")
KINDS = ("conversations", "threads")
every_kind = pytest.mark.parametrize("kind", KINDS)


class Side:
    """The API's side, asked by the SDK itself."""

    def __init__(self, client: openai.AsyncOpenAI, api: Served, kind: str) -> None:
        self.client = client
        self.api = api
        self.kind = kind

    async def ids(self) -> list[str]:
        listed: Any = await self.client.get("/conversations?limit=100", cast_to=object)
        return [each["id"] for each in listed["data"] if "hansard_index" not in each["metadata"]]

    async def texts(self, id: str | None = None) -> list[str]:
        id = id or (await self.ids())[0]
        if self.kind == "threads":
            threads = self.client.beta.threads.messages.list(id, order="asc")
            return [each.content[0].text.value async for each in threads]  # type: ignore[union-attr]
        items = self.client.conversations.items.list(id, order="asc", limit=100)
        return [each.content[0].text async for each in items if each.type == "message"]  # type: ignore[union-attr]

    async def say(self, id: str, text: str) -> None:
        if self.kind == "threads":
            await self.client.beta.threads.messages.create(id, role="user", content=text)
        else:
            await self.client.conversations.items.create(id, items=[{"role": "user", "content": text}])


def url_of(kind: str, address: str, index: str, **options: str) -> str:
    query = "&".join(f"{name}={value}" for name, value in {"index": index, **options}.items())
    return f"openai+{kind}://{address.removeprefix('http://')}/v1?{query}"


@asynccontextmanager
async def both(
    api: Served, kind: str, index: str, clock: Clock | None = None, **options: str
) -> AsyncIterator[tuple[Store, Side]]:
    url = url_of(kind, api.address, index, **options)
    async with (
        openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x", timeout=PATIENCE) as client,
        connect(url, clock=clock or utc_now) as store,
    ):
        yield store, Side(client, api, kind)


def scenario(
    kind: str,
    play: Callable[[Store, Side], Awaitable[None]],
    index: str = "memory://",
    clock: Clock | None = None,
    **options: str,
) -> None:
    async def run(api: Served) -> None:
        async with both(api, kind, index, clock, **options) as (store, side):
            await play(store, side)

    with serving() as api:
        asyncio.run(run(api))


def say(*texts: str) -> list[Message]:
    return [Message("user", text) for text in texts]


@every_kind
def test_what_is_written_is_at_the_api(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("order-17", say(*map(str, range(45))), user_id="u_1", metadata={"topic": "orders", "n": 1})
        (id,) = await side.ids()
        assert await side.texts(id) == [str(number) for number in range(45)], "in several calls, in order"
        remote = await side.client.conversations.retrieve(id)
        assert remote.metadata == {"topic": "orders", "hansard_tenant": "default", "hansard_id": "order-17"}
        assert [each.content for each in await store.get_messages("order-17", last=2)] == ["43", "44"]
        (found,) = (await store.list_conversations(user_id="u_1")).items
        assert (found.id, found.message_count) == ("order-17", 45)
        await store.update_conversation("order-17", metadata={"topic": None, "mood": "good"})
        metadata: Any = (await side.client.conversations.retrieve(id)).metadata
        assert metadata.keys() == {"mood", "hansard_tenant", "hansard_id"}
        assert await store.delete_conversation("order-17")
        assert await side.ids() == []

    scenario(kind, play)


@every_kind
def test_the_id_at_the_api_can_be_asked_for(kind: str) -> None:
    """So that a second device can be told what to open."""

    async def play(store: Store, side: Side) -> None:
        assert await store.remote_id("order-17") is None
        await store.append("order-17", say("one"), user_id="ann")
        (id,) = await side.ids()
        assert await store.remote_id("order-17") == id
        assert await store.user("ann").remote_id("order-17") == id
        assert await store.user("ben").remote_id("order-17") is None, "not behind the walls"
        assert await store.tenant("acme").remote_id("order-17") is None
        await side.say(id, "two")
        other = Store(store.backend)
        assert [each.text for each in await other.get_messages("order-17")] == ["one", "two"]
        await store.delete_conversation("order-17")
        assert await store.remote_id("order-17") is None

    scenario(kind, play)


@every_kind
def test_what_others_add_is_taken_over(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one"))
        (id,) = await side.ids()
        await side.say(id, "two")
        await store.append("c", say("three"))
        await side.say(id, "four")
        assert [each.text for each in await store.get_messages("c")] == ["one", "three", "two", "four"]
        newest = (await store.get_messages("c", last=1))[0]
        await store.delete_message("c", newest.id)
        assert await side.texts(id) == ["one", "two", "three"], "and goes there when it goes here"
        assert [each.text for each in await store.get_messages("c")] == ["one", "three", "two"]

    scenario(kind, play)


@every_kind
def test_a_conversation_that_was_made_there(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        made: Any = await (side.client.beta.threads if kind == "threads" else side.client.conversations).create()
        await side.say(made.id, "hello")
        assert [each.text for each in await store.get_messages(made.id)] == ["hello"]
        await store.append(made.id, say("hi"))
        assert await side.texts(made.id) == ["hello", "hi"]
        assert (await store.get_conversation(made.id)) is not None
        assert await store.tenant("acme").get_conversation(made.id) is None, "not behind the walls"
        assert await store.user("u").get_conversation(made.id) is None
        assert await store.get_conversation("conv_never") is None

    scenario(kind, play)


@every_kind
@pytest.mark.parametrize("mode", ["delta", "snapshot"])
def test_removing(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "two", "three", "four"))).messages
        await store.delete_message("c", stored[1].id)
        assert await side.texts() == ["one", "three", "four"]
        await store.pop_message("c")
        assert await side.texts() == ["one", "three"]
        await store.append("c", say("five"))
        assert await side.texts() == ["one", "three", "five"]
        await store.replace_messages("c", [stored[0], *say("six")])
        assert await side.texts() == ["one", "six"]
        await store.clear_messages("c")
        await store.append("c", say("seven"))
        assert await side.texts() == ["seven"]

    scenario(kind, play, mode=mode)


@every_kind
def test_modes_differ_in_what_was_changed(kind: str) -> None:
    async def delta(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "two"))).messages
        await store.update_message("c", stored[0].id, content="ONE")
        await store.branch("c", before=stored[1].id)
        await store.append("c", say("TWO"))
        assert await side.texts() == ["one", "two", "TWO"], "what was said, once"

    async def snapshot(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "two"))).messages
        await store.update_message("c", stored[0].id, content="ONE")
        assert await side.texts() == ["ONE", "two"]
        await store.branch("c", before=stored[1].id)
        await store.append("c", say("TWO"))
        assert await side.texts() == ["ONE", "TWO"], "what the active branch reads"
        await store.switch_branch("c", "main")
        assert await side.texts() == ["ONE", "two"]

    scenario(kind, delta, mode="delta")
    scenario(kind, snapshot, mode="snapshot")


@every_kind
def test_a_message_that_still_grows_is_added_when_it_has_ended(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one"))
        id = await store.append_message("c", "assistant", "tw", status="in_progress")
        await store.append("c", say("three"))
        assert await side.texts() == ["one"]
        await store.update_message("c", id, content="two", status="complete")
        assert await side.texts() == ["one", "two", "three"]

    scenario(kind, play)


def test_tools_and_anything_else_become_items() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}
    blocks = [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]

    async def play(store: Store, side: Side) -> None:
        await store.append("c", [
            Message("assistant", call, format="openai.responses"),
            Message("assistant", blocks, format="anthropic"),
            Message("user", {"odd": [1, None]}),
            Message("assistant", {"type": "function_call"}, format="openai.responses"),
            Message("tool", "42", metadata={"tool_call_id": "t1"}),
        ])  # fmt: skip
        (id,) = await side.ids()
        items = [item async for item in side.client.conversations.items.list(id, order="asc")]
        kinds = ["function_call", "message", "function_call", "message", "message", "function_call_output"]
        assert [item.type for item in items] == kinds
        assert [message.content for message in await store.get_messages("c")][2] == {"odd": [1, None]}, "exactly here"

    scenario("conversations", play)


@every_kind
@pytest.mark.parametrize("cut", ["request", "answer"])
def test_nothing_is_added_twice_whatever_breaks(kind: str, cut: str) -> None:
    async def run(api: Served) -> None:
        async with (
            Cutting(api.address) as wire,
            connect(url_of(kind, wire.address, "memory://")) as store,
            openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client,
        ):
            side = Side(client, api, kind)
            await store.append("c", say("zero"))
            wire.cut, wire.times = cut, 1
            one = [Message("user", "one", id="m1")]
            if cut == "answer" or kind == "conversations":
                # It was looked up: it is there, or it is sent once more under the same id.
                await store.append("c", one)
            else:
                with pytest.raises(Unavailable) as lost:
                    await store.append("c", one)
                assert lost.value.outcome == "unknown"
                await store.append("c", one)
            assert await side.texts() == ["zero", "one"]
            wire.cut, wire.times = "request", 99
            with pytest.raises(Unavailable) as lost:
                await store.append("c", [Message("user", "two", id="m2")])
            assert lost.value.outcome == "unknown"
            wire.times = 0
            await store.append("c", say("three"))
            assert await side.texts() == ["zero", "one", "two", "three"], "made good by the next write"

    with serving() as api:
        asyncio.run(run(api))


def test_a_lost_index_is_made_again_from_the_api(tmp_path: Path) -> None:
    async def run(api: Served) -> None:
        index = f"sqlite:///{tmp_path}/index.db"
        async with both(api, "conversations", index) as (store, side):
            await store.append("c", say("one", "two"))
            (id,) = await side.ids()
        async with both(api, "conversations", index) as (store, side):
            assert [each.text for each in await store.get_messages("c")] == ["one", "two"]
        async with both(api, "conversations", "memory://") as (store, side):
            assert [each.text for each in await store.get_messages(id)] == ["one", "two"]

    with serving() as api:
        asyncio.run(run(api))


@every_kind
def test_copying_from_and_to_it(kind: str, tmp_path: Path) -> None:
    async def play(store: Store, side: Side) -> None:
        async with connect("memory://") as other:
            await other.append("c", [Message("user", "one", id="m1"), Message("assistant", "two")], user_id="u_1")
            report = await other.copy_to(store)
            assert (report.messages, report.conflicts, report.losses, report.verified) == (2, [], [], True)
            assert await side.texts() == ["one", "two"]
        async with connect("memory://") as third:
            report = await store.copy_to(third)
            assert (report.messages, report.losses, report.verified) == (2, [], True)
            assert [each.content for each in await third.get_messages("c")] == ["one", "two"]

    scenario(kind, play)


def test_urls_that_are_wrong() -> None:
    async def opened(url: str) -> None:
        async with connect(url):
            pass

    for url, why in {
        "openai+conversations://key@host/v1": "OPENAI_API_KEY",
        "openai+conversations://localhost/v1?mode=both": "mode",
        "openai+conversations://localhost/v1?idnex=memory://": "index",
    }.items():
        with pytest.raises(ValidationError, match=why):
            asyncio.run(opened(url))
    with pytest.raises(Unsupported, match="records"):
        asyncio.run(opened("openai+conversations://localhost/v1?index=none://"))
