"""What others do at the API: noticed when it is read, and then nowhere to be found; what broke off, made good."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.backends.http.test_http import Cutting
from tests.backends.openai.test_mirror import Side, both, every_kind, say, scenario, url_of
from tests.server.kit import serving
from tests.wait import PATIENCE

from hansard import connect
from hansard.backends.memory import MemoryBackend
from hansard.backends.openai import mirror_state
from hansard.backends.openai.threads import RemoteThreads
from hansard.contract.types import Context, RecordQuery, Restore
from hansard.errors import ConversationNotFound, MessageNotFound, Unavailable, ValidationError
from hansard.model import Message, Problem
from hansard.rules import leased
from hansard.store import Store
from hansard.testing import Clock

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")
every_mode = pytest.mark.parametrize("mode", ["delta", "snapshot"])


async def remove(side: Side, id: str, text: str) -> None:
    """Deletes what says this, as another client would."""
    if side.kind == "threads":
        async for message in side.client.beta.threads.messages.list(id, limit=100):
            if message.content[0].text.value == text:  # type: ignore[union-attr]
                await side.client.beta.threads.messages.delete(message.id, thread_id=id)
        return
    async for item in side.client.conversations.items.list(id, limit=100):
        if item.content[0].text == text:  # type: ignore[union-attr,index]
            await side.client.conversations.items.delete(item.id or "", conversation_id=id)


async def texts(store: Store, id: str = "c", **options: Any) -> list[str]:
    return [message.text async for message in store.iter_messages(id, **options)]


@every_kind
@every_mode
def test_what_others_delete(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "zebra two", "three", "four"))).messages
        (id,) = await side.ids()
        await side.say(id, "zebra five")
        assert await texts(store) == ["one", "zebra two", "three", "four", "zebra five"]
        await remove(side, id, "zebra two")
        assert [hit.message.text for hit in await store.search("zebra")] == ["zebra five"], "a search reads too"
        assert await texts(store) == ["one", "three", "four", "zebra five"]
        await remove(side, id, "zebra five")
        await remove(side, id, "one")
        assert [each.text for each in await store.get_messages("c", last=10)] == ["three", "four"]
        assert await store.search("zebra") == []
        with pytest.raises(MessageNotFound):
            await store.get_message("c", stored[0].id)
        await remove(side, id, "four")
        with pytest.raises(MessageNotFound):
            await store.get_message("c", stored[3].id)
        found = await store.get_conversation("c")
        assert found is not None
        assert found.message_count == 1
        await store.append("c", say("six"))
        assert await side.texts(id) == ["three", "six"], "and is not brought back"

    scenario(kind, play, mode=mode)


@every_kind
@every_mode
def test_a_write_brings_nothing_back_that_others_deleted(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one", "two"))
        (id,) = await side.ids()
        await remove(side, id, "one")
        await side.say(id, "theirs")
        await store.append("c", say("three"))
        assert sorted(await side.texts(id)) == ["theirs", "three", "two"]
        assert await texts(store) == ["two", "three", "theirs"], "they stand behind what was here by then"
        if mode == "snapshot":
            assert await side.texts(id) == ["two", "three", "theirs"]

    scenario(kind, play, mode=mode)


@every_kind
@every_mode
def test_a_deletion_here_spares_what_others_have_just_added(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "two"))).messages
        (id,) = await side.ids()
        await side.say(id, "theirs")
        await store.delete_message("c", stored[0].id)
        assert await side.texts(id) == ["two", "theirs"]
        await side.say(id, "more")
        await store.replace_messages("c", say("anew"))
        assert await side.texts(id) == ["anew"], "what was read in time goes with the rest"
        await side.say(id, "later")
        await store.clear_messages("c")
        await side.say(id, "last")
        assert (await texts(store))[-1] == "last"

    scenario(kind, play, mode=mode)


@every_kind
@pytest.mark.parametrize("index", ["memory://", "sqlite:///{0}/index.db"])
def test_a_conversation_that_others_delete(kind: str, index: str, tmp_path: Path) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("kept", say("zebra"))
        await store.append("c", say("zebra one"), metadata={"a": "b"})
        await store.append("d", say("zebra two"))
        ids = {(await retrieve(side, id)).metadata["hansard_id"]: id for id in await side.ids()}
        for name in ("c", "d"):
            gone: Any = side.client.beta.threads if kind == "threads" else side.client.conversations
            await gone.delete(ids[name])
        found = [hit.message.text for hit in await store.search("zebra")]
        assert found == ["zebra"], "what was found is read, and what is gone is noticed"
        assert await store.get_conversation("c") is None
        assert await store.get_messages("d") == []
        assert [each.id for each in (await store.list_conversations()).items] == ["kept"]
        await store.append("c", say("anew"))
        assert await texts(store) == ["anew"]
        assert len(await side.ids()) == 2

    scenario(kind, play, index=index.format(tmp_path))


async def retrieve(side: Side, id: str) -> Any:
    return await side.client.conversations.retrieve(id)


@every_kind
@every_mode
def test_writing_to_a_conversation_that_others_have_deleted(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one", "two"))
        await side.client.conversations.delete((await side.ids())[0])
        await store.append("c", say("three"))
        assert await side.texts() == ["three"]
        assert await texts(store) == ["three"], "what was there is gone, what was said since is not"

    scenario(kind, play, mode=mode)


@every_kind
def test_another_server_deletes_nothing(kind: str, tmp_path: Path) -> None:
    """An index that is opened on an API that never saw it must not be emptied for that."""
    index = f"sqlite:///{tmp_path}/index.db"

    async def fill(store: Store, _: Side) -> None:
        await store.append("c", say("one"))

    async def look(store: Store, _: Side) -> None:
        for read in (store.get_conversation, store.get_messages):
            with pytest.raises(Unavailable, match="another server") as refused:
                await read("c")
            assert not refused.value.retryable
        with pytest.raises(Unavailable, match="another server"):
            await store.append("c", say("two"))

    scenario(kind, fill, index)
    scenario(kind, look, index)

    async def read() -> list[str]:
        async with connect(index) as store:
            return await texts(store)

    assert asyncio.run(read()) == ["one", "two"]


@every_kind
def test_metadata_that_others_set(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one"), metadata={"mood": "good", "n": 1, "old": "x"})
        (id,) = await side.ids()
        there: Any = (await retrieve(side, id)).metadata
        api: Any = side.client.beta.threads if kind == "threads" else side.client.conversations
        await api.update(id, metadata={**{k: v for k, v in there.items() if k != "old"}, "mood": "bad", "new": "y"})
        found = await store.get_conversation("c")
        assert found is not None
        assert found.metadata == {"mood": "bad", "n": 1, "new": "y"}
        await api.update(id, metadata={**(await retrieve(side, id)).metadata, "theirs": "z"})
        await store.update_conversation("c", metadata={"mood": "calm"})
        there = (await retrieve(side, id)).metadata
        assert (there["mood"], there["theirs"], there["new"]) == ("calm", "z", "y"), "each changes only its own"
        found = await store.get_conversation("c")
        assert found is not None
        assert found.metadata == {"mood": "calm", "n": 1, "new": "y", "theirs": "z"}

    scenario(kind, play)


def test_what_others_change_of_theirs() -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one"))
        (id,) = await side.ids()
        await side.say(id, "theirs")
        (_, theirs) = await store.get_messages("c")
        await store.update_message("c", theirs.id, content="edited here", metadata={"seen": True})
        assert await texts(store) == ["one", "edited here"], "what is changed here stays"
        await side.client.beta.threads.messages.update(theirs.id, thread_id=id, metadata={"mood": "bad"})
        found = (await store.get_messages("c"))[1]
        assert (found.text, (found.metadata or {})["mood"]) == ("theirs", "bad")
        await store.append("c", say("two"))
        assert await side.texts(id) == ["one", "theirs", "two"], "and is not added again"

    scenario("threads", play)


def test_one_of_several_items_of_a_message() -> None:
    blocks = [{"type": "text", "text": "Let me see."}, {"type": "tool_use", "id": "t1", "name": "f", "input": {}}]

    async def play(store: Store, side: Side) -> None:
        await store.append("c", [*say("one"), Message("assistant", blocks, format="anthropic"), *say("two")])
        (id,) = await side.ids()
        items = [item async for item in side.client.conversations.items.list(id, order="asc")]
        assert [item.type for item in items] == ["message", "message", "function_call", "message"]
        await side.client.conversations.items.delete(items[2].id or "", conversation_id=id)
        assert await texts(store) == ["one", "two"]
        assert await side.texts(id) == ["one", "two"], "the rest of it goes too"

    scenario("conversations", play)


@every_kind
def test_edited_messages_are_not_taken_for_deleted_ones(kind: str) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}

    async def play(store: Store, side: Side) -> None:
        stored = (await store.append("c", say("one", "two", "three"))).messages
        await store.update_message("c", stored[0].id, content="ONE")
        await store.update_message("c", stored[1].id, content=[call, call], format="openai.responses")
        assert len(await store.get_messages("c")) == 3
        await store.delete_message("c", stored[2].id)
        assert await side.texts() == ["one", "two"], "they keep their first words"
        assert len(await store.get_messages("c")) == 2
        await store.delete_message("c", stored[1].id)
        assert await side.texts() == ["one"]

    scenario(kind, play)


@every_kind
def test_a_long_conversation(kind: str) -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say(*(f"m{number}" for number in range(250))))
        (id,) = await side.ids()
        for text in ("m3", "m120", "m249"):
            if kind == "threads":
                found = [e async for e in side.client.beta.threads.messages.list(id, limit=100)]
                (at,) = [e.id for e in found if e.content[0].text.value == text]  # type: ignore[union-attr]
                await side.client.beta.threads.messages.delete(at, thread_id=id)
            else:
                await remove(side, id, text)
        assert [each.text for each in await store.get_messages("c", last=2)] == ["m247", "m248"]
        page = await store.get_messages("c", limit=5)
        assert [each.text for each in page] == ["m0", "m1", "m2", "m4", "m5"]
        assert len(await texts(store)) == 247

    scenario(kind, play)


# --- what breaks off -------------------------------------------------------------------------------------------------


@every_kind
@every_mode
def test_whatever_breaks_is_made_good(kind: str, mode: str) -> None:
    """Each write is cut off at each of its calls to the API: repeated, or followed by another, both sides agree."""

    async def run() -> None:
        with serving() as api:
            async with (
                Cutting(api.address) as wire,
                connect(url_of(kind, wire.address, "memory://", mode=mode)) as store,
                openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client,
            ):
                side = Side(client, api, kind)
                await strike(store, side, wire)

    async def strike(store: Store, side: Side, wire: Cutting) -> None:
        for number, act in enumerate(ACTS):
            for cut in ("request", "answer"):
                name = f"c{number}{cut}"
                await store.append(name, [Message("user", text, id=text) for text in ("a", "b", "c")])
                wire.cut, wire.times = cut, 1
                with suppress(Unavailable):
                    await act(store, name)
                wire.times = 0
                await store.append(name, say("last"))
                (id,) = [id for id in await side.ids() if (await retrieve(side, id)).metadata["hansard_id"] == name]
                assert await side.texts(id) == await texts(store, name), f"{number} {cut}"

    asyncio.run(run())


async def _delete(store: Store, id: str) -> None:
    await store.delete_message(id, "b")


async def _append(store: Store, id: str) -> None:
    await store.append(id, [Message("user", text, id=text) for text in ("d", "e", "f")])


async def _replace(store: Store, id: str) -> None:
    await store.replace_messages(id, [Message("user", "z", id="z")])


async def _clear(store: Store, id: str) -> None:
    await store.clear_messages(id)


async def _begin_anew(store: Store, id: str) -> None:
    await store.delete_conversation(id)


ACTS = (_append, _delete, _replace, _clear, _begin_anew)


@every_kind
@pytest.mark.parametrize("complete", ["update", "append"])
def test_check_reports_what_waits_for_the_next_write(kind: str, complete: str) -> None:
    async def run() -> None:
        with serving() as api:
            async with (
                Cutting(api.address) as wire,
                connect(url_of(kind, wire.address, "memory://")) as store,
            ):
                await store.append("c", say("one"))
                assert await store.check() == []
                wire.cut, wire.times = "request", 99
                with pytest.raises(Unavailable):
                    await store.append("c", say("two", "three"))
                wire.times = 0
                (problem,) = await store.check()
                assert problem.what == "2 of its messages are not at the API yet: the next write adds them"
                if complete == "append":
                    await store.append("c", say("four"))
                else:
                    await store.update_conversation("c", title="A title")
                assert await store.check() == []

    asyncio.run(run())


@every_kind
@pytest.mark.parametrize("complete", ["update", "append"])
def test_check_reports_a_conversation_that_never_reached_the_api(kind: str, complete: str) -> None:
    async def run() -> None:
        with serving() as api:
            async with (
                Cutting(api.address) as wire,
                connect(url_of(kind, wire.address, "memory://")) as store,
            ):
                await store.append("there", say("one"))
                wire.cut, wire.times = "request", 99
                for view in (store, store.tenant("acme")):
                    with pytest.raises(Unavailable):
                        await view.append("c", say("one"))
                wire.times = 0
                problems = [each async for each in store.admin.check() if isinstance(each, Problem)]
                assert sorted(problem.where for problem in problems) == ["acme/c", "default/c"]
                (problem,) = await store.check()
                assert problem.what == "it has never reached the API: the next write adds it"
                if complete == "append":
                    await store.append("c", say("two"))
                else:
                    await store.update_conversation("c", title="A title")
                assert await store.check() == []
                assert len(await store.tenant("acme").check()) == 1

    asyncio.run(run())


@pytest.mark.parametrize("is_given_up", [False, True])
def test_check_reports_a_copy_that_was_given_up(is_given_up: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the API when it is complete. Until it has had time for that, nothing is wrong."""
    if is_given_up:
        monkeypatch.setattr(mirror_state, "_COPY_TIME", timedelta(0))

    async def run() -> None:
        now = datetime.now(UTC)
        source = MemoryBackend()
        await Store(source).append("c", say("one", "two"))
        image = await source.read_image(Context("default", now), "c")
        assert image is not None
        with serving() as api:
            async with connect(url_of("conversations", api.address, "memory://")) as store:
                await store._backend.restore(Context("default", now), Restore(image))
                problems = [problem.what for problem in await store.check()]
                assert problems == (["it has never reached the API: the next write adds it"] if is_given_up else [])
                await store._backend.restore(Context("default", now), Restore(image, done=True))
                assert await store.remote_id("c") is not None

    asyncio.run(run())


