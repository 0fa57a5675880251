"""A turn of any agent: recorded before and after, and the agent notices nothing."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry import trace

import hansard
from hansard import Message, Participant, Source, Store, Usage
from hansard.capture import Capture, Inbound, Reply

ANN = Participant("user", "u1", display_name="Ann")


def run(scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with hansard.connect("memory://") as store:
            await scenario(store)

    asyncio.run(main())


async def said(store: Store, id: str = "c") -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in await store.get_messages(id)]


def test_an_agent_that_takes_and_gives_text() -> None:
    async def scenario(store: Store) -> None:
        @Capture(store, agent_id="helper", agent_name="Helper")
        async def agent(text: str) -> str:
            assert await said(store) == [("user", text)], "it is recorded before the agent runs"
            return text.upper()

        assert agent.__name__ == "agent"
        assert await agent("hello", conversation_id="c", user_id="ann", participant=ANN, scope="dm") == "HELLO"
        question, answer = await store.get_messages("c")
        assert (question.participant, question.scope) == (ANN, "dm")
        assert answer.participant == Participant("agent", "helper", display_name="Helper")
        assert (answer.role, answer.content, answer.scope, answer.status) == ("assistant", "HELLO", "dm", "complete")
        conversation = await store.get_conversation("c")
        assert conversation is not None
        assert (conversation.user_id, conversation.agent_id) == ("ann", "helper")

    run(scenario)


class Bot:
    async def __call__(self, text: str, *, conversation_id: str) -> str:
        return f"{text} in {conversation_id}"

    async def method(self, text: str, **facts: Any) -> str:
        return f"{text} {sorted(facts)}"


async def prefixed(prefix: str, text: str) -> str:
    return prefix + text


def future(text: str) -> asyncio.Future[str]:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    answer.set_result(text + "!")
    return answer


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        (Bot(), "hi in c"),
        (Bot().method, "hi ['conversation_id', 'message_id']"),
        (future, "hi!"),
    ],
    ids=["object", "method", "future"],
)
def test_any_async_callable(agent: Callable[..., Any], answer: str) -> None:
    async def scenario(store: Store) -> None:
        wrapped = Capture(store)(agent)
        assert await wrapped("hi", conversation_id="c", message_id="m1") == answer
        assert await said(store) == [("user", "hi"), ("assistant", answer)]
        assert (await store.get_messages("c"))[0].id == "m1"

    run(scenario)


def test_a_partial_and_a_fixed_conversation() -> None:
    async def scenario(store: Store) -> None:
        read = lambda text: Inbound(conversation_id=7, content=text)  # noqa: E731
        agent = Capture(store, inbound=read)(functools.partial(prefixed, "> "))
        assert await agent("hi") == "> hi"
        other = Capture(store, conversation_id=7)(Bot().method)
        assert await other(text="keyword") == "keyword []"
        assert await said(store, "7") == [
            ("user", "hi"),
            ("assistant", "> hi"),
            ("user", "keyword"),
            ("assistant", "keyword []"),
        ]

    run(scenario)


@dataclass
class ChannelMessage:
    """As a channel of toolpack passes it."""

    conversationId: str  # noqa: N815
    text: str
    participant: dict[str, str]
    messageId: str  # noqa: N815
    metadata: dict[str, Any] = field(default_factory=dict)


def test_messages_of_other_shapes() -> None:
    async def scenario(store: Store) -> None:
        @Capture(store)
        async def agent(message: Any) -> None:
            return None

        metadata = {"channelType": "slack", "threadId": "171"}
        await agent(ChannelMessage("c", "from an object", {"kind": "user", "id": "U7"}, "evt-1", metadata))
        await agent({"conversation_id": "c", "content": [{"type": "text", "text": "parts"}], "format": "parts"})
        await agent(Message("user", "a message", id="m3", conversation_id="c", mentions=("helper",)))
        await agent(Inbound(conversation_id="c", content="as it is", role="system"))
        first, second, third, fourth = await store.get_messages("c")
        assert (first.id, first.text, first.scope, first.metadata) == ("evt-1", "from an object", "thread", metadata)
        assert first.participant is not None
        assert first.participant.id == "U7"
        assert (second.text, second.format) == ("parts", "parts")
        assert (third.id, third.mentions) == ("m3", ("helper",))
        assert (fourth.role, fourth.content) == ("system", "as it is")

    run(scenario)


def test_messages_as_toolpack_spells_them() -> None:
    """A StoredMessage of its, and a result with sources as ModernPath's messages have them."""

    async def scenario(store: Store) -> None:
        @Capture(store, agent_id="helper")
        async def agent(message: Any) -> Any:
            return {"answer": "It is.", "sources": [{"documentId": "d1", "documentName": "Guide", "score": 0.8}]}

        await agent(
            {
                "id": "evt-1",
                "conversationId": "c",
                "participant": {"kind": "user", "id": "U7", "displayName": "Ann"},
                "content": "@helper, is the build green?",
                "timestamp": "2026-01-31T12:00:00Z",
                "scope": "thread",
                "metadata": {"channelType": "slack", "mentions": ["helper"]},
            }
        )
        question, answer = await store.get_messages("c")
        assert question.participant == Participant("user", "U7", display_name="Ann")
        assert question.created_at == datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert (question.mentions, question.scope) == (("helper",), "thread")
        assert question.metadata == {"channelType": "slack", "mentions": ["helper"]}
        assert answer.sources == (Source("d1", "Guide", score=0.8),)
        assert answer.metadata is None

    run(scenario)


