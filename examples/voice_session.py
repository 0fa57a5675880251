"""A voice session: recorded from its events, interrupted by the user, and restored into the next session.

It prints:

    user: Where is my order? (complete)
    assistant: (interrupted, heard 900 ms of 'It left our warehouse this morning.')
    restored: ['Where is my order?', 'Never mind, thank you.']
"""

from __future__ import annotations

import asyncio
from typing import Any

import hansard
from hansard.realtime import Recorder


def message(id: str, role: str, part: dict[str, str]) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": role, "status": "completed", "content": [part]}


# As `async for event in connection` gives them, with the official SDK.
EVENTS: list[dict[str, Any]] = [
    {
        "type": "conversation.item.added",
        "item": message("q", "user", {"type": "input_audio"}),
        "previous_item_id": None,
    },
    {
        "type": "conversation.item.done",
        "item": message(
            "a", "assistant", {"type": "output_audio", "transcript": "It left our warehouse this morning."}
        ),
        "previous_item_id": "q",
    },
    # The user spoke over it: only the first 0.9 seconds were heard.
    {"type": "conversation.item.truncated", "item_id": "a", "content_index": 0, "audio_end_ms": 900},
    {
        "type": "conversation.item.done",
        "item": message("b", "user", {"type": "input_text", "text": "Never mind, thank you."}),
        "previous_item_id": "a",
    },
    # Transcripts come when they are ready, also after the answer.
    {
        "type": "conversation.item.input_audio_transcription.completed",
        "item_id": "q",
        "content_index": 0,
        "transcript": "Where is my order?",
    },
]


class NextSession:
    """Stands in for the connection of the next session."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def send(self, event: dict[str, Any]) -> None:
        self.texts += [part["text"] for part in event["item"]["content"]]


async def main() -> None:
    async with hansard.connect("sqlite:///calls.db") as store:
        async with Recorder(store, "call-7", user_id="ann", agent_id="voice") as recorder:
            for event in EVENTS:
                await recorder.feed(event)

        question, answer = await store.get_messages("call-7", limit=2)
        print(f"{question.role}: {question.text} ({question.status})")
        cut = answer.metadata or {}
        print(f"{answer.role}: ({answer.status}, heard {cut['heard_ms']['0']} ms of {cut['generated']['0']!r})")

        connection = NextSession()
        await Recorder(store, "call-7").restore(connection)
        print("restored:", connection.texts)


asyncio.run(main())
