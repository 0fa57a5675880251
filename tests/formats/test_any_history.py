"""For any history, in any mixture of formats: a provider is given what its SDK's types and its rules accept."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, messages_from_dict
from tests.formats import sdks
from tests.formats.histories import histories, messages

from hansard import formats
from hansard.formats import Converted
from hansard.model import Message

Dangling = st.sampled_from(["drop", "close"])


HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "mcp_call")


# --- Chat Completions -------------------------------------------------------------------------------------------------


def check_chat(items: Converted) -> None:
    sdks.accept(sdks.CHAT, list(items))
    waiting: list[str] = []
    for item in items:
        if item["role"] == "tool":
            assert item["tool_call_id"] in waiting, "a result follows its call"
            waiting.remove(item["tool_call_id"])
            assert item["content"]
            continue
        assert waiting == [], "every call is answered before anybody speaks"
        waiting = [call["id"] for call in item.get("tool_calls", ())]
        assert len(set(waiting)) == len(waiting)
        assert item.get("content") or item.get("tool_calls") or item.get("refusal") or item.get("audio")
    assert waiting == []


def check_responses(items: Converted) -> None:
    sdks.accept(sdks.RESPONSES, list(items))
    waiting: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            waiting.append(item["call_id"])
        elif kind in ("function_call_output", "custom_tool_call_output"):
            waiting.remove(item["call_id"])
            assert item["output"]
        elif kind == "reasoning":
            assert item["encrypted_content"] == "gAAA"
            following = items[at + 1]
            assert following.get("role") == "assistant" or "call" in following["type"] or following["type"] == kind
        elif kind not in HOSTED:
            assert item["role"] == "assistant" or waiting == [], "every call is answered before anybody else speaks"
            assert item["content"]
    assert waiting == []


def check_realtime(items: Converted) -> None:
    sdks.accept(sdks.REALTIME, list(items))
    ids = [item["id"] for item in items if "id" in item]
    assert all(len(id) <= 32 for id in ids)
    waiting: list[str] = []
    for item in items:
        if item["type"] == "function_call":
            waiting.append(item["call_id"])
        elif item["type"] == "function_call_output":
            waiting.remove(item["call_id"])
            assert item["output"]
        else:
            assert item["role"] == "assistant" or waiting == []
            assert item["content"]
    assert waiting == []


def check_anthropic(items: Converted) -> None:
    sdks.accept(sdks.ANTHROPIC, list(items))
    sdks.accept(sdks.ANTHROPIC_SYSTEM, items.system)
    assert [item["role"] for item in items] == [("user", "assistant")[at % 2] for at in range(len(items))]
    waiting: list[str] = []
    for item in items:
        blocks = item["content"] if isinstance(item["content"], list) else [{"type": "text", "text": item["content"]}]
        assert blocks
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert Counter(results) == Counter(waiting), "the next message answers every call, and nothing else"
        assert all(block["type"] == "tool_result" for block in blocks[: len(results)]), "results come first"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        searches = {block["id"] for block in blocks if block["type"] == "server_tool_use"}
        assert searches == {block["tool_use_id"] for block in blocks if block["type"] == "web_search_tool_result"}
        assert blocks[-1]["type"] not in ("thinking", "redacted_thinking")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert len(set(waiting)) == len(waiting)
    assert waiting == []


def check_gemini(items: Converted) -> None:
    for item in items:
        sdks.gemini.Content.model_validate(item)
    assert isinstance(items.system, str | None)
    assert [item["role"] for item in items] == [("user", "model")[at % 2] for at in range(len(items))]
    waiting: list[str] = []
    for item in items:
        assert item["parts"]
        answered = [part["function_response"] for part in item["parts"] if "function_response" in part]
        assert Counter(answer["name"] for answer in answered) == Counter(waiting)
        calls = [part.get("function_call") or part.get("functionCall") for part in item["parts"]]
        waiting = [call["name"] for call in calls if call]
    assert waiting == []


def check_langchain(items: Converted) -> None:
    said = messages_from_dict(list(items))
    assert all(isinstance(message, BaseMessage) for message in said)
    waiting: list[str] = []
    for message in said:
        if message.type == "tool":
            waiting.remove(message.tool_call_id)  # type: ignore[attr-defined]
        else:
            assert waiting == []
            waiting = [call["id"] for call in getattr(message, "tool_calls", ())]
            assert message.content or waiting
    assert waiting == []


def check_parts(items: Converted) -> None:
    again = [Message(item["role"], item["content"], format="parts") for item in items]
    assert [item["content"] for item in formats.convert(again, "parts")] == [item["content"] for item in items]


def check_text(items: Converted) -> None:
    assert all(isinstance(line, str) and line for line in items)


CHECKS: dict[str, Callable[[Converted], None]] = {
    "openai.chat": check_chat,
    "openai.responses": check_responses,
    "anthropic": check_anthropic,
    "gemini": check_gemini,
    "langchain": check_langchain,
    "openai.realtime": check_realtime,
    "parts": check_parts,
    "text": check_text,
}


def test_every_format_is_checked() -> None:
    assert set(CHECKS) == set(formats.FORMATS)


@pytest.mark.parametrize("format", sorted(CHECKS))
@settings(deadline=None)
@given(history=histories(), dangling=Dangling)
def test_any_history_is_valid(format: str, history: list[Message], dangling: Any) -> None:
    CHECKS[format](formats.convert(history, format, dangling=dangling))


@pytest.mark.parametrize("format", sorted(CHECKS))
@settings(deadline=None)
@given(history=histories(well_formed=True), dangling=Dangling)
def test_any_well_formed_history_is_valid(format: str, history: list[Message], dangling: Any) -> None:
    CHECKS[format](formats.convert(history, format, dangling=dangling))


@settings(deadline=None)
@given(messages())
def test_the_same_format_is_exact(message: Message) -> None:
    assert formats.write(formats.read(message), message.format, message) == [message.content]


@settings(deadline=None)
@given(messages())
def test_nothing_is_changed(message: Message) -> None:
    before = copy.deepcopy(message.content)
    for format in formats.FORMATS:
        formats.convert([message], format)
    assert message.content == before


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


@pytest.mark.parametrize("format", sorted(CHECKS))
@settings(deadline=None)
@given(history=st.lists(messages(st.just("text"), well_formed=True), max_size=6))
def test_no_text_is_lost(format: str, history: list[Message]) -> None:
    converted = formats.convert(history, format)
    said = [*texts_in(list(converted)), *texts_in(converted.system)]
    for message in history:
        if message.content.strip() and not message.metadata:
            assert any(message.content in text for text in said)