def test_a_time_that_cannot_be_read_is_kept_beside_the_message() -> None:
    async def scenario(store: Store) -> None:
        @Capture(store)
        async def agent(message: Any) -> str:
            return "Noted."

        await agent({"conversationId": "c", "content": "Hello", "timestamp": "yesterday"})
        question, _ = await store.get_messages("c")
        assert question.metadata == {"unreadable": {"created_at": "yesterday"}}

    run(scenario)


ODD: dict[str, tuple[Any, Any]] = {
    "participant": ({"kind": "robot", "id": "r"}, {"kind": "robot", "id": "r"}),
    "mentions": (["helper", 7], [7]),
    "scope": ("everywhere", "everywhere"),
    "role": ("narrator", "narrator"),
    "id": ("x" * 300, "x" * 300),
    "format": (["text"], ["text"]),
    "created_at": (datetime(2026, 1, 1), "datetime.datetime(2026, 1, 1, 0, 0)"),  # noqa: DTZ001
    "metadata": ({"kept": 1, "at": {1}}, {"'at'": "{1}"}),
}


@pytest.mark.parametrize("field", ODD)
def test_one_odd_field_loses_no_question(field: str, caplog: pytest.LogCaptureFixture) -> None:
    value, kept = ODD[field]

    async def scenario(store: Store) -> None:
        capture = Capture(store, inbound=lambda text: Inbound(conversation_id="c", content=text, **{field: value}))

        @capture
        async def agent(text: str) -> str:
            return "Noted."

        for _ in range(2):
            await agent("Hello")
        question, *_, answer = await store.get_messages("c")
        assert (question.role, question.text, answer.text) == ("user", "Hello", "Noted.")
        assert question.metadata is not None
        assert question.metadata["unreadable"] == {field: kept}
        assert question.mentions == (("helper",) if field == "mentions" else ())
        assert question.metadata.get("kept") == (1 if field == "metadata" else None)
        assert (capture.counts.refused, capture.counts.repeated) == (0, 2 if field == "id" else 0)

    run(scenario)
    assert f"stored without the unreadable part of its {field}" in caplog.text


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_one_odd_field_loses_no_answer(streams: bool) -> None:
    odd = Reply(
        content="It is.",
        sources=[{"documentId": "d1"}, {"page": 5}],
        usage={"inputTokens": -1},
        participant={"kind": "agent", "id": "helper", "displayName": "Helper", "avatar": "h.png"},
        status="fine",  # type: ignore[arg-type]
        trace_id=7,  # type: ignore[arg-type]
    )

    async def scenario(store: Store) -> None:
        async def agent(text: str) -> Any:
            return odd

        async def stream(text: str) -> AsyncIterator[Any]:
            yield "It is"
            yield odd

        captured = Capture(store)(stream if streams else agent)
        if streams:
            assert len([piece async for piece in captured("q", conversation_id="c")]) == 2
        else:
            await captured("q", conversation_id="c")
        answer = (await store.get_messages("c"))[-1]
        assert (answer.text, answer.status, answer.sources) == ("It is.", "complete", (Source("d1"),))
        assert answer.metadata == {
            "unreadable": {
                "sources": [{"page": 5}],
                "usage": {"inputTokens": -1},
                "participant": {"avatar": "h.png"},
                "status": "fine",
                "trace_id": 7,
            }
        }

    run(scenario)


def test_what_names_no_conversation_is_not_recorded() -> None:
    async def scenario(store: Store) -> None:
        capture = Capture(store)
        agent = capture(prefixed)
        assert await agent("no ", "conversation") == "no conversation"
        assert await capture(Bot().method)(17, conversation_id="c") == "17 ['conversation_id']"

        def broken(*args: Any, **kwargs: Any) -> Inbound:
            raise KeyError("channel")

        failing = Capture(store, inbound=broken)
        assert await failing(prefixed)("a", "b") == "ab"
        assert (capture.counts.skipped, failing.counts.skipped) == (2, 1)
        assert (await store.stats()).messages == 0

    run(scenario)


