"""A whole chat: sends, streams, tools, conversations, branches; a store that goes away, comes back, or is another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Literal, cast

import pytest
from tests.capture.away import Wire

import hansard
from hansard import Chat, Message, Store, sync
from hansard.agents.chat import fallback_store as stores_module
from hansard.assembly.explanation import Prompt
from hansard.backends.memory import MemoryBackend
from hansard.chat import Answer, Call, EchoModel, Tool
from hansard.errors import ConversationNotFound, Unavailable, ValidationError
from hansard.formats.registry import Target
from hansard.testing.faults import Fault, faulty


def run(scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with hansard.connect("memory://") as store:
            await asyncio.wait_for(scenario(store), 60)

    asyncio.run(main())


async def said(store: Store, id: str = "c") -> list[str]:
    return [message.text async for message in store.iter_messages(id)]


class Scripted:
    """A model that says what a test wants."""

    name = "scripted"
    format: Target = "openai.chat"

    def __init__(self, *items: Any) -> None:
        self.items = list(items)
        self.prompts: list[Prompt] = []
        self.tools: list[list[str]] = []

    async def stream(self, prompt: Prompt, tools: Sequence[Tool]) -> AsyncIterator[str | Answer]:
        self.prompts.append(prompt)
        self.tools.append([tool.name for tool in tools])
        for item in self.items.pop(0):
            if isinstance(item, BaseException):
                raise item
            if callable(item):
                await item()
            else:
                yield item


def calling(*calls: Call) -> list[Answer]:
    return [
        Answer(
            content=[{"type": "tool_call", "id": each.id, "name": each.name, "arguments": {}} for each in calls],
            format="parts",
            calls=calls,
        )
    ]


def test_hello() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="c", user_id="ann", agent_id="helper", agent_name="Helper")
        reply = await chat.send("Hello")
        assert reply.text == "You said: Hello"
        assert reply.participant is not None
        assert (reply.participant.id, reply.status, reply.seq) == ("helper", "complete", 2)
        assert [piece async for piece in chat.stream("And again")] == ["You", " said:", " And", " again"]
        assert chat.last is not None
        assert chat.last.text == "You said: And again"
        assert await said(store) == ["Hello", "You said: Hello", "And again", "You said: And again"]
        conversation = await store.get_conversation("c")
        assert conversation is not None
        assert (conversation.user_id, conversation.agent_id) == ("ann", "helper")
        assert chat.why().splitlines()[-1].startswith("3 kept, 0 dropped")
        assert chat.prompt is not None
        assert [each["content"] for each in chat.prompt.messages] == ["Hello", "You said: Hello", "And again"]
        for answer, count in ((reply, 1), (chat.last, 3)):
            prompt = await store.get_prompt("c", answer.id)
            assert prompt is not None
            assert len(prompt.messages) == count

    run(scenario)


def test_the_same_message_twice_is_said_once() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="c")
        for _ in range(2):
            await chat.send("Hello", message_id="m1")
        assert await said(store) == ["Hello", "You said: Hello", "You said: You said: Hello"]

    run(scenario)


def test_tools_of_every_kind() -> None:
    async def scenario(store: Store) -> None:
        async def double(number: int) -> dict[str, int]:
            """Twice as much."""
            return {"result": number * 2}

        def broken() -> str:
            raise LookupError("no such shelf")

        model = Scripted(
            calling(
                Call("1", "double", '{"number": "21"}'),
                Call("2", "broken", {}),
                Call("3", "unheard_of", "{}"),
                Call("4", "double", "not json"),
                Call("5", "double", '{"number": "many"}'),
                Call("6", "conversation_search", '{"query": "lamp"}'),
            ),
            ["done", Answer(content="done")],
        )
        chat = Chat(store, model, conversation_id="c", tools=[double, broken])
        assert (await chat.send("I bought a lamp")).text == "done"
        results = [message.content[0] for message in await store.get_messages("c", roles=["tool"])]
        assert results[0]["output"] == {"result": 42}
        assert [each["is_error"] for each in results] == [False, True, True, True, True, False]
        assert "no such shelf" in results[1]["output"]
        assert "there are double, broken, conversation_search" in results[2]["output"]
        assert "not a JSON object" in results[3]["output"]
        assert "I bought a lamp" in results[5]["output"]
        heard = [each["role"] for each in model.prompts[1].messages]
        assert heard == ["user", "assistant", *["tool"] * 6]

    run(scenario)


def test_a_model_that_calls_for_ever_is_asked_to_answer() -> None:
    async def scenario(store: Store) -> None:
        call = calling(Call("1", "conversation_search", '{"query": "x"}'))
        model = Scripted(call, call, [Answer(content="enough")])
        chat = Chat(store, model, conversation_id="c", max_rounds=2)
        assert (await chat.send("Hello")).text == "enough"
        assert model.tools == [["conversation_search"], ["conversation_search"], []]

    run(scenario)


def test_what_is_no_tool() -> None:
    async def scenario(store: Store) -> None:
        def anything(*args: int) -> None: ...

        for wrong in (7, anything):
            with pytest.raises(ValidationError, match="tool"):
                Chat(store, EchoModel(), tools=[wrong])

    run(scenario)


def test_a_model_that_fails_keeps_the_question_and_can_be_asked_again() -> None:
    async def scenario(store: Store) -> None:
        model = Scripted([RuntimeError("overloaded")], ["ok", Answer(content="ok")], [Answer(content="other")])
        chat = Chat(store, model, conversation_id="c")
        with pytest.raises(RuntimeError, match="overloaded"):
            await chat.send("Hello")
        assert await said(store) == ["Hello"]
        assert (await chat.regenerate()).text == "ok"
        assert await said(store) == ["Hello", "ok"]
        assert (await chat.regenerate()).text == "other"
        assert await said(store) == ["Hello", "other"]
        assert len(await store.list_branches("c")) == 2
        with pytest.raises(ConversationNotFound):
            await Chat(store, model, conversation_id="none").regenerate()

    run(scenario)


def test_a_stream_that_breaks_or_is_left() -> None:
    async def scenario(store: Store) -> None:
        model = Scripted(["Half", ValueError("line cut")], ["Ha", "lf", Answer(content="Half")], ["no answer"])
        chat = Chat(store, model, conversation_id="c")
        with pytest.raises(ValueError, match="line cut"):
            [piece async for piece in chat.stream("one")]
        stream = chat.stream("two")
        assert await anext(stream) == "Ha"
        await stream.aclose()
        with pytest.raises(ValidationError, match="without an Answer"):
            await chat.send("three")
        found = [(each.text, each.status) for each in await store.get_messages("c", roles=["assistant"])]
        assert found == [("Half", "interrupted"), ("Ha", "interrupted")]

    run(scenario)


def test_conversations() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="first", user_id="ann")
        await chat.send("one")
        second = chat.new()
        assert second.startswith("conv_")
        await chat.send("two")
        await Chat(store, EchoModel(), conversation_id="other", user_id="ben").send("three")
        assert [each.id for each in (await chat.conversations()).items] == [second, "first"]
        assert (await chat.switch("first")).message_count == 2
        await chat.send("more")
        assert [message.text for message in await chat.history(last=2)] == ["more", "You said: more"]
        assert [hit.message.text for hit in await chat.search("more")] != []
        with pytest.raises(ConversationNotFound):
            await chat.switch("nowhere")
        assert chat.conversation_id == "first"
        again = Chat(store, EchoModel(), user_id="ann")
        resumed = await again.resume()
        assert resumed is not None
        assert resumed.id == again.conversation_id == "first"
        assert await Chat(store, EchoModel(), user_id="nobody").resume() is None

    run(scenario)


def test_a_store_that_keeps_nothing() -> None:
    """The model hears what was said in the lifetime of the chat."""

    async def main() -> None:
        async with hansard.connect("none://") as store:
            chat = Chat(store.user("ann"), EchoModel(), conversation_id="c")
            await chat.send("one", message_id="q1")
            await chat.send("two")
            assert chat.prompt is not None
            assert [each["content"] for each in chat.prompt.messages] == ["one", "You said: one", "two"]
            assert [message.text for message in await chat.history(last=1)] == ["You said: two"]
            assert (await chat.regenerate()).text == "You said: two"
            await chat.send("other", edit="q1")
            assert [each["content"] for each in chat.prompt.messages] == ["other"]
            chat.new("d")
            assert [piece async for piece in chat.stream("three")] == ["You", " said:", " three"]
            assert [each["content"] for each in chat.prompt.messages] == ["three"]
            assert (await chat.switch("c")).id == "c"
            assert chat.store.capabilities.name == "none"
            again = Chat(store.user("ann"), EchoModel(), conversation_id="c")
            await again.send("who am I?")
            assert again.prompt is not None
            assert len(again.prompt.messages) == 1
            assert await store.get_conversation("c") is None

    asyncio.run(main())


def test_one_chat_over_another_store_that_keeps_nothing() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="c")
        await chat.send("one")
        async with hansard.connect("none://") as nothing:
            chat.store = nothing
            await chat.send("two")
            await chat.send("three")
            assert chat.prompt is not None
            assert [each["content"] for each in chat.prompt.messages] == ["two", "You said: two", "three"]
        assert await said(store) == ["one", "You said: one"]

    run(scenario)


def test_a_context_manager_waits_for_the_end_of_an_answer() -> None:
    async def scenario(store: Store) -> None:
        async with Chat(store, EchoModel(), conversation_id="c") as chat:
            pieces = chat.stream("a long question")
            await anext(pieces)
            asking = asyncio.ensure_future(pieces.aclose())
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
        found = (await store.get_messages("c"))[-1]
        assert (found.role, found.status) == ("assistant", "interrupted")
        await store.append_message("c", "user", "the store is still open")

    run(scenario)


def test_the_store_goes_while_another_conversation_is_looked_for() -> None:
    """What this chat has said stays in its own conversation."""

    async def scenario(local: Store) -> None:
        wire = Wire()
        remote = wire.store()
        chat = Chat(remote, EchoModel(), conversation_id="c", fallback=local)
        await chat.send("one")
        wire.state = "away"
        with pytest.raises(Unavailable, match="'other' is not in the fallback"):
            await chat.switch("other")
        assert chat.conversation_id == "c"
        assert await local.get_conversation("other") is None
        assert (await chat.switch("c")).id == "c"

    run(scenario)


def test_editing() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="c")
        await chat.send("Where to?", message_id="q1")
        await chat.send("Thanks")
        await chat.send("Where to, by train?", edit="q1")
        assert await said(store) == ["Where to, by train?", "You said: Where to, by train?"]
        assert [each.message_count for each in await store.list_branches("c")] == [4, 2]

    run(scenario)


def test_sends_wait_for_each_other() -> None:
    async def scenario(store: Store) -> None:
        chat = Chat(store, EchoModel(), conversation_id="c")
        await asyncio.gather(*(chat.send(str(number)) for number in range(5)))
        roles = [message.role async for message in store.iter_messages("c")]
        assert roles == ["user", "assistant"] * 5

    run(scenario)


def test_the_store_is_changed_at_run_time() -> None:
    async def scenario(store: Store) -> None:
        async with hansard.connect("memory://") as other:
            chat = Chat(store, EchoModel(), conversation_id="c")
            await chat.send("here")
            await store.copy_to(other)
            chat.store = other
            await chat.send("there")
            assert len(await said(store)) == 2
            assert await said(other) == ["here", "You said: here", "there", "You said: there"]

    run(scenario)


def test_only_an_async_store() -> None:
    with sync.connect("memory://") as store, pytest.raises(ValidationError, match=r"hansard\.sync"):
        Chat(store, EchoModel())  # type: ignore[arg-type]


# --- a store that is away ---------------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks for the store before every message."""
    monkeypatch.setattr(stores_module, "_PAUSE", 0.0)


