"""Streamed replies: written by the clock, ended whatever happens, never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.capture.away import Wire
from tests.wait import PATIENCE, coming

import hansard
from hansard import Message, Store, Usage
from hansard.capture import Blocked, Capture, Reply


def run(scenario: Callable[[Wire, Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        wire = Wire()
        async with wire.store() as store:
            await asyncio.wait_for(scenario(wire, store), PATIENCE)

    asyncio.run(main())


async def reply_in(store: Store, id: str = "c") -> Message:
    return (await store.get_messages(id, roles=["assistant"]))[-1]


async def counting(text: str) -> AsyncIterator[str]:
    for number in range(2000):
        yield f"{number} "
        if number % 100 == 0:
            await asyncio.sleep(0)


def test_two_thousand_pieces_are_few_writes() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        agent = Capture(store, interval=600, lease=1200)(counting)
        wire.calls.clear()
        heard = [piece async for piece in agent("count", conversation_id="c")]
        assert heard == [f"{number} " for number in range(2000)]
        reply = await reply_in(store)
        assert (reply.content, reply.status, reply.metadata) == ("".join(heard), "complete", None)
        writes = [call for call in wire.calls if call in ("append", "update_message")]
        # The question, the beginning and the end of the answer; between them one write in each interval.
        assert writes == ["append", "append", "update_message"]

    run(scenario)


def test_it_grows_while_it_is_said() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        go_on = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            yield "Once "
            await go_on.wait()
            yield "upon a time."

        stream = Capture(store, interval=0.01)(agent)("tell", conversation_id="c")
        assert await anext(stream) == "Once "

        async def is_there() -> bool:
            found = await store.get_messages("c")
            return len(found) == 2 and found[1].content == "Once "

        await coming(is_there)
        growing = await reply_in(store)
        assert growing.status == "in_progress"
        assert growing.metadata is not None
        assert datetime.fromisoformat(growing.metadata["lease_until"]) > datetime.now(UTC)
        go_on.set()
        assert [piece async for piece in stream] == ["upon a time."]
        ended = await reply_in(store)
        assert (ended.id, ended.content, ended.status) == (growing.id, "Once upon a time.", "complete")
        assert ended.metadata is None

    run(scenario)


def test_the_lease_is_moved_on_while_nothing_comes_and_no_longer_than_idle() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        never = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            yield "Hm"
            await never.wait()

        stream = Capture(store, interval=0.01, lease=0.06, idle=0.3)(agent)("q", conversation_id="c")
        await anext(stream)
        leases: set[str] = set()

        async def is_moved() -> bool:
            found = await store.get_messages("c", roles=["assistant"])
            leases.update((message.metadata or {})["lease_until"] for message in found)
            return len(leases) > 1

        await coming(is_moved)
        waiting = asyncio.ensure_future(anext(stream))

        async def is_interrupted() -> bool:
            return (await reply_in(store)).status == "interrupted"

        await coming(is_interrupted)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (await reply_in(store)).status == "interrupted"

    run(scenario)


class Tripped(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (RuntimeError("model"), "interrupted", "RuntimeError"),
        (Blocked("policy"), "blocked", "Blocked"),
        (Tripped("guard"), "blocked", "Tripped"),
        (asyncio.CancelledError(), "interrupted", "CancelledError"),
    ],
)
def test_a_stream_that_breaks(error: BaseException, status: str, name: str) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def agent(text: str) -> AsyncIterator[str]:
            yield "I will "
            raise error

        wrapped = Capture(store, blocked=(Blocked, Tripped))(agent)
        with pytest.raises(type(error)):
            [piece async for piece in wrapped("q", conversation_id="c")]
        reply = await reply_in(store)
        assert (reply.content, reply.status, reply.metadata) == ("I will ", status, {"error": name})

    run(scenario)


def test_one_that_breaks_before_it_began_leaves_only_the_question() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def agent(text: str) -> AsyncIterator[str]:
            if text:
                raise Tripped(text)
            yield "never"

        with pytest.raises(Tripped):
            [piece async for piece in Capture(store)(agent)("q", conversation_id="c")]
        assert [message.role for message in await store.get_messages("c")] == ["user"]

    run(scenario)


def test_a_listener_that_leaves() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        closed = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            try:
                for number in range(100):
                    yield f"{number} "
            finally:
                closed.set()

        stream = Capture(store)(agent)("q", conversation_id="c")
        async for piece in stream:
            if piece == "3 ":
                break
        await stream.aclose()
        assert closed.is_set(), "the agent is closed too"
        reply = await reply_in(store)
        assert (reply.content, reply.status, reply.metadata) == ("0 1 2 3 ", "interrupted", None)

    run(scenario)


def test_a_task_that_is_cancelled_in_the_middle() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        begun = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            yield "half"
            begun.set()
            await asyncio.Event().wait()

        capture = Capture(store)
        wrapped = capture(agent)

        async def consume() -> None:
            async for _ in wrapped("q", conversation_id="c"):
                pass

        task = asyncio.ensure_future(consume())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await capture.close()
        reply = await reply_in(store)
        assert (reply.content, reply.status) == ("half", "interrupted")

    run(scenario)


def test_a_program_that_ends_in_the_middle() -> None:
    wire = Wire()

    async def main() -> None:
        store = wire.store()
        begun = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            yield "half"
            yield " of it"
            begun.set()
            await asyncio.Event().wait()

        async def consume() -> None:
            async for _ in Capture(store)(agent)("q", conversation_id="c"):
                pass

        task = asyncio.ensure_future(consume())
        await begun.wait()
        assert not task.done()  # the loop cancels it, and every other task

    asyncio.run(main())

    async def look() -> None:
        reply = await reply_in(wire.store())
        assert (reply.content, reply.status) == ("half of it", "interrupted")

    asyncio.run(look())


class SdkStream:
    """Like an SDK's stream: an object that contains the stream and other attributes."""

    def __init__(self, chunks: list[Any]) -> None:
        self._chunks = chunks
        self.request_id = "req-1"
        self.is_closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in self._chunks:
            yield chunk

    async def close(self) -> None:
        self.is_closed = True