@pytest.mark.parametrize("end", ["complete", "conversation", "tenant"])
def test_nothing_is_left_of_a_copy_that_is_complete_or_deleted(end: str) -> None:
    async def run() -> None:
        now = datetime.now(UTC)
        source = MemoryBackend()
        await Store(source).append("c", say("one", "two"))
        image = await source.read_image(Context("default", now), "c")
        assert image is not None
        with serving() as api:
            async with connect(url_of("conversations", api.address, "memory://")) as store:
                ours, query = Context(mirror_state.TENANT, now), RecordQuery(prefix=("copy",))
                index: Any = store._backend
                await index.restore(Context("default", now), Restore(image))
                assert len((await index._index.scan_records(ours, query))[0]) == 1
                if end == "complete":
                    await index.restore(Context("default", now), Restore(image, done=True))
                elif end == "conversation":
                    await store.delete_conversation("c")
                else:
                    await store.admin.delete_tenant("default")
                assert (await index._index.scan_records(ours, query))[0] == []

    asyncio.run(run())


@every_kind
def test_a_deletion_that_broke_off(kind: str) -> None:
    async def run() -> None:
        with serving() as api:
            async with (
                Cutting(api.address) as wire,
                connect(url_of(kind, wire.address, "memory://")) as store,
                openai.AsyncOpenAI(base_url=api.address + "/v1", api_key="x") as client,
            ):
                side = Side(client, api, kind)
                await store.append("c", say("one"))
                wire.cut, wire.times = "request", 99
                with pytest.raises(Unavailable) as lost:
                    await store.delete_conversation("c")
                assert lost.value.outcome == "unknown"
                wire.times = 0
                assert len(await side.ids()) == 1
                (problem,) = await store.check()
                assert "delete it again" in problem.what
                assert not await store.delete_conversation("c"), "here it is gone"
                assert await side.ids() == [], "and a retry makes good what is left there"
                assert await store.check() == []

    asyncio.run(run())


