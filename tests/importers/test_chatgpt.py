"""What newer exports of ChatGPT hold besides plain text: every kind of content, files, and what lies next to it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.importers.exports import PNG, node
from tests.importers.test_importers import as_json, imported, texts

from hansard import connect
from hansard.importers.report import ImportLoss

SOUND = b"RIFF\x00\x00\x00\x00WAVEfmt "


def conversation(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A conversation whose nodes follow each other."""
    root = node("root", None, None)
    chain = [root, *nodes]
    for before, each in zip(chain, nodes, strict=False):
        each["parent"] = before["id"]
    mapping = {each["id"]: each for each in chain}
    return {
        "id": "c",
        "title": "Herons",
        "create_time": 1.7e9,
        "current_node": chain[-1]["id"],
        "mapping": mapping,
    } | more


def pointer(id: str, kind: str = "image", **more: Any) -> dict[str, Any]:
    return {"content_type": f"{kind}_asset_pointer", "asset_pointer": f"sediment://{id}", **more}


def export_zip(path: Path, *conversations: dict[str, Any], **files: Any) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("conversations-000.json", json.dumps(conversations))
        for name, body in files.items():
            written = body if isinstance(body, bytes) else json.dumps(body)
            packed.writestr(name if "." in name else f"{name}.json", written)
    return path


async def test_pictures_of_tools_are_in_their_results(tmp_path: Path) -> None:
    drawn = pointer("file_1", metadata={"dalle": {"gen_id": "g", "prompt": "A grey heron"}})
    given = conversation(
        node("u", None, "user", "Draw a heron"),
        node("a", None, "assistant", content={"content_type": "code", "text": "{}"}, recipient="dalle.text2im"),
        node("t1", None, "tool", content={"content_type": "multimodal_text", "parts": [drawn]}, name="dalle.text2im"),
        node("t2", None, "tool", "Done.", name="dalle.text2im"),
        node(
            "t3",
            None,
            "tool",
            name="python",
            content={"content_type": "execution_output", "text": "Traceback"},
            metadata={
                "aggregate_result": {
                    "status": "failed_with_in_kernel_exception",
                    "messages": [{"message_type": "image", "image_url": "file-service://file_2"}],
                }
            },
        ),
    )
    path = export_zip(tmp_path / "a.zip", given, **{"file_1.dat": PNG, "user-1/file_2-x.png": PNG})
    async with connect("memory://") as store:
        report = await imported(store, path)
        _, called, first, second, third = await store.get_messages("c")
        window = await store.window("c", messages=10)
    assert (report.losses, report.attachments) == ({}, 2)
    assert [each.content[0]["id"] for each in (called, first, second, third)] == ["a"] * 4
    (picture,) = first.content[0]["output"]
    assert (picture["type"], picture["media_type"]) == ("image", "image/png")
    assert first.metadata == {"tool": "dalle.text2im", "pictures": [{"gen_id": "g", "prompt": "A grey heron"}]}
    assert second.content[0]["output"] == "Done."
    assert third.content[0]["is_error"] is True
    assert [each["type"] for each in third.content[0]["output"]] == ["text", "image"]
    assert window, "several results of a call do not break it"


async def test_every_kind_of_content_is_kept(tmp_path: Path) -> None:
    quote = {"content_type": "tether_quote", "url": "https://example.org", "title": "Herons", "text": "They fish."}
    talk = {
        "content_type": "real_time_user_audio_video_asset_pointer",
        "audio_asset_pointer": pointer("file_a", "audio"),
        "video_container_asset_pointer": None,
        "frames_asset_pointers": [pointer("file_f")],
    }
    spoken = {"content_type": "audio_transcription", "text": "What is a heron?", "direction": "in"}
    kinds: list[tuple[str, dict[str, Any]]] = [
        (
            "user",
            {"content_type": "user_editable_context", "user_profile": "I am Ann.", "user_instructions": "Be short."},
        ),
        ("assistant", {"content_type": "model_editable_context", "model_set_context": "Ann likes birds."}),
        ("user", {"content_type": "multimodal_text", "parts": [spoken, talk]}),
        (
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"summary": "Birds", "content": "", "chunks": ["Hm."]}]},
        ),
        ("assistant", {"content_type": "reasoning_recap", "content": "Thought for 3s"}),
        ("tool", quote),
        ("tool", {"content_type": "tether_browsing_display", "result": "# Herons", "summary": "Birds"}),
        ("tool", {"content_type": "system_error", "name": "ToolError", "text": "No network"}),
        (
            "assistant",
            {"content_type": "text", "parts": ["See", {"content_type": "sonic_webpage", "snippet": "A page"}]},
        ),
        ("assistant", {"content_type": "super_widget", "widget": {"kind": "map"}}),
    ]
    nodes = [node(f"n{place}", None, role, content=content) for place, (role, content) in enumerate(kinds)]
    path = export_zip(tmp_path / "a.zip", conversation(*nodes), **{"c/audio/file_a-1.wav": SOUND, "file_f.dat": PNG})
    async with connect("memory://") as store:
        report = await imported(store, path)
        found = await store.get_messages("c")
    assert (report.losses, report.problems) == ({}, [])
    assert [each.text for each in found[:2]] == ["I am Ann.\n\nBe short.", "Ann likes birds."]
    assert [(part["type"], part.get("media_type")) for part in found[2].content] == [
        ("text", None),
        ("audio", "audio/wav"),
        ("image", "image/png"),
    ]
    assert [each.content for each in found[3:5]] == [
        [{"type": "reasoning", "text": "Birds\nHm."}],
        [{"type": "reasoning", "text": "Thought for 3s"}],
    ]
    assert found[5].metadata == {"page": {"title": "Herons", "url": "https://example.org"}}
    assert [each.content[0]["output"] for each in found[5:8]] == ["They fish.", "# Herons\n\nBirds", "No network"]
    assert (found[7].content[0]["is_error"], found[7].metadata) == (True, {"error": "ToolError"})
    assert found[8].text == "See\nA page"
    assert found[9].content == [{"type": "other", "native": kinds[9][1], "origin": "chatgpt"}]