def space(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**fields)


OPENAI = [
    space(choices=[space(delta=space(content=None, role="assistant"))], usage=None, model="m"),
    space(choices=[space(delta=space(content="Hell"))], usage=None, model="m"),
    space(choices=[space(delta=space(content="o"))], usage=None, model="m"),
    space(choices=[], usage=space(prompt_tokens=7, completion_tokens=2), model="m"),
]
ANTHROPIC = [
    space(type="message_start", message=space(model="m", usage=space(input_tokens=7, output_tokens=1))),
    space(type="content_block_delta", delta=space(type="text_delta", text="Hell")),
    space(type="content_block_delta", delta=space(type="input_json_delta", partial_json="{")),
    space(type="content_block_delta", delta=space(type="text_delta", text="o")),
    space(type="message_delta", usage=space(output_tokens=2)),
]
RESPONSES = [
    {"type": "response.created"},
    {"type": "response.output_text.delta", "delta": "Hell"},
    {"type": "response.output_text.delta", "delta": "o"},
    {"type": "response.completed", "response": {"model": "m", "usage": {"input_tokens": 7, "output_tokens": 2}}},
]


@pytest.mark.parametrize("chunks", [OPENAI, ANTHROPIC, RESPONSES], ids=["openai", "anthropic", "responses"])
def test_a_coroutine_that_returns_the_stream_of_an_sdk(chunks: list[Any]) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        inner = SdkStream(chunks)

        async def agent(text: str) -> SdkStream:
            return inner

        stream = await Capture(store)(agent)("q", conversation_id="c")
        assert stream.request_id == "req-1"
        assert [chunk async for chunk in stream] == chunks
        assert inner.is_closed
        reply = await reply_in(store)
        assert (reply.content, reply.usage) == ("Hello", Usage(7, 2, model="m"))

    run(scenario)


def test_a_plain_function_that_returns_a_stream() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        wrapped = Capture(store).wrap(lambda text: SdkStream(["a", "b"]), stream=True)
        assert [piece async for piece in wrapped("q", conversation_id="c")] == ["a", "b"]
        assert (await reply_in(store)).content == "ab"

    run(scenario)