@every_kind
def test_one_that_expired_goes_at_the_api_too(kind: str) -> None:
    clock = Clock()

    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("old"), expires_at=clock.now + timedelta(minutes=1))
        await store.append("kept", say("kept"))
        clock.advance(timedelta(minutes=2))
        await store.append("c", say("new"))
        assert await texts(store) == ["new"]
        assert sorted([await side.texts(id) for id in await side.ids()]) == [["kept"], ["new"]]
        await store.update_conversation("c", expires_at=clock.now + timedelta(minutes=1))
        clock.advance(timedelta(minutes=2))
        await store.purge(timedelta(days=1))
        assert [await side.texts(id) for id in await side.ids()] == [["kept"]]

    scenario(kind, play, clock=clock)


class Strict:
    """An API that refuses what ours would take: every item of one type."""

    def __init__(self, app: ASGIApp, refused: bytes) -> None:
        self._app = app
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        event: Any = await receive() if scope["type"] == "http" and scope["method"] == "POST" else None
        if event is not None and self._refused in event.get("body", b""):
            body = b'{"error": {"message": "no such items here", "type": "invalid_request_error"}}'
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        events = [event] if event is not None else []

        async def again() -> Any:
            return events.pop() if events else await receive()

        await self._app(scope, again, send)


def test_an_item_that_the_api_refuses_goes_as_text() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}

    async def run() -> None:
        with serving(wrap=lambda app, _: Strict(app, b'"type":"function_call"')) as api:
            async with both(api, "conversations", "memory://") as (store, side):
                await store.append("c", [*say("one"), Message("assistant", call, format="openai.responses")])
                await store.append("c", say("two"))
                found = await side.texts()
                assert [found[0], found[2]] == ["one", "two"]
                assert "function_call" in found[1]
                assert [each.content for each in await store.get_messages("c")][1] == call

    asyncio.run(run())


