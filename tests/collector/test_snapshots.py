"""Agents that change what they have written: Gemini CLI's documents, and opencode's database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.collector.agent_files import (
    OpencodeDatabase,
    append,
    gemini_begin,
    gemini_call,
    gemini_file,
    gemini_message,
    gemini_result,
)
from tests.collector.test_collector import file_of, started, texts
from tests.importers.test_importers import imported

from hansard import connect
from hansard.collector.resume import resumption
from hansard.errors import NotFound


async def test_gemini_is_followed_and_changed_messages_are_updated(tmp_path: Path) -> None:
    path = gemini_file(tmp_path)
    path.write_bytes(gemini_begin() + gemini_message("g1", "user", [{"text": "What is a heron?"}]))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        assert await texts(store, "gem-1") == ["What is a heron?"]
        append(path, gemini_message("g2", "gemini", "Let me look.", model="gemini-test"))
        await collector.take(path)
        append(path, gemini_message("g2", "gemini", "Let me look.", model="gemini-test", toolCalls=[gemini_call()]))
        await collector.take(path)
        done = [gemini_call(result=gemini_result(), status="success")]
        tokens = {"input": 9, "output": 3, "cached": 1, "thoughts": 2}
        append(path, gemini_message("g2", "gemini", "Let me look.", model="gemini-test", toolCalls=done, tokens=tokens))
        append(path, gemini_message("i1", "info", "Update available"))
        await collector.take(path)
        append(
            path, gemini_message("g3", "gemini", "A grey bird.", thoughts=[{"subject": "Birds", "description": "!"}])
        )
        await collector.take(path)
        found = [message async for message in store.iter_messages("gem-1")]
        assert [(each.id, each.role) for each in found] == [
            *(("g1", "user"), ("g2", "assistant"), ("g2.1", "tool"), ("g3", "assistant"))
        ]
        assert found[1].content[1] == {
            "type": "tool_call",
            "id": "call-1",
            "name": "read_file",
            "arguments": {"path": "heron.txt"},
        }
        assert found[1].usage is not None
        assert (found[1].usage.input_tokens, found[1].usage.model) == (9, "gemini-test")
        assert found[2].content[0]["output"] == "Grey."
        assert len(await store.list_branches("gem-1")) == 1
        conversation = await store.get_conversation("gem-1")
        assert conversation is not None
        assert (conversation.title, conversation.metadata["project"]) == ("What is a heron?", "/projects/birds")
        assert await file_of(store, "gem-1") == path.read_bytes()
        before = path.read_bytes()
        path.unlink()
        resumed = await resumption(store, "gem-1", {"HOME": str(tmp_path)})
        assert (resumed.command, resumed.restored) == (["gemini", "--resume", "gem-1"], [str(path)])
        assert path.read_bytes() == before


async def test_documents_of_older_versions_of_gemini(tmp_path: Path) -> None:
    path = gemini_file(tmp_path).with_suffix(".json")
    messages = [
        {"id": "o1", "timestamp": "2026-01-02T03:04:05Z", "type": "user", "content": "What is a heron?"},
        {
            "id": "o2",
            "timestamp": "2026-01-02T03:04:06Z",
            "type": "gemini",
            "content": "A bird.",
            "model": "gemini-test",
        },
    ]
    session = {
        "sessionId": "gem-2",
        "projectHash": "abc",
        "startTime": "2026-01-02T03:04:05Z",
        "messages": messages[:1],
    }
    path.write_text(json.dumps(session))
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        path.write_text(json.dumps(session | {"messages": messages}))
        await collector.take(path)
        assert await texts(store, "gem-2") == ["What is a heron?", "A bird."]
        path.write_text('{"sessionId": "gem-2", "projectHash": "abc", "messages": [')
        await collector.take(path)
        assert len(collector.report.problems) == 1
        path.unlink()
        with pytest.raises(NotFound, match="not stored"):
            await resumption(store, "gem-2", {"HOME": str(tmp_path)})
    path.write_text(json.dumps(session | {"messages": messages}))
    async with connect("memory://") as store:
        assert (await imported(store, path)).source == "gemini-cli"


async def test_opencode_is_followed_by_finished_answers(tmp_path: Path) -> None:
    database = OpencodeDatabase(tmp_path)
    database.session("ses_1")
    database.message("ses_1", "msg_1", "user", "What is a heron?")
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        assert await texts(store, "ses_1") == ["What is a heron?"]
        log = database.path.with_name("opencode.db-wal")
        database.message("ses_1", "msg_2", "assistant", "A b", completed=False)
        await collector.take(log)
        assert await texts(store, "ses_1") == ["What is a heron?"]
        database.message("ses_1", "msg_2", "assistant", "A bird.")
        database.session("ses_2")
        database.message("ses_2", "msg_3", "user", "Hello")
        await collector.take(log)
        assert await texts(store, "ses_1") == ["What is a heron?", "A bird."]
        again = await started(store, tmp_path)
        database.message("ses_2", "msg_4", "assistant", "Hello to you")
        await again.scan()
        assert (again.report.messages, again.report.unchanged) == (1, 0), "only the session that has changed is read"
        found = await store.list_conversations(metadata={"project": "/projects/birds"}, agent_id="opencode")
        assert {each.id: each.title for each in found.items} == {"ses_1": "Herons", "ses_2": "Herons"}
        resumed = await resumption(store, "ses_1", {"HOME": str(tmp_path)})
        assert (resumed.command, resumed.folder) == (["opencode", "--session", "ses_1"], "/projects/birds")
    database.close()


async def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.db").write_bytes(b"not a database")
    async with connect("memory://") as store:
        collector = await started(store, tmp_path)
        await collector.scan()
        assert (await store.stats()).conversations == 0
        assert collector.report.problems == []