def test_the_end_of_a_stream_says_more() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def agent(text: str) -> AsyncIterator[Any]:
            yield "Hello"
            yield Reply(usage=Usage(1, 2), sources=[{"document_id": "d"}], metadata={"k": 1})

        pieces = [piece async for piece in Capture(store)(agent)("q", conversation_id="c")]
        assert pieces[0] == "Hello"
        reply = await reply_in(store)
        assert (reply.content, reply.usage, reply.metadata) == ("Hello", Usage(1, 2), {"k": 1})
        assert reply.sources[0].document_id == "d"

    run(scenario)


def test_a_stream_that_is_not_text() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def objects(text: str) -> AsyncIterator[Any]:
            yield {"row": 1}
            yield {"row": 2}

        async def mixed(text: str) -> AsyncIterator[Any]:
            yield "text"
            yield {"row": 1}

        async def own(text: str) -> AsyncIterator[int]:
            yield 72
            yield 105

        assert len([each async for each in Capture(store)(objects)("q", conversation_id="objects")]) == 2
        assert (await reply_in(store, "objects")).content == [{"row": 1}, {"row": 2}]
        assert len([each async for each in Capture(store)(mixed)("q", conversation_id="mixed")]) == 2
        reply = await reply_in(store, "mixed")
        assert (reply.content, reply.metadata) == ("text", {"other_chunks": 1})
        assert [each async for each in Capture(store, chunk=chr)(own)("q", conversation_id="own")] == [72, 105]
        assert (await reply_in(store, "own")).content == "Hi"

    run(scenario)


def test_an_answer_that_was_cut_off_is_taken_up_when_its_question_comes_again() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def cut(text: str) -> AsyncIterator[str]:
            yield "half"
            raise Tripped

        async def whole(text: str) -> AsyncIterator[str]:
            yield "the whole"

        facts = {"conversation_id": "c", "message_id": "evt-1"}
        with pytest.raises(Tripped):
            [piece async for piece in Capture(store, agent_id="a")(cut)("q", **facts)]
        assert (await reply_in(store)).status == "interrupted"
        for _ in range(2):
            assert [piece async for piece in Capture(store, agent_id="a")(whole)("q", **facts)] == ["the whole"]
        found = await store.get_messages("c")
        assert [(each.content, each.status) for each in found] == [("q", "complete"), ("the whole", "complete")]

    run(scenario)


def test_two_that_answer_the_same_question_at_once_are_recorded_once() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        both = asyncio.Barrier(2)

        async def agent(text: str) -> AsyncIterator[str]:
            await both.wait()
            yield "same "
            await asyncio.sleep(0.05)
            yield "words"

        async def one() -> list[str]:
            agent_of = Capture(store, agent_id="a", interval=0.01)(agent)
            return [piece async for piece in agent_of("q", conversation_id="c", message_id="evt-1")]

        assert list(await asyncio.gather(one(), one())) == [["same ", "words"]] * 2
        found = await store.get_messages("c")
        assert [(each.content, each.status) for each in found] == [("q", "complete"), ("same words", "complete")]

    run(scenario)


def test_a_message_that_is_deleted_while_it_grows_stays_deleted() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        go_on = asyncio.Event()

        async def agent(text: str) -> AsyncIterator[str]:
            yield "a"
            await go_on.wait()
            yield "b"

        capture = Capture(store, interval=0.01)
        stream = capture(agent)("q", conversation_id="c")
        await anext(stream)

        async def is_there() -> bool:
            return len(await store.get_messages("c")) == 2

        await coming(is_there)
        await store.delete_conversation("c")
        go_on.set()
        assert [piece async for piece in stream] == ["b"]
        assert await store.get_conversation("c") is None
        assert capture.counts.refused >= 1

    run(scenario)


def test_a_lapsed_lease_reads_as_interrupted_later() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        async def agent(text: str) -> AsyncIterator[str]:
            yield "a"
            await asyncio.Event().wait()

        stream = Capture(store)(agent)("q", conversation_id="c")
        await anext(stream)

        async def is_there() -> bool:
            return len(await store.get_messages("c")) == 2

        await coming(is_there)
        later = wire.store(clock=lambda: datetime.now(UTC) + timedelta(hours=1))
        assert (await reply_in(later)).status == "interrupted"
        assert (await reply_in(store)).status == "in_progress"
        await stream.aclose()

    run(scenario)


def test_pace() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        with pytest.raises(hansard.ValidationError, match="longer than interval"):
            Capture(store, interval=2, lease=1)

    run(scenario)