def test_the_tenant_of_the_index_is_walled() -> None:
    async def play(store: Store, side: Side) -> None:
        await store.append("c", say("one"))
        inside = store.tenant("hansard:openai")
        for call in (
            lambda: inside.append("c", say("x")),
            lambda: inside.records.put(["state"], "c", 1),
            inside.list_conversations,
            lambda: inside.get_messages("c"),
            lambda: store.admin.delete_tenant("hansard:openai"),
        ):
            with pytest.raises(ValidationError, match="hansard:openai"):
                await call()
        assert await store.admin.tenants() == ["default"]

    scenario("conversations", play)


@every_kind
@every_mode
def test_a_message_whose_writer_died_holds_nothing_up(kind: str, mode: str) -> None:
    async def play(store: Store, side: Side) -> None:
        dead = leased({}, datetime.now(UTC) - timedelta(hours=1))
        await store.append("c", [Message("assistant", "half a", status="in_progress", metadata=dead), *say("next")])
        assert await side.texts() == ["half a", "next"]
        assert [each.status for each in await store.get_messages("c")] == ["interrupted", "complete"]

    scenario(kind, play, mode=mode)


def test_metadata_beyond_what_the_api_takes() -> None:
    async def play(store: Store, side: Side) -> None:
        many = {f"k{number}": "v" for number in range(20)}
        await store.append("c", say("one"), metadata=many)
        (id,) = await side.ids()
        assert len((await retrieve(side, id)).metadata) == 16
        theirs = await side.client.conversations.create(metadata=dict(list(many.items())[:16]))
        await store.append(theirs.id, say("two"))
        assert (await retrieve(side, theirs.id)).metadata == dict(list(many.items())[:16]), "theirs stay"
        await store.update_conversation(theirs.id, metadata={"k3": None, "k4": "w"})
        there: Any = (await retrieve(side, theirs.id)).metadata
        assert ("k3" in there, there["k4"], len(there)) == (False, "w", 15)
        found = await store.get_conversation("c")
        assert found is not None
        assert found.metadata == many, "all of it is here"

    scenario("conversations", play)


