"""What of a message is searched, in every provider's vocabulary."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from hansard import formats
from hansard.analysis import searchable
from hansard.model import Message, Source

PICTURE = base64.b64encode(bytes(range(256)) * 4).decode()

CONTENTS: dict[str, tuple[Any, list[str], list[str]]] = {
    "chat completions": (
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_77",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city": "M\\u00fcnchen", "days": 3}'},
                }
            ],
        },
        ["get_weather", "city", "München", "3"],
        ["call_77", "function", "\\u00fc"],
    ),
    "langchain": (
        {"type": "human", "data": {"content": "Where is it?", "id": "run-9", "additional_kwargs": {}}},
        ["Where is it?"],
        ["human", "run-9"],
    ),
    "adk": (
        {
            "content": {"parts": [{"text": "Found it"}], "role": "model"},
            "invocation_id": "e-17",
            "author": "helper",
            "actions": {"state_delta": {"mood": "secret"}},
        },
        ["Found it"],
        ["e-17", "secret"],
    ),
    "pydantic ai": (
        {
            "kind": "response",
            "parts": [{"part_kind": "tool-call", "tool_name": "lookup", "args": {"id": "A-17"}, "tool_call_id": "c-1"}],
            "run_id": "r-1",
            "model_name": "small",
        },
        ["lookup", "A-17"],
        ["c-1", "r-1", "small", "tool-call"],
    ),
    "anthropic": (
        [
            {"type": "text", "text": "Looking it up"},
            {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"type": "order", "id": "A-17"}},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "shipped"}]},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
            {"type": "document", "title": "terms.pdf", "source": {"type": "base64", "data": PICTURE}},
        ],
        ["Looking it up", "lookup", "order", "A-17", "shipped", "terms.pdf"],
        ["toolu_1", "image/png", PICTURE],
    ),
    "responses": (
        [
            {"type": "function_call", "call_id": "c1", "name": "search_web", "arguments": '{"query": "rain"}'},
            {"type": "function_call_output", "call_id": "c1", "output": '{"summary": "wet"}'},
            {"type": "message", "content": [{"type": "output_text", "text": "It rains", "annotations": []}]},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
            {"type": "input_file", "filename": "plan.docx", "file_data": PICTURE},
        ],
        ["search_web", "rain", "wet", "It rains", "plan.docx"],
        ["c1", PICTURE, "output_text"],
    ),
    "a line of Claude Code": (
        {
            "parentUuid": None,
            "cwd": "/home/zoe/birds",
            "gitBranch": "stork",
            "userType": "external",
            "type": "user",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "shipped"}],
            },
            "uuid": "u-1",
            "slug": "happy-otter",
            "toolUseResult": {"originalFile": "all of it"},
        },
        ["shipped"],
        ["birds", "stork", "external", "otter", "all of it"],
    ),
    "an item of Codex": (
        [
            {
                "type": "message",
                "content": [{"type": "input_text", "text": "Where is it?"}],
                "internal_chat_message_metadata_passthrough": {"turn_id": "019aa8d2-0000"},
            }
        ],
        ["Where is it?"],
        ["019aa8d2"],
    ),
    "gemini": (
        {
            "role": "model",
            "parts": [
                {"text": "Hello"},
                {"functionCall": {"name": "add", "args": {"a": 41}}},
                {"functionResponse": {"name": "add", "response": {"sum": 42}}},
                {"inlineData": {"mimeType": "image/png", "data": PICTURE}},
            ],
        },
        ["Hello", "add", "41", "42"],
        ["model", PICTURE],
    ),
    "text that looks like arguments": ({"arguments": "{not json"}, ["{not json"], []),
    "json": ({"note": {"deep": ["words"]}}, ["words"], []),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_every_vocabulary(name: str) -> None:
    content, there, absent = CONTENTS[name]
    text = searchable(Message("assistant", content))
    assert [word for word in there if word not in text] == []
    assert [word for word in absent if word in text] == []


@pytest.mark.parametrize("deep", ["[" * 100_000, "[" * 300 + "]" * 300, '{"a":' * 5000 + "1" + "}" * 5000])
def test_arguments_that_are_too_deep_are_text(deep: str) -> None:
    """One such message must not keep the others from being found."""
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": deep}}
    message = Message("assistant", {"role": "assistant", "content": None, "tool_calls": [call]}, format="openai.chat")
    assert deep in searchable(message)
    assert formats.read(message).parts[0].arguments == deep  # type: ignore[union-attr]
    assert formats.to_anthropic_messages([message], dangling="keep")


def test_plain_text_is_itself() -> None:
    assert searchable(Message("user", "As it is,\n  verbatim")) == "As it is,\n  verbatim"
    assert searchable(Message("user", PICTURE)) == ""
    assert searchable(Message("user", "word " * 300)) == "word " * 300


TEXTS = {
    "Chinese": "我们下周三要去杭州参观西湖然后坐高铁回上海" * 20,
    "Japanese": "来週の水曜日に京都へ行って友達と一緒に紅葉を見る予定です" * 15,
    "Thai": "พรุ่งนี้เราจะไปเที่ยวเชียงใหม่ด้วยกันกับครอบครัว" * 10,
    "a path": "src/components/checkout/payment-methods/credit_card/" * 8,
    "a path with capitals": "Sources/CheckoutKit/PaymentMethods/CreditCard/Views/" * 8,
    "an address": "https://example.com/shop/garden/tools/shovels?page=12&sort=price&" * 6,
    "a name in snake case": "the_quick_brown_fox_jumps_over_the_lazy_dog_" * 8,
    "a name in kebab case": "release-2026-notes-for-the-harbour-museum-" * 8,
    "constants": "MAX_RETRY_COUNT_2_FOR_UPLOADS_OF_LARGE_FILES_" * 8,
    "camelCase": "getUserNameFromDatabaseOrCacheIfItIsThere" * 8,
    "a list": "\n".join(["shovel", "rake", "Hose", "Bucket2"] * 20),
    "digests": "\n".join(f"{number:040x}" for number in range(10**47, 10**47 + 9)),
    "keys": "\n".join(["sk4Fz9QpLm2Xw8RtYb7Nc", "aB3dE5fG7hJ9kL1mN2pQ4"] * 10),
    "ids": "\n".join(["3f2b8c1e-9d4a-4b6f-8a7e-0c5d1e2f3a4b"] * 9),
    "digits": "31415926535897932384626433832795028841971693993751" * 6,
    "laughter": "hahaha" * 60,
    "a path, and a question": "src/components/checkout/" * 12 + "\nWhat is wrong here",
}


@pytest.mark.parametrize("name", TEXTS)
def test_long_text_without_spaces_is_text(name: str) -> None:
    assert len(TEXTS[name]) > 256
    assert searchable(Message("user", TEXTS[name])) == TEXTS[name]
    assert TEXTS[name] in searchable(Message("user", [{"type": "text", "text": TEXTS[name]}]))


NOISE = random.Random(1).randbytes(3000)
ENCODED = {
    "base64": base64.b64encode(NOISE).decode(),
    "url-safe": base64.urlsafe_b64encode(NOISE).decode(),
    "without padding": base64.b64encode(NOISE[:400]).decode().rstrip("="),
    "in lines": base64.encodebytes(NOISE).decode(),
    "in lines of Windows": base64.encodebytes(NOISE).decode().replace("\n", "\r\n"),
    "of text": base64.b64encode(b"It was the best of times, it was the worst of times. " * 20).decode(),
    "of JSON": base64.b64encode(b'{"id": 17, "name": "Zelda", "tags": ["a", "b"]}' * 20).decode(),
    "hexadecimal": NOISE.hex(),
    "HEXADECIMAL": NOISE.hex().upper(),
    "address": f"data:image/png;base64,{base64.b64encode(NOISE).decode()}",
}


@pytest.mark.parametrize("name", ENCODED)
def test_bytes_are_not_text(name: str) -> None:
    assert searchable(Message("user", ENCODED[name])) == ""


def test_names_of_sources() -> None:
    message = Message("assistant", "See there", sources=(Source("d1", "handbook.pdf", "a chunk of it"),))
    assert searchable(message) == "See there\nhandbook.pdf"