class Unspeakable:
    def __str__(self) -> str:
        return "no JSON"


@pytest.mark.parametrize(
    ("result", "content", "format"),
    [
        ({"rows": [1, 2]}, {"rows": [1, 2]}, "json"),
        ([1, 2.5, None], [1, 2.5, None], "json"),
        (42, 42, "json"),
        (False, False, "json"),
        (Unspeakable(), "no JSON", "text"),
        (Participant("user", "u"), {"kind": "user", "id": "u"}, "json"),
        (
            Message("assistant", [{"type": "text", "text": "x"}], format="parts"),
            [{"type": "text", "text": "x"}],
            "parts",
        ),
        ({"output": "toolpack's", "metadata": {"k": 1}}, "toolpack's", "text"),
        ({"answer": "ModernPath's"}, "ModernPath's", "text"),
        ("", "", "text"),
    ],
    ids=str,
)
def test_replies_of_other_shapes(result: Any, content: Any, format: str) -> None:
    async def scenario(store: Store) -> None:
        async def agent(text: str) -> Any:
            return result

        assert await Capture(store)(agent)("q", conversation_id="c") is result
        reply = (await store.get_messages("c"))[-1]
        assert (reply.content, reply.format) == (content, format)
        if isinstance(result, Unspeakable):
            assert reply.metadata == {"reply_type": "tests.capture.test_turns.Unspeakable"}

    run(scenario)


def test_no_reply() -> None:
    async def scenario(store: Store) -> None:
        async def agent(text: str) -> None:
            return None

        assert await Capture(store)(agent)("q", conversation_id="c") is None
        assert await said(store) == [("user", "q")]

    run(scenario)


def test_sources_usage_and_whatever_else_a_reply_says() -> None:
    async def scenario(store: Store) -> None:
        full = Reply(
            content="It is.",
            sources=[{"document_id": "d1", "score": 0.5}],
            usage=Usage(10, 5, model="m"),
            trace_id="t-1",
            mentions=["ann"],
            metadata={"k": 1},
        )

        async def agent(text: str) -> Reply:
            return full

        await Capture(store)(agent)("q", conversation_id="c")
        reply = (await store.get_messages("c"))[-1]
        assert reply.sources[0].document_id == "d1"
        assert (reply.usage, reply.trace_id, reply.mentions) == (Usage(10, 5, model="m"), "t-1", ("ann",))
        assert reply.metadata == {"k": 1}
        assert [row.output_tokens for row in await store.usage()] == [5]

    run(scenario)


def test_the_trace_id_of_the_current_span() -> None:
    async def scenario(store: Store) -> None:
        agent = Capture(store)(Bot().method)
        context = trace.SpanContext(0xABC, 0x1, is_remote=False)
        with trace.use_span(trace.NonRecordingSpan(context)):
            await agent("traced", conversation_id="c")
        await agent("not traced", conversation_id="c")
        found = [message.trace_id for message in await store.get_messages("c")]
        assert found == [None, f"{0xABC:032x}", None, None]

    run(scenario)


def test_an_agent_that_raises_keeps_its_error_and_the_question() -> None:
    async def scenario(store: Store) -> None:
        async def agent(text: str) -> str:
            raise LookupError(text)

        with pytest.raises(LookupError, match="why"):
            await Capture(store)(agent)("why", conversation_id="c")
        assert await said(store) == [("user", "why")]

    run(scenario)


def test_an_agent_that_is_cancelled_or_times_out() -> None:
    async def scenario(store: Store) -> None:
        is_asked = asyncio.Event()

        async def agent(text: str) -> str:
            is_asked.set()
            await asyncio.Event().wait()
            return "never"

        answering = asyncio.ensure_future(Capture(store)(agent)("slow", conversation_id="c"))
        await is_asked.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answering, 0.05)
        assert await said(store) == [("user", "slow")]

    run(scenario)


def test_two_captures_of_one_message_record_it_once() -> None:
    async def scenario(store: Store) -> None:
        def agent_of(name: str) -> Any:
            capture = Capture(store, agent_id=name)

            async def agent(text: str) -> str:
                return f"{name}: {text}"

            return capture(agent), capture

        (one, first), (two, second) = agent_of("one"), agent_of("two")
        await asyncio.gather(*(each("hello", conversation_id="c", message_id="evt-1") for each in (one, two)))
        assert sorted(map(str, await said(store))) == sorted(
            map(str, [("user", "hello"), ("assistant", "one: hello"), ("assistant", "two: hello")])
        )
        # The same message delivered again: the agent runs again, and nothing is recorded twice.
        assert await one("hello", conversation_id="c", message_id="evt-1") == "one: hello"
        assert len(await said(store)) == 3
        assert first.counts.stored + second.counts.stored == 3
        assert first.counts.repeated + second.counts.repeated == 3

    run(scenario)


