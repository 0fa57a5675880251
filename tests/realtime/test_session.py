"""A voice session through the official SDK, over a WebSocket: recorded, interrupted, restored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.realtime.session import Session, connected, until
from websockets import ConnectionClosedError

import hansard
from hansard import Message, Store, Usage
from hansard.realtime import Recorder, restore

TRANSCRIBED = "conversation.item.input_audio_transcription.completed"
DONE = "conversation.item.done"


def run(scenario: Callable[[Store, Any, Session], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        sessions: list[Session] = []
        async with hansard.connect("memory://") as store, connected(sessions) as connection:
            assert (await connection.recv()).type == "session.created"
            await asyncio.wait_for(scenario(store, connection, sessions[0]), 60)

    asyncio.run(main())


async def said(store: Store) -> list[tuple[str, str, str]]:
    return [(each.role, each.text, each.status) for each in await store.get_messages("call")]


async def talk(recorder: Recorder, connection: Any) -> None:
    await connection.input_audio_buffer.commit()
    await connection.response.create()
    await until(recorder, connection, TRANSCRIBED)


def test_a_call() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        recorder = Recorder(store, "call", user_id="ann", agent_id="voice")
        await recorder.feed({"type": "session.created", "session": {"model": "m-voice"}})
        await talk(recorder, connection)
        assert await said(store) == [
            ("user", "Where is my order?", "complete"),
            ("assistant", "It left this morning.", "complete"),
        ]
        question, answer = await store.get_messages("call")
        assert (question.id, question.format, answer.id) == ("item_user", "openai.realtime", "item_answer")
        assert answer.usage == Usage(30, 12, 8, model="m-voice")
        assert answer.participant is not None
        assert answer.participant.id == "voice"
        assert "audio" not in answer.content["content"][0]
        assert recorder.counts.malformed == recorder.counts.failed == 0
        conversation = await store.get_conversation("call")
        assert conversation is not None
        assert conversation.user_id == "ann"
        assert [row.output_tokens for row in await store.usage()] == [12]
        # The next prompt of a text model knows what was spoken.
        prompt = await store.assemble_prompt("call")
        assert [each["content"] for each in prompt.messages] == ["Where is my order?", "It left this morning."]
        assert (await store.search("morning"))[0].message.id == "item_answer"

    run(scenario)


def test_items_of_every_kind_in_their_places() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        recorder = Recorder(store, "call")
        create = connection.conversation.item.create
        text = {"type": "input_text", "text": "second"}
        await create(item={"id": "b", "type": "message", "role": "user", "content": [text]})
        await create(item={"id": "c", "type": "function_call", "call_id": "f1", "name": "f", "arguments": "{}"})
        await create(item={"id": "d", "type": "function_call_output", "call_id": "f1", "output": "42"})
        rules = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "first"}]}
        await create(item={"id": "a", **rules}, previous_item_id="root")
        await create(item={"id": "z", **rules}, previous_item_id="nowhere")
        await create(item={"id": "b2", **rules}, previous_item_id="b")
        await until(recorder, connection, DONE, 5)
        assert [(each.id, each.role) for each in await store.get_messages("call")] == [
            ("a", "system"),
            ("b", "user"),
            ("b2", "system"),
            ("c", "assistant"),
            ("d", "tool"),
        ]
        assert [item["id"] for item in session.items] == ["a", "b", "b2", "c", "d"]
        assert recorder.counts.errors == 1
        assert await store.check() == []

    run(scenario)


def test_what_is_deleted_is_deleted() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        recorder = Recorder(store, "call")
        await talk(recorder, connection)
        await connection.conversation.item.delete(item_id="item_user")
        await until(recorder, connection, "conversation.item.deleted")
        assert [each.id for each in await store.get_messages("call")] == ["item_answer"]

    run(scenario)


@pytest.mark.parametrize("estimate", [False, True])
def test_what_was_cut_off_was_not_heard(estimate: bool) -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        recorder = Recorder(store, "call", estimate=estimate)
        await talk(recorder, connection)
        truncate = connection.conversation.item.truncate
        await truncate(item_id="item_answer", content_index=0, audio_end_ms=2000)
        await until(recorder, connection, "conversation.item.truncated")
        answer = (await store.get_messages("call"))[1]
        assert answer.status == "interrupted"
        assert answer.text == ("It left" if estimate else ""), "two of four seconds"
        assert answer.metadata == {"heard_ms": {"0": 2000}, "generated": {"0": "It left this morning."}}
        assert await store.search("morning") == [], "what was not heard is not found"
        # The server's own word about it.
        session.items[-1]["content"][0]["transcript"] = "It left this"
        await connection.conversation.item.retrieve(item_id="item_answer")
        await until(recorder, connection, "conversation.item.retrieved")
        answer = (await store.get_messages("call"))[1]
        assert (answer.text, answer.status) == ("It left this", "interrupted")

    run(scenario)


def test_what_is_said_out_of_band_is_left_out() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        recorder = Recorder(store, "call")
        await connection.response.create(response={"conversation": "none"})
        await until(recorder, connection, "response.done")
        assert await store.get_messages("call") == []
        assert (await store.usage()) == []

    run(scenario)


def test_a_line_that_is_cut_leaves_what_was_heard_as_interrupted() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        session.cut_at = "this "
        await connection.input_audio_buffer.commit()
        await connection.response.create()
        with pytest.raises(ConnectionClosedError):
            [event async for event in Recorder(store, "call").listen(connection)]
        assert await said(store) == [("user", "", "complete"), ("assistant", "It left this ", "interrupted")]
        answer = (await store.get_messages("call"))[1]
        assert answer.metadata is None, "its lease went with its end"

    run(scenario)


def test_restoring_into_a_new_session() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        await store.append(
            "call",
            [
                Message("system", "Be kind."),
                Message("user", "Is it raining?", id="q"),
                Message(
                    "assistant",
                    [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}],
                    format="anthropic",
                ),
                Message("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "rain"}], format="anthropic"),
                Message("assistant", "It is."),
                Message("assistant", "Never shown.", status="blocked"),
            ],
        )
        before = await store.get_messages("call")
        recorder = await restore(store, "call", connection)
        await until(recorder, connection, DONE, 5)
        assert [(item["type"], item.get("role")) for item in session.items] == [
            ("message", "system"),
            ("message", "user"),
            ("function_call", None),
            ("function_call_output", None),
            ("message", "assistant"),
        ]
        assert session.items[-1]["content"] == [{"type": "output_text", "text": "It is."}]
        after = await store.get_messages("call")
        assert [(each.id, each.content, each.format) for each in after] == [
            (each.id, each.content, each.format) for each in before
        ], "nothing is recorded again"
        # And it goes on.
        await talk(recorder, connection)
        assert [each.text for each in await store.get_messages("call")][-2:] == [
            "Where is my order?",
            "It left this morning.",
        ]
        await connection.conversation.item.delete(item_id=session.items[1]["id"])
        await until(recorder, connection, "conversation.item.deleted")
        assert "q" not in [each.id for each in await store.get_messages("call")]

    run(scenario)


def test_what_was_spoken_is_restored_as_text() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        first = Recorder(store, "call")
        await talk(first, connection)
        await first.close()
        sessions: list[Session] = []
        async with connected(sessions) as again:
            recorder = await restore(store, "call", again)
            await until(recorder, again, DONE, 2)
            assert [item["content"] for item in sessions[0].items] == [
                [{"type": "input_text", "text": "Where is my order?"}],
                [{"type": "output_text", "text": "It left this morning."}],
            ]
            assert len(await store.get_messages("call")) == 2

    run(scenario)


def test_a_window_of_it() -> None:
    async def scenario(store: Store, connection: Any, session: Session) -> None:
        await store.append("call", [Message("user", f"m{number}") for number in range(30)])
        recorder = Recorder(store, "call")
        assert await recorder.restore(connection, messages=3) == 3
        await until(recorder, connection, DONE, 3)
        assert [item["content"][0]["text"] for item in session.items] == ["m27", "m28", "m29"]
        # First in the session is not first in the conversation.
        rules = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "rules"}]}
        await connection.conversation.item.create(item={"id": "s", **rules}, previous_item_id="root")
        await until(recorder, connection, DONE)
        assert [each.text for each in await store.get_messages("call", last=4)] == ["rules", "m27", "m28", "m29"]

    run(scenario)