@pytest.mark.usefixtures("at_once")
def test_it_goes_on_in_the_fallback_and_comes_back() -> None:
    async def scenario(local: Store) -> None:
        wire = Wire()
        remote = wire.store()
        chat = Chat(remote, EchoModel(), conversation_id="c", user_id="ann", fallback=local)
        await chat.send("one")
        wire.state = "away"
        await chat.send("two")
        assert chat.is_away
        assert chat.prompt is not None
        assert [each["content"] for each in chat.prompt.messages] == ["one", "You said: one", "two"]
        await chat.send("three")
        wire.state = "there"
        assert len(await said(remote)) == 2
        await chat.send("four")
        assert not chat.is_away
        words = ["one", "two", "three", "four"]
        assert await said(remote) == [text for word in words for text in (word, f"You said: {word}")]
        assert await local.get_conversation("c") is None
        # A second time.
        wire.state = "away"
        await chat.send("five")
        wire.state = "there"
        synced = await chat.sync()
        assert (synced.conversations, synced.messages, synced.conflicts) == (1, 2, [])
        assert len(await said(remote)) == 10
        conversation = await remote.get_conversation("c")
        assert conversation is not None
        assert (conversation.user_id, conversation.metadata) == ("ann", {})

    run(scenario)


def test_what_another_chat_says_during_a_sync_is_not_lost() -> None:
    async def main() -> None:
        wire = Wire()
        async with wire.store() as remote, Store(MemoryBackend()) as local:
            chat = Chat(remote, EchoModel(), conversation_id="c", fallback=local)
            wire.state = "away"
            await chat.send("one")
            wire.state = "there"
            append, late = wire.inner.append, [Message("user", "late", id="late")]

            async def slow(*args: Any) -> Any:
                while late:
                    await local.append("c", late.pop())
                return await append(*args)

            cast(Any, wire.inner).append = slow
            assert (await chat.sync()).conversations == 1
            assert [message.text for message in await remote.get_messages("c")][-1] == "late"
            assert await local.get_conversation("c") is None

    asyncio.run(main())


