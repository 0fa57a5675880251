"""Windows that a model accepts, in every provider's vocabulary."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard import formats
from hansard.assembly import window
from hansard.model import Message
from hansard.testing import strategies

# For each vocabulary: a call of these ids, and the result of one.
VOCABULARIES: dict[str, tuple[Any, Any]] = {
    "openai.chat": (
        lambda *ids: {"role": "assistant", "tool_calls": [{"id": id, "type": "function"} for id in ids]},
        lambda id: {"role": "tool", "tool_call_id": id, "content": "r"},
    ),
    "openai.responses": (
        lambda *ids: [{"type": "function_call", "call_id": id, "id": f"fc_{id}", "name": "f"} for id in ids],
        lambda id: {"type": "function_call_output", "call_id": id, "output": "r"},
    ),
    "anthropic": (
        lambda *ids: [{"type": "text", "text": "…"}, *({"type": "tool_use", "id": id, "name": "f"} for id in ids)],
        lambda id: [{"type": "tool_result", "tool_use_id": id, "content": "r"}],
    ),
    "gemini": (
        lambda *ids: {"parts": [{"functionCall": {"id": id, "name": "f"}} for id in ids]},
        lambda id: {"parts": [{"functionResponse": {"id": id, "name": "f"}}]},
    ),
    "parts": (
        lambda *ids: [{"type": "tool_call", "id": id, "name": "f", "arguments": {}} for id in ids],
        lambda id: [{"type": "tool_result", "id": id, "output": "r"}],
    ),
}


def talk(vocabulary: str, *steps: str) -> list[Message]:
    """`u` and `a` are plain; `c12` calls 1 and 2; `r1` is the result of 1."""
    call, result = VOCABULARIES[vocabulary]
    made = {
        "u": lambda ids: Message("user", "question"),
        "a": lambda ids: Message("assistant", "answer"),
        "c": lambda ids: Message("assistant", call(*ids)),
        "r": lambda ids: Message("tool", result(ids)),
    }
    return [made[step[0]](step[1:]) for step in steps]


def shape(vocabulary: str, steps: list[str]) -> list[str]:
    messages = talk(vocabulary, *steps)
    kept = window.valid(messages)
    return [step for step, message in zip(steps, messages, strict=True) if any(message is each for each in kept)]


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        ("u c1 r1 a", "u c1 r1 a"),
        ("u c12 r1 r2 a", "u c12 r1 r2 a"),
        ("u c12 r1 a", "u a"),
        ("r1 a", "a"),
        ("u c1", "u"),
        ("u r1 c1 a", "u a"),
        ("u c1 r1 r1 a", "u c1 r1 a"),
        ("c12 r2 r1 u", "c12 r2 r1 u"),
        ("r1 u c2 r2 a", "u c2 r2 a"),
        # The same id again, as where a call is known only by the name of its tool.
        ("u c1 r1 u c1 r1 a", "u c1 r1 u c1 r1 a"),
        ("r1 u c1 r1", "u c1 r1"),
        ("u c1 r1 u c1", "u c1 r1 u"),
        ("u c11 r1 r1 a", "u c11 r1 r1 a"),
        ("u c11 r1 a", "u a"),
    ],
)
def test_calls_and_results_stay_together(vocabulary: str, steps: str, kept: str) -> None:
    assert shape(vocabulary, steps.split()) == kept.split()


def test_gemini_without_ids() -> None:
    call, result = {"parts": [{"functionCall": {"name": "f"}}]}, {"parts": [{"functionResponse": {"name": "f"}}]}
    messages = [Message("assistant", call), Message("tool", result)] * 2
    assert len(window.valid(messages)) == 4
    assert window.valid(messages[:3]) == messages[:2]


@pytest.mark.parametrize(
    "content",
    [
        # Answered by the provider itself, in the same message or item.
        [{"type": "server_tool_use", "id": "1"}, {"type": "web_search_tool_result", "tool_use_id": "1", "content": []}],
        {"type": "mcp_call", "id": "1", "name": "f", "output": "r"},
        {"type": "web_search_call", "id": "1"},
        {"type": {"a": 1}},
        {"type": ["tool_use"]},
        {"tool_calls": 5},
        {"tool_calls": {"id": "1"}},
        {"tool_calls": [5, None, {"id": 7}]},
        {"functionCall": 5},
        None,
    ],
    ids=repr,
)
def test_what_needs_no_answer_stays(content: Any) -> None:
    messages = [Message("user", "q"), Message("assistant", content)]
    assert window.valid(messages) == messages


@given(st.lists(strategies.messages(), max_size=5))
def test_any_content_can_be_windowed(messages: list[Message]) -> None:
    for message in messages:
        assert isinstance(message.text, str)
    assert len(window.valid(messages)) <= len(messages)


STEPS = st.lists(st.sampled_from(["u", "a", "c1", "c2", "c12", "c11", "r1", "r2"]), max_size=12)


@given(STEPS, st.sampled_from(sorted(VOCABULARIES)))
def test_a_window_is_always_valid(steps: list[str], vocabulary: str) -> None:
    kept = shape(vocabulary, steps)
    waiting: list[str] = []
    for step in kept:
        for id in step[1:]:
            if step[0] == "c":
                waiting.append(id)
            else:
                assert id in waiting, f"a result without its call in {kept}"
                waiting.remove(id)
    assert waiting == [], f"a call without its result in {kept}"
    plain = [step for step in steps if step in ("u", "a")]
    assert [step for step in kept if step in ("u", "a")] == plain, "what breaks no pair stays"


def test_a_text_result_names_its_call_in_its_metadata() -> None:
    call = Message("assistant", {"tool_calls": [{"id": "1"}]})
    answer = Message("tool", "plain text", metadata={"tool_call_id": "1"})
    assert formats.tool_links(answer).results == ("1",)
    assert len(window.valid([call, answer])) == 2
    assert window.valid([answer]) == []


def test_langchain_wraps_its_messages() -> None:
    asked = {"type": "ai", "data": {"content": "Let me see.", "tool_calls": [{"name": "f", "args": {}, "id": "t1"}]}}
    answered = {
        "lc": 1,
        "type": "constructor",
        "id": ["ToolMessage"],
        "kwargs": {"content": "42", "tool_call_id": "t1"},
    }
    call, result = (Message("assistant", each, format="langchain") for each in (asked, answered))
    assert (call.text, result.text) == ("Let me see.", "42")
    assert (formats.tool_links(call).calls, formats.tool_links(result).results) == (("t1",), ("t1",))
