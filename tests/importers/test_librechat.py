"""What LibreChat's exports hold besides text: ratings, calls of both kinds, files, and fields of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.importers.test_importers import as_json, imported, texts

from hansard import Message, connect
from hansard.importers.report import ImportLoss
from hansard.model import Usage
from hansard.store import Store

ROOT = "00000000-0000-0000-0000-000000000000"


def message(id: str, parent: str, *content: Any, user: bool = False, **more: Any) -> dict[str, Any]:
    said = {"messageId": id, "parentMessageId": parent, "isCreatedByUser": user, "text": ""}
    return said | {"createdAt": "2026-01-02T03:04:05Z"} | ({"content": [*content]} if content else {}) | more


async def test_ratings_calls_and_fields_are_kept(tmp_path: Path) -> None:
    old = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}', "output": "Grey"}}
    given = {
        "conversationId": "c",
        "title": "Herons",
        "endpoint": "agents",
        "tags": ["birds"],
        "recursive": False,
        "messages": [
            message("u", ROOT, user=True, text="What is it?", quotes=["A heron"], files=[{"filename": "heron.png"}]),
            message(
                "a",
                "u",
                {"type": "agent_update", "agent_update": {"agentId": "x"}},
                {
                    "type": "tool_call",
                    "tool_call": {"id": "c1", "name": "find", "args": '{"q": "heron"}', "output": "1"},
                },
                {"type": "tool_call", "tool_call": old},
                {"type": "image_url", "image_url": {"url": "https://example.org/heron.png"}},
                {"type": "text", "text": {"value": "A bird."}},
                {"type": "error", "error": "Too slow"},
                model="gpt-5",
                sender="Birder",
                tokenCount=12,
                feedback={"rating": "thumbsDown", "tag": {"key": "short", "label": "Too short"}, "text": "More"},
                attachments=[{"type": "web_search", "web_search": {"turn": 0}}],
                finish_reason="stop",
            ),
        ],
    }
    async with connect("memory://") as store:
        report = await imported(store, as_json(given, "herons.json")(tmp_path))
        found = await store.get_messages("c")
        about = await store.get_conversation("c")
    assert report.losses == {"file of LibreChat, which its export only names": ImportLoss(1, "heron.png")}
    assert [each.role for each in found] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert found[0].metadata == {"quotes": ["A heron"]}
    assert found[1].content[1]["arguments"] == {"q": "heron"}
    assert found[3].content == [{"type": "tool_call", "id": "c2", "name": "look", "arguments": {"at": 1}}]
    assert found[4].content[0]["output"] == "Grey"
    assert [part["type"] for part in found[5].content] == ["image", "text", "text"]
    assert found[5].usage == Usage(model="gpt-5", output_tokens=12)
    assert [(rating.value, rating.comment) for rating in found[5].ratings] == [(-1, "Too short; More")]
    assert found[5].metadata is not None
    kept = {name: found[5].metadata[name] for name in ("sender", "attachments", "finish_reason")}
    assert kept == {
        "sender": "Birder",
        "attachments": [{"type": "web_search", "web_search": {"turn": 0}}],
        "finish_reason": "stop",
    }
    assert about is not None
    assert about.metadata == {"endpoint": "agents", "tags": ["birds"], "imported_from": "librechat"}


async def test_a_tree_without_parents_and_ids_keeps_its_shape(tmp_path: Path) -> None:
    tree = [{"messageId": "u", "sender": "User", "text": "Hello", "children": [{"text": "One"}, {"text": "Two"}]}]
    path = as_json({"conversationId": "c", "recursive": True, "messagesTree": tree}, "c.json")(tmp_path)
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert (report.problems, report.messages, report.branches) == ([], 3, 1)
        assert await texts(store, "c") == [("user", "Hello"), ("assistant", "Two")]
        assert (await imported(store, path)).messages == 0


async def _exported(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(b"".join([piece async for piece in store.export(format="librechat")]))
    return found


async def test_what_librechat_reads_of_our_export_has_no_gaps(tmp_path: Path) -> None:
    """LibreChat passes over a message without text and content, and over everything below it."""
    picture = [{"type": "image", "media_type": "image/png", "data": "iVBORw0KGgo="}]
    async with connect("memory://") as store, connect("memory://") as other:
        await store.append(
            "c", [Message("user", picture, id="u", format="parts"), Message("assistant", "A heron.", id="a")]
        )
        await store.rate("c", "a", 1, comment="Yes")
        given = await _exported(store)
        waiting, read = [*given["messagesTree"]], []
        while waiting:
            each = waiting.pop()
            if each.get("text") or each.get("content") is not None:
                read.append(each["messageId"])
                waiting += each["children"]
        assert read == ["u", "a"]
        await imported(other, as_json(given, "c.json")(tmp_path))
        (answer,) = await other.get_messages("c", last=1)
        assert [(rating.value, rating.comment) for rating in answer.ratings] == [(1, "Yes")]


OLDER = {
    "conversationId": "c",
    "title": "Herons",
    "endpoint": "openAI",
    "options": {"model": "gpt-test"},
    "messages": [
        message("u", ROOT, text="What is a heron?", user=True, sender="User", tokenCount=7),
        message("a", "u", text="A bird.", sender="ChatGPT", model="gpt-test", tokenCount=5, finish_reason="stop"),
        message("b", "u", text="A wading", sender="ChatGPT", model="gpt-test", unfinished=True),
    ],
}
"""A flat list of texts."""
CALL = {"id": "call_1", "name": "search", "args": '{"q": "heron"}', "output": "A wading bird", "type": "tool_call"}
THOUGHTS = [{"type": "think", "think": "I should look."}, {"type": "tool_call", "tool_call": CALL}]
NEWER = {
    "conversationId": "c",
    "title": "Herons",
    "endpoint": "agents",
    "tags": ["birds"],
    "recursive": True,
    "messagesTree": [
        message("u", ROOT, text="What is a heron?", user=True, sender="User")
        | {
            "children": [
                message(
                    "a", "u", *THOUGHTS, {"type": "text", "text": "A wading bird."}, sender="Birder", model="agent_x"
                )
                | {"tokenCount": 50, "endpoint": "agents", "attachments": [{"type": "web_search"}]}
                | {"feedback": {"rating": "thumbsUp", "text": "nice"}},
                message("b", "u", {"type": "error", "error": "overloaded"}, sender="Birder", error=True),
            ]
        }
    ],
}
"""A tree of blocks."""


async def _whole(store: Store) -> dict[str, Any]:
    about = await store.get_conversation("c")
    assert about is not None
    branches = [each.id for each in await store.list_branches("c")]
    found = {
        id: [structs.replace(each, seq=0) async for each in store.iter_messages("c", branch=id)] for id in branches
    }
    return {"title": about.title, "metadata": about.metadata, "branch": about.branch, "messages": found}


@pytest.mark.parametrize("format", ["librechat", "librechat-zip"])
@pytest.mark.parametrize(("given", "tokens"), [(OLDER, 5), (NEWER, 50)], ids=["older", "newer"])
async def test_an_export_of_what_was_imported_is_the_same(
    tmp_path: Path, given: dict[str, Any], tokens: int, format: str
) -> None:
    async with connect("memory://") as store, connect("memory://") as other:
        assert (await imported(store, as_json(given, "c.json")(tmp_path))).problems == []
        path = tmp_path / ("back.zip" if format == "librechat-zip" else "back.json")
        path.write_bytes(b"".join([piece async for piece in store.export(format=format)]))
        assert (await imported(other, path)).problems == []
        assert await _whole(other) == await _whole(store)
        assert sum(each.output_tokens for each in await store.usage()) == tokens, "an answer counts once"