def test_without_a_fallback_its_error_is_told() -> None:
    async def scenario(_: Store) -> None:
        wire = Wire()
        wire.state = "away"
        with pytest.raises(Unavailable):
            await Chat(wire.store(), EchoModel()).send("hello")

    run(scenario)


@pytest.mark.usefixtures("at_once")
def test_a_chat_that_begins_while_the_store_is_away() -> None:
    async def scenario(local: Store) -> None:
        wire = Wire()
        wire.state = "away"
        remote = wire.store()
        chat = Chat(remote, EchoModel(), conversation_id="c", fallback=local)
        await chat.send("one")
        assert [message.text for message in await chat.history()] == ["one", "You said: one"]
        assert [each.id for each in (await chat.conversations()).items] == ["c"]
        wire.state = "there"
        await chat.send("two")
        assert await said(remote) == ["one", "You said: one", "two", "You said: two"]

    run(scenario)


@pytest.mark.parametrize("at", range(1, 8))
@pytest.mark.parametrize("when", ["away", "lost"])
@pytest.mark.usefixtures("at_once")
def test_the_store_goes_at_any_moment_and_nothing_is_lost_or_doubled(at: int, when: str) -> None:
    async def scenario(local: Store) -> None:
        wire = Wire()
        remote = wire.store()

        async def strike() -> None:
            wire.state = "away"

        model = Scripted(
            ["a", Answer(content="a")],
            ["b", strike if at == 1 else "", "bb", Answer(content="bbb")],
            [strike if at == 2 else "", Answer(content="c")],
        )
        chat = Chat(remote, model, conversation_id="c", fallback=local, interval=0.01, search=False)
        calls = len(wire.calls)
        for number, text in enumerate(("one", "two", "three")):
            if number == 1 and at > 2:
                wire.loses_answers, wire.state = when == "lost", "away" if when == "away" else "there"
            async for _ in chat.stream(text):
                if at > 2 and len(wire.calls) - calls >= at:
                    wire.loses_answers, wire.state = False, "there"
        wire.loses_answers, wire.state = False, "there"
        await chat.sync()
        assert await said(remote) == ["one", "a", "two", "bbb", "three", "c"]
        assert {message.status async for message in remote.iter_messages("c")} == {"complete"}
        assert await remote.check() == []

    run(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_sync_that_is_cut_off_anywhere_is_made_again(when: Literal["before", "after"]) -> None:
    async def struck_at(number: int) -> bool:
        wire, away, fault = Wire(), MemoryBackend(), Fault(at=number, when=when)
        wire.state = "away"
        chat = Chat(wire.store(), EchoModel(), conversation_id="c", fallback=Store(away))
        await chat.send("one")
        chat.new("d")
        await chat.send("two")
        remote, local = Store(faulty(wire.inner, fault)), Store(faulty(away, fault))
        try:
            await Chat(remote, EchoModel(), fallback=local).sync()
        except Unavailable:
            await Chat(remote, EchoModel(), fallback=local).sync()
        was_struck = fault.struck is not None
        assert await said(Store(wire.inner), "c") == ["one", "You said: one"]
        assert await said(Store(wire.inner), "d") == ["two", "You said: two"]
        assert (await Store(away).stats()).conversations == 0
        return was_struck

    async def scenario(_: Store) -> None:
        number = 1
        while await struck_at(number):
            number += 1
        assert number > 6

    run(scenario)


def test_what_the_store_will_not_take_is_reported_and_stays() -> None:
    async def scenario(local: Store) -> None:
        wire = Wire()
        remote = wire.store()
        await remote.append_message("c", "user", "mine", user_id="ben")
        chat = Chat(remote, EchoModel(), conversation_id="c", user_id="ann", fallback=local)
        wire.state = "away"
        await chat.send("one")
        wire.state = "there"
        synced = await chat.sync()
        assert (synced.conversations, synced.messages, len(synced.conflicts)) == (0, 0, 2)
        assert await said(remote) == ["mine"]
        assert await said(local) == ["one", "You said: one"]
        assert (await chat.sync()).conflicts == []

    run(scenario)


def test_what_was_deleted_meanwhile_stays_deleted() -> None:
    async def scenario(local: Store) -> None:
        wire = Wire()
        remote = wire.store()
        chat = Chat(remote, EchoModel(), conversation_id="c", fallback=local)
        await chat.send("secret", message_id="m1")
        wire.state = "away"
        await chat.send("more")
        wire.state = "there"
        await remote.delete_message("c", "m1")
        synced = await chat.sync()
        assert [each.where for each in synced.conflicts] == ["c/m1"]
        assert await said(remote) == ["You said: secret", "more", "You said: more"]

    run(scenario)


@pytest.mark.parametrize("model", ["gpt-5", None, object()])
def test_what_is_no_model_is_refused_at_once(model: Any) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(ValidationError, match="a chat needs a model, such as OpenAIModel"):
            Chat(store, model, conversation_id="c")
        assert await store.get_conversation("c") is None

    run(scenario)


def test_the_names_of_tools_are_different() -> None:
    def weather(city: str) -> str:
        return city

    async def scenario(store: Store) -> None:
        with pytest.raises(ValidationError, match="several tools are called weather"):
            Chat(store, EchoModel(), tools=[weather, weather])
        model = Scripted([Answer(content="Yes")])
        chat = Chat(store, model, conversation_id="c", tools=[store.search_tool("c")])
        await chat.send("Hello")
        assert model.tools == [["conversation_search"]]

    run(scenario)