def test_writing_first_to_a_conversation_that_was_made_there() -> None:
    async def play(store: Store, side: Side) -> None:
        made = await side.client.conversations.create(items=[{"role": "user", "content": "hello"}])
        await store.append(made.id, say("hi"))
        assert await texts(store, made.id) == ["hello", "hi"]
        assert await side.texts(made.id) == ["hello", "hi"]
        with pytest.raises(ConversationNotFound):
            await store.append("conv_never", say("x"), create=False)

    scenario("conversations", play)


def test_two_processes_that_add_the_same_to_a_thread_at_the_same_moment() -> None:
    """Threads take no ids: what is there twice is removed again."""
    messages = [Message("user", f"said {seq}", id=f"m{seq}", seq=seq) for seq in range(1, 6)]

    async def run(address: str) -> None:
        async with openai.AsyncOpenAI(base_url=address + "/v1", api_key="x", timeout=PATIENCE) as client:
            both = [RemoteThreads(client, "the-mark"), RemoteThreads(client, "the-mark")]
            id = await both[0].create({})
            earlier = Message("user", "earlier", id="m0", seq=0)
            await both[0].add(id, both[0].pieces(earlier, "0" * 20))
            await asyncio.gather(
                *(
                    each.add(id, [piece for message in messages for piece in each.pieces(message, "0" * 20)])
                    for each in both
                )
            )
            found = [(entry.name, entry.message.text) async for entry in both[0].entries(id, None)]
            assert sorted(text for _, text in found) == ["earlier", *(f"said {seq}" for seq in range(1, 6))]
            assert len({name for name, _ in found}) == 6

    with serving() as api:
        asyncio.run(run(api.address))


def test_what_is_too_large_for_the_api_is_noted_in_a_thread(tmp_path: Path) -> None:
    async def play(store: Store, side: Side) -> None:
        large = "x" * 10_000_000
        await store.append("c", say("before", large, "after"))
        assert await texts(store) == ["before", large, "after"]
        (id,) = await side.ids()
        before, note, after = await side.texts(id)
        assert (before, after) == ("before", "after"), "it does not stand in the way of others"
        assert "which the API does not accept" in note

    scenario("threads", play)