async def test_metadata_stay_but_for_notes_of_requests(tmp_path: Path) -> None:
    references = [{"type": "grouped_webpages", "items": [{"url": "https://example.org"}]}]
    given = conversation(
        node("s", None, "system", "", metadata={"user_context_message_data": {"about_user_message": "I am Ann."}}),
        node(
            "a",
            None,
            "assistant",
            "A bird.",
            update_time=1.7e9 + 5,
            metadata={
                "content_references": references,
                "finish_details": {"type": "interrupted"},
                "request_id": "x",
                "citations": [],
                "gizmo_id": "g-1",
            },
        ),
        is_archived=True,
        is_starred=True,
        conversation_template_id="g-p-1",
        safe_urls=["https://example.org"],
    )
    async with connect("memory://") as store:
        await imported(store, as_json([given])(tmp_path))
        told, answer = await store.get_messages("c")
        found = await store.get_conversation("c")
    assert told.text == "I am Ann."
    assert answer.metadata == {
        "content_references": references,
        "finish": "interrupted",
        "gizmo_id": "g-1",
        "update_time": 1.7e9 + 5,
    }
    assert answer.status == "interrupted"
    assert found is not None
    assert found.metadata == {"is_starred": True, "conversation_template_id": "g-p-1", "imported_from": "chatgpt"}
    assert found.archived_at is not None, "without a time of its last change, too"


async def test_what_lies_next_to_conversations_is_used_or_reported(tmp_path: Path) -> None:
    asked = node(
        "u",
        None,
        "user",
        "Read these",
        metadata={"attachments": [{"id": "file-1", "name": "a.pdf"}, {"id": "file-2", "name": "b.pdf"}]},
    )
    group = {"id": "g", "name": "Birders", "created_at": "2026-01-02T03:04:05+00:00", "members": [{"id": "user-1"}]}
    group["messages"] = [{"id": "g1", "role": "user", "text": "Hello all", "created_at": "2026-01-02T03:04:05+00:00"}]
    path = export_zip(
        tmp_path / "a.zip",
        conversation(asked, node("a", None, "assistant", "Done.")),
        **{
            "file-1.dat": b"%PDF-1.7",
            "file-12.dat": b"another",
            "conversation_asset_file_names": {"file-1.dat": "a.pdf"},
            "export_manifest": {"version": 1, "files": ["conversations-000.json"]},
            "message_feedback": [
                {"id": "f", "message_id": "a", "rating": "thumbsDown", "content": '{"tags": ["slow"], "text": "No"}'},
                {"id": "gone", "rating": "thumbs_up"},
            ],
            "shared_conversations": [{"id": "share-1", "conversation_id": "c", "title": "Herons"}],
            "group_chats": {"chats": [group]},
            "sora": {"tasks": [{"id": "t", "prompt": "A film of a heron"}]},
            "shopping": [],
            "chat.html": b"<html>",
        },
    )
    async with connect("memory://") as store:
        report = await imported(store, path)
        question, answer = await store.get_messages("c")
        found = await store.get_conversation("c")
        assert await texts(store, "g") == [("user", "Hello all")]
    assert found is not None
    assert found.metadata["share_id"] == "share-1"
    document = question.content[1]
    assert (document["type"], document["name"], document["media_type"]) == ("document", "a.pdf", "application/pdf")
    assert question.metadata == {"missing_attachments": ["b.pdf"]}
    assert [(rating.value, rating.comment) for rating in answer.ratings] == [(-1, "slow; No")]
    assert report.problems == []
    assert report.losses == {
        "attachment that is not in the export": ImportLoss(1, "b.pdf"),
        "rating of a message that is not in the export": ImportLoss(1, "gone"),
        "file of the export that holds no conversation": ImportLoss(1, "sora.json"),
        "file that no message refers to": ImportLoss(1, "file-12.dat"),
    }


@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_export_may_be_an_object_around_its_conversations(tmp_path: Path, wrapped: bool) -> None:
    given: Any = [conversation(node("u", None, "user", "Hello"))]
    async with connect("memory://") as store:
        report = await imported(store, as_json({"conversations": [*given, 7]} if wrapped else given)(tmp_path))
        assert (report.new, len(report.problems)) == (1, int(wrapped))
