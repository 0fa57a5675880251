"""Events out of order, repeated, unknown or cut off; a store that is away; a recorder that takes over from another."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.capture.away import Wire

from hansard import Message, Store, Usage
from hansard.errors import ValidationError
from hansard.realtime import Recorder


def run(scenario: Callable[[Wire, Store], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        wire = Wire()
        async with wire.store() as store:
            await asyncio.wait_for(scenario(wire, store), 60)

    asyncio.run(main())


def message(id: str, role: str, part: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": role, "content": [part] if part else [], **fields}


SPOKEN = {"type": "output_audio", "transcript": "It left this morning."}
ANSWER = message("a", "assistant", SPOKEN, status="completed")
QUESTION = message("q", "user", {"type": "input_audio"}, status="completed")
TRANSCRIBED = "conversation.item.input_audio_transcription.completed"

CALL: list[dict[str, Any]] = [
    {"type": "conversation.item.added", "item": QUESTION, "previous_item_id": None},
    {"type": "conversation.item.done", "item": QUESTION, "previous_item_id": None},
    {
        "type": "conversation.item.added",
        "item": message("a", "assistant", status="in_progress"),
        "previous_item_id": "q",
    },
    {"type": "response.output_audio_transcript.delta", "item_id": "a", "content_index": 0, "delta": "It left "},
    {"type": "response.output_audio_transcript.delta", "item_id": "a", "content_index": 0, "delta": "this "},
    {"type": "conversation.item.done", "item": ANSWER, "previous_item_id": "q"},
    {"type": "response.output_item.done", "item": ANSWER, "response_id": "r"},
    {
        "type": "response.done",
        "response": {
            "id": "r",
            "status": "completed",
            "output": [ANSWER],
            "conversation_id": "conv",
            "usage": {"input_tokens": 30, "output_tokens": 12},
        },
    },
    {"type": TRANSCRIBED, "item_id": "q", "content_index": 0, "transcript": "Where is my order?"},
    {"type": "rate_limits.updated", "rate_limits": []},
]
TOLD = [
    ("q", "user", "Where is my order?", "complete", None),
    ("a", "assistant", "It left this morning.", "complete", Usage(30, 12)),
]


async def told(store: Store) -> list[Any]:
    found = [each async for each in store.iter_messages("c")]
    return [(each.id, each.role, each.text, each.status, each.usage) for each in found]


@settings(deadline=None, max_examples=150)
@given(st.permutations(range(len(CALL))), st.lists(st.integers(0, len(CALL) - 1), max_size=8))
def test_any_order_and_any_repetition(order: list[int], again: list[int]) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for number in [*order, *again]:
            await recorder.feed(copy.deepcopy(CALL[number]))
        assert await told(store) == TOLD
        assert recorder.counts.malformed == 0
        assert await store.check() == []
        assert [row.output_tokens for row in await store.usage()] == [12]

    run(scenario)


def test_json_and_mappings_are_events_too() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for event in CALL:
            await recorder.feed(json.dumps(event) if event["type"].startswith("c") else json.dumps(event).encode())
        assert await told(store) == TOLD

    run(scenario)


GARBAGE: list[Any] = [
    None,
    7,
    "",
    "{",
    b"\xff",
    [],
    {},
    {"type": 7},
    {"type": "conversation.item.added"},
    {"type": "conversation.item.added", "item": None},
    {"type": "conversation.item.added", "item": {}},
    {"type": "conversation.item.added", "item": {"id": 7}},
    {"type": "conversation.item.added", "item": {"id": ""}},
    {"type": "conversation.item.done", "item": "text"},
    {"type": "conversation.item.deleted"},
    {"type": "conversation.item.deleted", "item_id": ["x"]},
    {"type": "conversation.item.truncated", "item_id": "a"},
    {"type": "conversation.item.truncated", "item_id": "a", "content_index": "x", "audio_end_ms": None},
    {"type": "conversation.item.truncated", "item_id": "a", "content_index": 99, "audio_end_ms": 5},
    {"type": "conversation.item.retrieved", "item": {"id": "unknown"}},
    {"type": TRANSCRIBED, "item_id": "q", "content_index": 99, "transcript": "x"},
    {"type": TRANSCRIBED, "item_id": "q", "content_index": 0, "transcript": None},
    {"type": "response.output_audio.delta", "item_id": "a"},
    {"type": "response.output_text.delta", "item_id": "a", "content_index": -5, "delta": "x"},
    {"type": "response.output_text.delta", "item_id": "a", "content_index": 10**9, "delta": "x"},
    '{"type": "conversation.item.added", "item": ' + "[" * 100_000 + "]" * 100_000 + "}",
    {"type": "response.done"},
    {"type": "response.done", "response": {"output": [None]}},
    {"type": "response.done", "response": {"output": 7}},
    {"type": "session.created", "session": None},
    {"type": "error"},
    {"type": "never.heard.of"},
]


@pytest.mark.parametrize("event", GARBAGE, ids=lambda event: repr(event)[:60])
def test_garbage_changes_nothing(event: Any) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for each in CALL:
            await recorder.feed(event)
            await recorder.feed(copy.deepcopy(each))
        expected = [*TOLD]
        if isinstance(event, dict) and event.get("content_index") == 99 and "audio_end_ms" in event:
            expected[1] = (*TOLD[1][:3], "interrupted", TOLD[1][4])
        assert await told(store) == expected
        counts = recorder.counts
        assert counts.malformed + counts.ignored + counts.errors + len(recorder._early) > 0
        assert await recorder.close()

    run(scenario)


def test_an_item_that_is_deleted_stays_deleted_whatever_comes_later() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        await recorder.feed({"type": "conversation.item.deleted", "item_id": "q"})
        for event in CALL:
            await recorder.feed(copy.deepcopy(event))
        assert [row[0] for row in await told(store)] == ["a"]

    run(scenario)


def test_words_for_what_is_no_part_hold_nothing_up() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        odd = {**message("odd", "assistant"), "content": ["text"]}
        await recorder.feed({"type": "conversation.item.added", "item": odd})
        await recorder.feed({"type": "response.output_text.delta", "item_id": "odd", "content_index": 0, "delta": "x"})
        assert await recorder.close()
        assert recorder.counts.failed == 0

    run(scenario)


def test_what_is_deleted_goes_although_the_store_did_not_say_that_it_has_it() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        await recorder.feed(copy.deepcopy(CALL[0]))
        wire.loses_answers = True
        await recorder.feed(copy.deepcopy(CALL[2]))
        wire.loses_answers = False
        assert [row[0] for row in await told(store)] == ["q", "a"]
        await recorder.feed({"type": "conversation.item.deleted", "item_id": "a"})
        assert await recorder.close()
        assert [row[0] for row in await told(store)] == ["q"]

    run(scenario)


def test_what_is_deleted_while_something_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for event in CALL:
            await recorder.feed(copy.deepcopy(event))
        others: list[Any] = []
        delete = store.delete_messages

        async def slowly(id: str, ids: Any) -> Any:
            receipt = await delete(id, list(ids))
            if not others:
                event = {"type": "conversation.item.deleted", "item_id": "a"}
                others.append(asyncio.create_task(recorder.feed(event)))
                await asyncio.sleep(0)
            return receipt

        monkeypatch.setattr(store, "delete_messages", slowly)
        await recorder.feed({"type": "conversation.item.deleted", "item_id": "q"})
        await asyncio.gather(*others)
        assert await recorder.close()
        assert await told(store) == []

    run(scenario)


@pytest.mark.parametrize("before", [0, 1200])
def test_an_endpoint_that_counts_from_one_in_each_session(before: int) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        for number in range(2):
            async with Recorder(store, "c", fresh=True) as recorder:
                for event in CALL:
                    await recorder.feed(copy.deepcopy(event))
            assert recorder.counts.refused == 0
            if number == 0 and before:
                await store.append("c", [Message("user", "between", id=f"m{at}") for at in range(before)])
        found = await told(store)
        assert [row[1:] for row in [*found[:2], *found[-2:]]] == [row[1:] for row in [*TOLD, *TOLD]]
        assert [len(found), found[0][0], found[1][0]] == [4 + before, "q", "a"]
        async with Recorder(store, "c", fresh=True) as recorder:
            await recorder.feed(copy.deepcopy(CALL[0]))
            await recorder.feed({"type": "conversation.item.deleted", "item_id": "q"})
        assert await told(store) == found, "only what this session has said"

    run(scenario)


def test_cut_before_it_was_done() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        cut = {"type": "conversation.item.truncated", "item_id": "a", "content_index": 0, "audio_end_ms": 900}
        for event in (*CALL[:5], cut, *CALL[5:], cut):
            await recorder.feed(copy.deepcopy(event))
        answer = (await store.get_messages("c"))[1]
        assert (answer.text, answer.status) == ("", "interrupted")
        assert answer.metadata is not None
        assert answer.metadata["heard_ms"] == {"0": 900}
        assert answer.metadata["generated"]["0"].startswith("It left this")

    run(scenario)


@pytest.mark.parametrize(
    ("status", "details", "kept"),
    [
        ("cancelled", {"reason": "turn_detected"}, "interrupted"),
        ("incomplete", {"reason": "content_filter"}, "blocked"),
        ("failed", None, "interrupted"),
    ],
)
def test_a_response_that_does_not_complete(status: str, details: Any, kept: str) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        part = {"type": "output_audio", "transcript": "It left"}
        half = message("a", "assistant", part, status="incomplete")
        response = {"status": status, "status_details": details, "output": [half], "conversation_id": "conv"}
        for event in (*CALL[:4], {"type": "response.done", "response": response}):
            await recorder.feed(copy.deepcopy(event))
        answer = (await store.get_messages("c"))[1]
        assert (answer.text, answer.status) == ("It left", kept)

    run(scenario)


def test_the_words_of_older_sessions() -> None:
    """`conversation.item.created`, and only `response.done` says how an item ended."""

    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for event in (CALL[0], CALL[2], CALL[7], CALL[8]):
            older = copy.deepcopy(event)
            older["type"] = older["type"].replace("item.added", "item.created")
            await recorder.feed(older)
        assert await told(store) == TOLD

    run(scenario)


def test_a_transcription_that_fails() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        await recorder.feed(copy.deepcopy(CALL[1]))
        failed = "conversation.item.input_audio_transcription.failed"
        await recorder.feed({"type": failed, "item_id": "q", "error": {"message": "too noisy"}})
        question = (await store.get_messages("c"))[0]
        assert (question.text, question.metadata) == ("", {"transcription_error": "too noisy"})

    run(scenario)


def test_audio_is_kept_where_it_is_wanted() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        audio = "AAAA" * 2000
        heard = message("q", "user", {"type": "input_audio", "audio": audio, "transcript": "Hm"})
        for keep, id in ((False, "without"), (True, "with")):
            recorder = Recorder(store, id, keep_audio=keep)
            await recorder.feed({"type": "conversation.item.done", "item": copy.deepcopy(heard)})
        assert "audio" not in (await store.get_messages("without"))[0].content["content"][0]
        assert (await store.get_messages("with"))[0].content["content"][0]["audio"] == audio
        assert len((await store.get_messages("with", blobs="refs"))[0].blobs) == 1

    run(scenario)


def test_a_session_that_was_left_in_the_middle_lapses() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c", interval=0.001)
        for event in CALL[:5]:
            await recorder.feed(copy.deepcopy(event))
            await asyncio.sleep(0.002)
        growing = (await store.get_messages("c"))[1]
        assert (growing.text, growing.status) == ("It left this ", "in_progress")
        later = wire.store(clock=lambda: datetime.now(UTC) + timedelta(hours=1))
        assert (await later.get_messages("c"))[1].status == "interrupted"

    run(scenario)


def test_words_are_written_by_the_clock() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c", interval=60)
        for event in CALL[:3]:
            await recorder.feed(copy.deepcopy(event))
        wire.calls.clear()
        for _ in range(500):
            await recorder.feed(copy.deepcopy(CALL[3]))
        assert len([call for call in wire.calls if call == "update_message"]) <= 1

    run(scenario)


@pytest.mark.parametrize("at", range(len(CALL)))
@pytest.mark.parametrize("how", ["away", "lost"])
def test_the_store_is_away_for_a_while(at: int, how: str) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for number, event in enumerate(CALL):
            is_bad = at <= number < at + 3
            wire.state = "away" if is_bad and how == "away" else "there"
            wire.loses_answers = is_bad and how == "lost"
            await recorder.feed(copy.deepcopy(event))
        wire.state, wire.loses_answers = "there", False
        assert await recorder.close()
        assert await told(store) == TOLD
        assert recorder.counts.failed > 0 or at == len(CALL) - 1

    run(scenario)


def test_a_store_that_stays_away_or_hangs_breaks_nothing() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        for state in ("away", "hanging"):
            wire.state = state
            recorder = Recorder(store, "c", timeout=0.02)
            for event in CALL:
                await recorder.feed(copy.deepcopy(event))
            assert not await recorder.close()
            assert recorder.counts.failed > 0

    run(scenario)


def test_another_recorder_takes_over() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        await store.append_message("c", "user", "before the call")
        for event in CALL:
            await Recorder(store, "c").feed(copy.deepcopy(event))
        found = await told(store)
        assert [row[:4] for row in found[1:]] == [row[:4] for row in TOLD]
        between = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "rules"}], "id": "s"}
        await Recorder(store, "c").feed({"type": "conversation.item.done", "item": between, "previous_item_id": "q"})
        assert [row[0] for row in await told(store)][1:] == ["q", "s", "a"]

    run(scenario)


def test_what_the_store_refuses_is_not_tried_for_ever() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        await store.append_message("c", "user", "mine", user_id="ben")
        recorder = Recorder(store, "c", user_id="ann")
        for event in CALL:
            await recorder.feed(copy.deepcopy(event))
        assert [each.text for each in await store.get_messages("c")] == ["mine"]
        assert recorder.counts.refused == 2

    run(scenario)


def test_a_message_that_somebody_deletes_does_not_come_back() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for event in CALL[:6]:
            await recorder.feed(copy.deepcopy(event))
        await store.delete_message("c", "q")
        for event in CALL[6:]:
            await recorder.feed(copy.deepcopy(event))
        assert [row[0] for row in await told(store)] == ["a"]
        assert recorder.counts.refused == 1

    run(scenario)


def test_somebody_else_writes_between() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        for number, event in enumerate(CALL):
            await recorder.feed(copy.deepcopy(event))
            await store.append("c", Message("user", f"note {number}", id=f"n{number}"))
        found = [row[0] for row in await told(store)]
        assert found.index("q") < found.index("a")
        assert len(found) == len(CALL) + 2

    run(scenario)


@pytest.mark.parametrize(
    "options", [{"interval": 0}, {"lease": -1}, {"timeout": "x"}, {"keep_audio": 1}, {"participant": "Ann"}], ids=str
)
def test_bad_options(options: dict[str, Any]) -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        with pytest.raises(ValidationError):
            Recorder(store, "c", **options)
        with pytest.raises(ValidationError):
            Recorder(store, "")

    run(scenario)


def test_events_that_are_fed_at_once() -> None:
    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        await asyncio.gather(*(recorder.feed(copy.deepcopy(event)) for event in CALL))
        assert await told(store) == TOLD

    run(scenario)


def test_a_long_session() -> None:
    """Its cost is that of its events, not of all that was said before."""

    async def scenario(wire: Wire, store: Store) -> None:
        recorder = Recorder(store, "c")
        previous = None
        for number in range(1500):
            part = {"type": "input_text", "text": f"{number}"}
            item = message(f"item_{number}", "user", part, status="completed")
            await recorder.feed({"type": "conversation.item.done", "item": item, "previous_item_id": previous})
            previous = item["id"]
        assert [each.text async for each in store.iter_messages("c")] == [str(number) for number in range(1500)]
        writes = [call for call in wire.calls if call in ("append", "update_message", "replace_messages")]
        assert len(writes) == 1500

    run(scenario)
