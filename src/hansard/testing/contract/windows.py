"""Promise 9: every window is valid input for a model. Grouping of messages is tested with `hansard.assembly`."""

from __future__ import annotations

from typing import Any

from hansard.model import Message
from hansard.testing.contract.base import Contract, contents, require, rows, say
from hansard.testing.targets import Driver


def call(*ids: str) -> Message:
    calls = [{"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}} for id in ids]
    return Message("assistant", {"role": "assistant", "content": None, "tool_calls": calls}, format="openai.chat")


def result(id: str) -> Message:
    return Message("tool", {"role": "tool", "tool_call_id": id, "content": f"of {id}"}, format="openai.chat")


TALK = [
    Message("user", "question"),
    call("1", "2"),
    result("1"),
    result("2"),
    Message("assistant", "answer"),
    Message("user", "again"),
    call("3"),
    result("3"),
    Message("assistant", "done"),
]


def shape(messages: list[Message]) -> list[Any]:
    return [message.content if isinstance(message.content, str) else message.role for message in messages]


class TestWindows(Contract):
    def test_whole_groups_are_kept_or_dropped(self, store: Driver) -> None:
        store.append("c", TALK)
        whole = shape(TALK)
        # 6 and 7 would begin in the middle of the first group.
        for messages, first in ((9, 0), (8, 1), (7, 4), (6, 4), (5, 4), (3, 6), (2, 8), (1, 8)):
            assert shape(store.window("c", messages=messages)) == whole[first:], messages

    def test_a_window_of_turns_is_whole(self, store: Driver) -> None:
        store.append("c", TALK)
        assert shape(store.window("c", turns=1)) == ["again", "assistant", "tool", "done"]
        assert len(store.window("c", turns=2)) == len(TALK)

    def test_a_dangling_call_is_left_out(self, store: Driver) -> None:
        store.append("c", [Message("user", "q"), call("1", "2"), result("1")])
        assert shape(store.window("c")) == ["q"]
        # The stored messages are not changed.
        assert len(store.get_messages("c")) == 3

    def test_a_window_reads_one_branch(self, store: Driver) -> None:
        require(store, "branches")
        stored = store.append("c", TALK).messages
        store.branch("c", at=stored[2].id)
        assert shape(store.window("c")) == ["question"]
        assert len(store.window("c", branch="main")) == len(TALK)

    @rows(
        "content", [{"type": {"a": 1}}, {"tool_calls": 5}, {"tool_calls": [1]}, {"type": ["tool_use"]}, None, 1, [[]]]
    )
    def test_a_window_accepts_any_content(self, store: Driver, content: Any) -> None:
        say(store, "c", content)
        assert contents(store.window("c")) == [content]

    def test_a_window_of_a_missing_conversation_is_empty(self, store: Driver) -> None:
        assert store.window("missing") == []
