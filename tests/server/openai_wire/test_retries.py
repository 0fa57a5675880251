"""A request that the SDK repeats is done once: it sends no key by which to know it, only a count."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx
import openai
import pytest
from tests.backends.http.test_http import Cutting
from tests.server.kit import Served, serving

from hansard.model import Message
from hansard.server.key_file import KeyFile
from hansard.server.settings import Settings

FAST: Any = {"timeout": 30, "max_retries": 2}


def scenario(play: Callable[[openai.AsyncOpenAI, Cutting], Awaitable[None]]) -> None:
    """The real SDK, over a wire that is cut."""

    async def run(address: str) -> None:
        async with (
            Cutting(address) as wire,
            openai.AsyncOpenAI(base_url=wire.address + "/v1", api_key="x", **FAST) as client,
        ):
            await play(client, wire)

    with serving() as api:
        asyncio.run(run(api.address))


@pytest.mark.parametrize("cut", ["request", "answer"])
def test_items_are_stored_once_whatever_breaks(cut: str) -> None:
    async def play(client: openai.AsyncOpenAI, wire: Cutting) -> None:
        id = (await client.conversations.create()).id
        wire.cut, wire.times = cut, 2
        added = await client.conversations.items.create(
            id, items=[{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]
        )
        assert wire.times == 0
        listed = [item.id async for item in client.conversations.items.list(id, order="asc")]
        assert listed == [item.id for item in added.data]

    scenario(play)


@pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")
@pytest.mark.parametrize("cut", ["request", "answer"])
def test_a_message_of_a_thread_is_stored_once(cut: str) -> None:
    async def play(client: openai.AsyncOpenAI, wire: Cutting) -> None:
        id = (await client.beta.threads.create()).id
        wire.cut, wire.times = cut, 2
        made = await client.beta.threads.messages.create(id, role="user", content="one")
        assert [message.id async for message in client.beta.threads.messages.list(id)] == [made.id]

    scenario(play)


class Poster:
    """Posts items by hand, with the count that the SDKs send."""

    def __init__(self, api: Served) -> None:
        self.api = api
        self.id: str = api.post(api.address + "/v1/conversations", json={}).json()["id"]

    def __call__(self, *items: Any, count: int = 0, **headers: str) -> Any:
        given = [{"role": "user", "content": item} if isinstance(item, str) else item for item in items]
        answer: httpx.Response = self.api.post(
            f"{self.api.address}/v1/conversations/{self.id}/items",
            json={"items": given},
            headers={"x-stainless-retry-count": str(count), **headers},
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def stored(self) -> int:
        return len(self.api.get(f"/conversations/{self.id}/messages").json()["items"])


def test_only_a_retry_is_taken_for_one(api: Served) -> None:
    post = Poster(api)
    first, second = post("yes"), post("yes")
    assert first != second, "whoever says the same twice has said it twice"
    assert post("yes", count=1) == second, "the newest is the one that is repeated"
    assert post("no", count=1) != second
    assert post.stored == 3


def test_a_retry_of_what_never_arrived_is_stored(api: Served) -> None:
    post = Poster(api)
    added = post("one", "two", count=2)
    assert post("one", "two", count=3) == added
    assert post.stored == 2


def test_behind_others(api: Served) -> None:
    post = Poster(api)
    first = post("mine")
    for number in range(150):
        post(str(number))
    assert post("mine", count=1) == first


def test_what_was_answered_since_is_not_what_is_repeated(api: Served) -> None:
    """The first attempt of the second "yes" never arrived: its retry looks like one of the first."""
    post = Poster(api)
    first = post("yes")
    post({"type": "message", "role": "assistant", "content": "Are you sure?"})
    second = post("yes", count=1)
    assert second != first
    assert post("yes", count=2) == second
    assert post.stored == 3


def test_items_with_and_without_ids(api: Served) -> None:
    post = Poster(api)
    given = {"id": "msg_mine", "type": "message", "role": "user", "content": "x"}
    first = post("one", given, "two")
    assert post("one", given, "two", count=1) == first
    assert post.stored == 3


def test_after_ten_minutes_it_is_said_anew(api: Served) -> None:
    post = Poster(api)
    first = post("one")["data"][0]
    view = api.store._view
    now = view.clock

    async def age() -> None:
        # The message as it would be, had it been said eleven minutes ago.
        stored = await api.store.get_message(post.id, first["id"])
        await api.store.clear_messages(post.id)
        old = Message("user", stored.content, stored.id, format=stored.format, created_at=now() - timedelta(minutes=11))
        await api.store.append(post.id, [old], revive=True)

    asyncio.run_coroutine_threadsafe(age(), api.loop).result(30)
    assert post("one", count=1)["data"][0]["id"] != first["id"]


def test_after_the_server_was_started_anew(tmp_path: Any) -> None:
    """Nothing is kept beside the store: another process knows as much."""
    url = f"sqlite:///{tmp_path}/chats.db"
    with serving(url) as api:
        post = Poster(api)
        first = post("one", "two")
    with serving(url) as api:
        post.api = api
        assert post("one", "two", count=1) == first
        assert post.stored == 2


def test_in_another_conversation(api: Served) -> None:
    here, there = Poster(api), Poster(api)
    here("one")
    there("one", count=1)
    assert (here.stored, there.stored) == (1, 1)


def test_by_another_key(tmp_path: Any) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    tokens = [keys.create(str(n), ["read", "write"], tenant="acme")[1] for n in range(2)]
    with serving(settings=Settings(keys=keys.path)) as api:
        api.headers["Authorization"] = f"Bearer {tokens[0]}"
        post = Poster(api)
        first = post("one")
        assert post("one", count=1, Authorization=f"Bearer {tokens[1]}") != first
        assert post("one", count=1) == first
        assert post.stored == 2


def test_a_retry_waits_for_the_request_that_it_repeats(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gave up waiting repeats what is still under way."""
    post = Poster(api)
    slow, goes = threading.Event(), threading.Event()
    append = api.store.backend.append

    async def slowly(*arguments: Any) -> Any:
        slow.set()
        await asyncio.to_thread(goes.wait, 30)
        return await append(*arguments)

    monkeypatch.setattr(api.store.backend, "append", slowly)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda n=n: answers.append(post("one", count=n))) for n in (0, 1)]
    threads[0].start()
    assert slow.wait(30)
    threads[1].start()
    goes.set()
    for thread in threads:
        thread.join(30)
    assert answers[0] == answers[1]
    assert post.stored == 1


def test_an_idempotency_key_needs_no_count(api: Served) -> None:
    post = Poster(api)
    key: Any = {"Idempotency-Key": "5f2c"}
    first = post("one", {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, **key)
    assert post("one", {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, **key) == first
    assert [item["id"][:3] for item in first["data"]] == ["msg", "fc_"]
    assert post.stored == 2


def test_conversations_are_never_taken_for_each_other(api: Served) -> None:
    """Two people who begin in the same words must not meet in one conversation, whatever their SDK repeats."""
    body = {"items": [{"role": "user", "content": "hi"}]}
    made = {
        api.post(api.address + "/v1/conversations", json=body, headers={"x-stainless-retry-count": "1"}).json()["id"]
        for _ in range(3)
    }
    assert len(made) == 3