def test_the_prompt_that_an_agent_assembles_is_stored_with_its_answer() -> None:
    async def scenario(store: Store) -> None:
        async def agent(text: str, conversation_id: str) -> str:
            await asyncio.create_task(store.assemble_prompt(conversation_id))
            await store.assemble_prompt("another conversation")
            return "It costs 5."

        async def streaming(text: str, conversation_id: str) -> AsyncIterator[str]:
            await store.assemble_prompt(conversation_id)
            yield "It is "
            yield "in stock."

        async def without(text: str) -> str:
            return "Hello."

        capture = Capture(store, agent_id="sales")
        await capture(agent)("How much?", conversation_id="room")
        assert [piece async for piece in capture(streaming)("Do you have it?", conversation_id="room")]
        await capture(without)("Bye", conversation_id="room")
        counts = []
        for message in await store.get_messages("room"):
            prompt = await store.get_prompt("room", message.id)
            counts.append(None if prompt is None else len(prompt.messages))
        assert counts == [None, 1, None, 3, None, None]

    run(scenario)


def test_agents_in_one_conversation_see_each_other() -> None:
    async def scenario(store: Store) -> None:
        heard: dict[str, list[str]] = {}

        def agent_of(name: str, line: str) -> Any:
            async def agent(text: str) -> str:
                prompt = await store.assemble_prompt("room", agent_id=name, addressed_only=False)
                heard[name] = [f"{each['role']}: {each['content']}" for each in prompt.messages]
                return line

            return Capture(store, agent_id=name, agent_name=name.title())(agent)

        sales, support = agent_of("sales", "It costs 5."), agent_of("support", "It is in stock.")
        await sales("How much?", conversation_id="room", participant=ANN)
        await support("And do you have it?", conversation_id="room", participant=ANN)
        await sales("Thanks", conversation_id="room", participant=ANN)
        assert heard["support"][1] == "user: Sales (agent): It costs 5."
        assert heard["sales"][1:4] == [
            "assistant: It costs 5.",
            "user: Ann: And do you have it?",
            "user: Support (agent): It is in stock.",
        ]

    run(scenario)


def test_a_capture_of_a_view_stays_in_it() -> None:
    async def scenario(store: Store) -> None:
        await Capture(store.tenant("acme").user("ann"))(Bot().method)("hi", conversation_id="c")
        assert await store.get_conversation("c") is None
        assert await store.tenant("acme").user("ben").get_conversation("c") is None
        assert len(await store.tenant("acme").user("ann").get_messages("c")) == 2

    run(scenario)


class Nasty:
    """A custom object that fails on every access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError("str")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"inbound": lambda *_, **__: "no Inbound"},
        {"inbound": lambda *_, **__: Inbound(conversation_id={"a": 1}, content="x")},  # type: ignore[arg-type]
        {"inbound": lambda *_, **__: Inbound(conversation_id="c", content="x", id="\ud800")},
        {"inbound": lambda *_, **__: Inbound(conversation_id="c", content="x", id="x" * 300)},
        {"inbound": lambda *_, **__: Inbound(conversation_id="c", content="x", participant=7)},  # type: ignore[arg-type]
        {"reply": lambda _: 1 / 0},
        {"reply": lambda _: Nasty()},
    ],
)
def test_nothing_that_is_said_or_read_breaks_the_agent(options: dict[str, Any]) -> None:
    async def scenario(store: Store) -> None:
        nasty = Nasty()

        async def agent(message: Any, **_: Any) -> Any:
            return nasty

        async def stream(message: Any, **_: Any) -> AsyncIterator[Any]:
            yield nasty

        for said in ("text", nasty, object(), b"bytes", "\ud800"):
            capture = Capture(store, **options)
            assert await capture(agent)(said, conversation_id="c") is nasty
            assert [piece async for piece in capture(stream)(said, conversation_id="c")] == [nasty]
        assert await store.check() == []

    run(scenario)


def test_ids_that_are_numbers_or_uuids() -> None:
    async def scenario(store: Store) -> None:
        id = uuid.UUID(int=7)
        await Capture(store)(Bot().method)("hi", conversation_id=id, message_id=17, user_id=3)
        found = await store.get_messages(str(id))
        assert found[0].id == "17"
        conversation = await store.get_conversation(str(id))
        assert conversation is not None
        assert conversation.user_id == "3"

    run(scenario)


@pytest.mark.parametrize("option", ["interval", "lease", "idle", "timeout"])
@pytest.mark.parametrize("value", [0, -1, True, "soon", float("inf")])
def test_bad_options(option: str, value: Any) -> None:
    async def scenario(store: Store) -> None:
        with pytest.raises(hansard.ValidationError, match=option):
            Capture(store, **{option: value})

    run(scenario)
