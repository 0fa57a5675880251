"""What newer exports of Claude.ai hold: citations, searches, artifacts, chats of Claude Design, projects, memories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.importers.test_importers import as_json, imported, texts

from hansard import connect
from hansard.importers.report import ImportLoss

ROOT = "00000000-0000-4000-8000-000000000000"


def message(id: str, parent: str, sender: str, *blocks: Any, **more: Any) -> dict[str, Any]:
    said = {"uuid": id, "parent_message_uuid": parent, "sender": sender, "text": "", "content": [*blocks]}
    return said | {"created_at": "2026-01-02T03:04:05Z", "attachments": [], "files": []} | more


def conversation(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"uuid": "c", "name": "Herons", "created_at": "2026-01-02T03:04:00Z", "chat_messages": [*messages]} | more


async def test_sources_of_texts_and_of_searches_are_kept(tmp_path: Path) -> None:
    cited = {"uuid": "x", "url": "https://example.org", "start_index": 0, "end_index": 6}
    page = {"type": "knowledge", "title": "Herons", "url": "https://example.org", "text": "They fish."}
    shown = {"type": "local_resource", "name": "herons.md", "file_path": "/mnt/herons.md"}
    given = conversation(
        message("u", ROOT, "human", {"type": "text", "text": "Look it up", "citations": []}),
        message(
            "a",
            "u",
            "assistant",
            {"type": "thinking", "thinking": "", "summaries": [{"summary": "Thinking of birds"}]},
            {"type": "tool_use", "id": "t1", "name": "web_search", "input": {"query": "heron"}},
            {"type": "tool_result", "tool_use_id": "t1", "name": "web_search", "content": [page]},
            {"type": "tool_use", "id": "t2", "name": "present_files", "input": {}},
            {"type": "tool_result", "tool_use_id": "t2", "content": [shown], "is_error": False},
            {"type": "voice_note", "title": "A note", "text": "Hm"},
            {"type": "text", "text": "They fish.", "citations": [cited]},
        ),
        is_starred=True,
        account={"uuid": "acc"},
    )
    async with connect("memory://") as store:
        report = await imported(store, as_json([given])(tmp_path))
        found = await store.get_messages("c")
        about = await store.get_conversation("c")
    assert [each.role for each in found] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert found[1].content[0] == {"type": "reasoning", "text": "Thinking of birds"}
    assert json.loads(found[2].content[0]["output"][0]["text"]) == [page]
    assert found[5].content[0] == {
        "type": "other",
        "native": {"type": "voice_note", "title": "A note", "text": "Hm"},
        "origin": "claude-ai",
    }
    assert found[5].metadata == {"citations": [cited]}
    assert about is not None
    assert about.metadata == {"is_starred": True, "account": "acc", "imported_from": "claude-ai"}
    assert report.losses == {"file of a tool, which Claude.ai does not export": ImportLoss(1, "herons.md")}


async def test_an_empty_message_breaks_no_chain(tmp_path: Path) -> None:
    given = conversation(
        message("u", ROOT, "human", {"type": "text", "text": "Hello"}, files=[{"file_name": "heron.png"}]),
        message("a", "u", "assistant"),
        message("u2", "a", "human", text="Are you there?"),
        None,
    )
    async with connect("memory://") as store:
        report = await imported(store, as_json([given])(tmp_path))
        assert await texts(store, "c") == [("user", "Hello"), ("assistant", ""), ("user", "Are you there?")]
        (asked, *_) = await store.get_messages("c")
    assert asked.metadata == {"missing_attachments": ["heron.png"]}
    assert [(each.where, each.what) for each in report.problems] == [
        ("conversations.json, conversation 1, message 4", "it is not an object")
    ]


async def test_the_branch_with_the_newest_message_is_shown(tmp_path: Path) -> None:
    given = conversation(
        message("u", ROOT, "human", {"type": "text", "text": "Hello"}),
        message("new", "u", "assistant", {"type": "text", "text": "New"}, created_at="2026-01-02T03:09:00Z"),
        message("old", "u", "assistant", {"type": "text", "text": "Old"}),
    )
    async with connect("memory://") as store:
        await imported(store, as_json([given])(tmp_path))
        assert (await texts(store, "c"))[-1] == ("assistant", "New")


async def test_chats_of_design_are_conversations_and_other_files_are_reported(tmp_path: Path) -> None:
    design = {
        "uuid": "d",
        "title": "A poster",
        "project": {"name": "Posters"},
        "created_at": "2026-01-02T03:04:00Z",
        "messages": [
            {"uuid": "d1", "role": "user", "content": {"content": "Draw a heron"}},
            {
                "uuid": "d2",
                "role": "assistant",
                "created_at": "2026-01-02T03:04:05Z",
                "content": {
                    "contentBlocks": [
                        {"type": "thinking", "text": "Grey."},
                        {"type": "tool_call", "toolCall": {"id": "t", "name": "draw", "input": {"what": "heron"}}},
                        {"type": "text", "text": "Done."},
                    ]
                },
            },
        ],
    }
    as_json([conversation(message("u", ROOT, "human", {"type": "text", "text": "Hello"}))])(tmp_path)
    for name, value in (("design_chats/d", design), ("projects/p", {"docs": []}), ("memories", []), ("users", [])):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value), "utf-8")
    async with connect("memory://") as store:
        report = await imported(store, tmp_path)
        asked, answer = await store.get_messages("d")
        found = await store.get_conversation("d")
    assert (report.new, report.problems) == (2, [])
    assert report.losses == {"file of the export that holds no conversation": ImportLoss(3, "memories.json")}
    assert (asked.role, asked.text) == ("user", "Draw a heron")
    assert [part["type"] for part in answer.content] == ["reasoning", "tool_call", "text"]
    assert found is not None
    assert (found.title, found.metadata["project"], found.metadata["design_chat"]) == ("A poster", "Posters", True)
