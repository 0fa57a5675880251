"""Sessions of frameworks: branches and encryption of OpenAI Agents, roles of LangChain, old tables of ADK, Chainlit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.importers import more_exports
from tests.importers.test_importers import imported, texts

from hansard import connect
from hansard.importers.report import ImportLoss
from hansard.model import Usage

ADVANCED = """
CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY);
CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);
CREATE TABLE message_structure (id INTEGER PRIMARY KEY, session_id TEXT, message_id INTEGER, branch_id TEXT,
    message_type TEXT, sequence_number INTEGER, user_turn_number INTEGER, branch_turn_number INTEGER);
CREATE TABLE turn_usage (session_id TEXT, branch_id TEXT, user_turn_number INTEGER, input_tokens INTEGER,
    output_tokens INTEGER, input_tokens_details TEXT, output_tokens_details TEXT);
"""


def item(role: str, said: str) -> str:
    return json.dumps({"role": role, "content": said})


async def test_branches_of_an_advanced_session_are_branches(tmp_path: Path) -> None:
    said = [("user", "What?"), ("assistant", "A bird."), ("user", "Where?"), ("assistant", "Trees."), ("user", "When?")]
    rows: list[tuple[str, Any]] = [
        ("agent_messages", (place, "s", item(*each), "2026-01-02 03:04:05")) for place, each in enumerate(said, 1)
    ]
    rows.append(("agent_messages", (6, "s", item("developer", "Left over"), "2026-01-02 03:04:05")))
    lines = [
        ("main", 1, 1),
        ("main", 2, 1),
        ("main", 3, 2),
        ("main", 4, 2),
        ("other", 1, 1),
        ("other", 2, 1),
        ("other", 5, 2),
    ]
    rows += [
        ("message_structure", (place, "s", id, branch, "user", place, turn, turn))
        for place, (branch, id, turn) in enumerate(lines, 1)
    ]
    rows.append(("turn_usage", ("s", "main", 1, 9, 3, '{"cached_tokens": 4}', '{"reasoning_tokens": 1}')))
    path = more_exports.database(tmp_path / "sessions.db", ADVANCED, *rows)
    async with connect("memory://") as store:
        report = await imported(store, path)
        branches = [await texts(store, "s", branch.id) for branch in await store.list_branches("s")]
        assert sorted(branch[-1][1] for branch in branches) == ["Trees.", "When?"]
        assert (await texts(store, "s"))[-1] == ("user", "When?")
        answer = (await store.get_messages("s"))[1]
        assert (await imported(store, path)).messages == 0
    assert answer.usage == Usage(9, 3, 4, 1)
    assert (report.messages, report.branches) == (5, 1)
    assert report.losses == {"item of no branch": ImportLoss(1, "session 's', row 6")}


async def test_encrypted_items_are_reported_and_not_stored(tmp_path: Path) -> None:
    hidden = json.dumps({"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAA"})
    script = "CREATE TABLE items (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT)"
    rows = [("items", (1, "s", hidden, None)), ("items", (2, "t", item("developer", "Be short."), None))]
    path = more_exports.database(tmp_path / "sessions.db", script, *rows)
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert [each.id async for each in store.iter_conversations()] == ["t"]
        assert await texts(store, "t") == [("developer", "Be short.")]
    assert "encrypted" in report.problems[0].what


@pytest.mark.parametrize(
    ("kind", "data", "role"),
    [
        ("chat", {"role": "developer"}, "developer"),
        ("chat", {"role": "critic"}, "assistant"),
        ("AIMessageChunk", {}, "assistant"),
        ("function", {"name": "look"}, "tool"),
        ("odd", {}, "user"),
    ],
)
async def test_every_role_of_langchain_is_known(tmp_path: Path, kind: str, data: dict[str, Any], role: str) -> None:
    body = json.dumps({"type": kind, "data": {"content": "Hello", "type": kind, **data}})
    script = "CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)"
    path = more_exports.database(tmp_path / "history.db", script, ("message_store", (1, "s", body)))
    async with connect("memory://") as store:
        report = await imported(store, path)
        assert report.problems == []
        (message,) = await store.get_messages("s")
        assert (message.role, message.text) == (role, "Hello")


async def test_the_first_tables_of_adk_keep_all_but_pickles(tmp_path: Path) -> None:
    script = """
    CREATE TABLE sessions (app_name TEXT, user_id TEXT, id TEXT, state TEXT, create_time TEXT);
    CREATE TABLE events (id TEXT, app_name TEXT, user_id TEXT, session_id TEXT, invocation_id TEXT, author TEXT,
        actions BLOB, branch TEXT, timestamp TEXT, content TEXT, usage_metadata TEXT, error_code TEXT, partial INT,
        interrupted INT, long_running_tool_ids_json TEXT);
    INSERT INTO sessions VALUES ('birds', 'ann', 's', '{}', '2026-01-02 03:04:00');
    INSERT INTO events VALUES ('e1', 'birds', 'ann', 's', 'i1', 'helper', X'80', 'root.helper', '2026-01-02 03:04:05',
        '{"role": "model", "parts": [{"text": "A bird."}]}', '{"prompt_token_count": 9, "candidates_token_count": 3}',
        'SLOW', NULL, 1, '["t1"]');
    """
    async with connect("memory://") as store:
        report = await imported(store, more_exports.database(tmp_path / "adk.db", script))
        (event,) = await store.get_messages("s")
    assert event.content == {
        "id": "e1",
        "timestamp": 1767323045.0,
        "invocation_id": "i1",
        "author": "helper",
        "branch": "root.helper",
        "error_code": "SLOW",
        "content": {"role": "model", "parts": [{"text": "A bird."}]},
        "usage_metadata": {"prompt_token_count": 9, "candidates_token_count": 3},
        "interrupted": True,
        "long_running_tool_ids": ["t1"],
    }
    assert event.usage == Usage(9, 3)
    assert list(report.losses) == ["actions of an event, which are a Python pickle"]


async def test_steps_of_chainlit_keep_their_notes_and_where_their_files_are(tmp_path: Path) -> None:
    script = more_exports.CHAINLIT.replace('"url" TEXT)', '"url" TEXT, "forId" TEXT)').replace(
        '"generation" TEXT)', '"generation" TEXT, "metadata" TEXT, "language" TEXT)'
    )
    at = "2026-01-02T03:04:01Z"
    rows: list[tuple[str, Any]] = [
        ("users", ("u1", "ann", "{}", at)),
        ("threads", ("t", at, None, "u1", None, None, None)),
        ("steps", ("s1", "ann", "user_message", "t", None, 0, "", "Hello", at, None, '{"mood": "good"}', None)),
        ("steps", ("s2", "chain", "run", "t", "s1", 0, "in", "out", "2026-01-02T03:04:02Z", None, None, None)),
        ("steps", ("s3", "bot", "assistant_message", "t", "s2", 1, "", "Oh", "2026-01-02T03:04:03Z", None, None, "md")),
        ("elements", ("e1", "t", "heron.png", "image/png", "https://example.org/heron.png", "s3")),
        ("feedbacks", ("f1", "s3", None, 0, None)),
    ]
    async with connect("memory://") as store:
        report = await imported(store, more_exports.database(tmp_path / "chainlit.db", script, *rows))
        asked, answer = await store.get_messages("t")
        found = await store.get_conversation("t")
    assert found is not None
    assert found.user_id == "ann"
    assert asked.metadata == {"mood": "good", "name": "ann"}
    picture = {"id": "e1", "name": "heron.png", "mime": "image/png", "url": "https://example.org/heron.png"}
    assert answer.metadata == {"name": "bot", "language": "md", "is_error": True, "rating": -1, "elements": [picture]}
    assert [rating.value for rating in answer.ratings] == [-1]
    assert report.losses == {
        "step of the type 'run'": ImportLoss(1, "out"),
        "element, whose file is in another storage": ImportLoss(1, "heron.png"),
    }
