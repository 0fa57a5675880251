"""Exports of other programs, written by hand after their formats. Nobody's data."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + b"\x00" * 40


def node(
    id: str, parent: str | None, role: str | None, *said: Any, at: float | None = 1.7e9, **more: Any
) -> dict[str, Any]:
    """A node of ChatGPT's `mapping`."""
    message = None
    if role is not None:
        content = more.pop("content", {"content_type": "text", "parts": [*said]})
        metadata = more.pop("metadata", {})
        author = {"role": role, "name": more.pop("name", None), "metadata": {}}
        message = {"id": id, "author": author, "create_time": at, "content": content, "metadata": metadata}
        message |= {"status": "finished_successfully", "recipient": "all"} | more
    return {"id": id, "parent": parent, "children": [], "message": message}


def chatgpt_conversation() -> dict[str, Any]:
    """A question that was edited: two branches after the greeting, the second is shown."""
    nodes = [
        node("root", None, None),
        node("sys", "root", "system", "", metadata={"is_visually_hidden_from_conversation": True}),
        node("u1", "sys", "user", "What is a heron?"),
        node("a1", "u1", "assistant", "A bird.", metadata={"model_slug": "gpt-4o"}),
        node("u2", "a1", "user", "Where does it nest?", at=None),
        node("a2", "u2", "assistant", "In trees.", metadata={"model_slug": "gpt-4o"}),
        node("u2b", "a1", "user", "How does it fish?"),
        node(
            "t2b",
            "u2b",
            "assistant",
            content={"content_type": "thoughts", "thoughts": [{"summary": "Birds", "content": "It waits."}]},
        ),
        node(
            "c2b", "t2b", "assistant", content={"content_type": "code", "text": "search('heron')"}, recipient="browser"
        ),
        node("r2b", "c2b", "tool", "It stands still.", name="browser"),
        node("a2b", "r2b", "assistant", "It stands and strikes.", metadata={"model_slug": "o3"}),
    ]
    return {
        "id": "chat-1",
        "conversation_id": "chat-1",
        "title": "Herons",
        "create_time": 1.7e9,
        "update_time": 1.7e9 + 60,
        "current_node": "a2b",
        "mapping": {each["id"]: each for each in nodes},
    }


def picture_conversation() -> dict[str, Any]:
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-abc", "width": 1}
    nodes = [
        node("p-root", None, None),
        node("p1", "p-root", "user", content={"content_type": "multimodal_text", "parts": [pointer, "What is this?"]}),
        node("p2", "p1", "assistant", "A heron."),
    ]
    return {
        "id": "chat-2",
        "title": "A picture",
        "create_time": 1.7e9,
        "current_node": "p2",
        "mapping": {each["id"]: each for each in nodes},
    }


def chatgpt_zip(path: Path, *conversations: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(
            "conversations.json", json.dumps(conversations or [chatgpt_conversation(), picture_conversation()])
        )
        packed.writestr("message_feedback.json", json.dumps([{"id": "a2b", "rating": "thumbs_up"}]))
        packed.writestr("file-abc-heron.png", PNG)
        packed.writestr("user.json", "{}")
    return path


def claude_conversation() -> dict[str, Any]:
    def message(id: str, parent: str, sender: str, *blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
        said = {"uuid": id, "parent_message_uuid": parent, "sender": sender, "text": "", "content": [*blocks]}
        return said | {"created_at": "2026-01-02T03:04:05Z", "attachments": [], "files": []} | more

    root = "00000000-0000-4000-8000-000000000000"
    call = {"type": "tool_use", "id": None, "name": "web_search", "input": {"query": "heron"}}
    result = {
        "type": "tool_result",
        "tool_use_id": None,
        "name": "web_search",
        "content": [{"type": "text", "text": "A bird"}],
    }
    return {
        "uuid": "claude-1",
        "name": "Herons again",
        "summary": "",
        "created_at": "2026-01-02T03:04:00Z",
        "updated_at": "2026-01-02T03:05:00Z",
        "account": {"uuid": "acc"},
        "current_leaf_message_uuid": "m2",
        "chat_messages": [
            message(
                "m1",
                root,
                "human",
                {"type": "text", "text": "What is a heron?"},
                attachments=[{"file_name": "notes.txt", "extracted_content": "Grey."}],
            ),
            message(
                "m2",
                "m1",
                "assistant",
                {"type": "thinking", "thinking": "Hm."},
                call,
                result,
                {"type": "text", "text": "A bird."},
            ),
            message("m2b", "m1", "assistant", {"type": "text", "text": "No idea."}),
        ],
    }


def open_webui_chat() -> dict[str, Any]:
    def message(id: str, parent: str | None, role: str, content: str, **more: Any) -> dict[str, Any]:
        return {
            "id": id,
            "parentId": parent,
            "childrenIds": [],
            "role": role,
            "content": content,
            "timestamp": 1_700_000_000,
        } | more

    answer = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "A bird.", "annotations": []}],
    }
    messages = [
        message("w1", None, "user", "What is a heron?"),
        message(
            "w2",
            "w1",
            "assistant",
            "A <details>…</details> bird.",
            model="llama3",
            output=[answer],
            usage={"prompt_tokens": 7, "completion_tokens": 2},
        ),
        message("w2b", "w1", "assistant", "No idea.", model="phi3"),
    ]
    chat = {
        "title": "Herons",
        "models": ["llama3"],
        "history": {"currentId": "w2", "messages": {each["id"]: each for each in messages}},
    }
    return {
        "id": "webui-1",
        "user_id": "ann",
        "title": "Herons",
        "created_at": 1_700_000_000,
        "updated_at": 1_700_000_100,
        "archived": True,
        "pinned": False,
        "meta": {"tags": ["birds"]},
        "chat": chat,
    }


def open_webui_database(path: Path) -> Path:
    given = open_webui_chat()
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE chat (id TEXT, user_id TEXT, title TEXT, chat TEXT, created_at INT, updated_at INT, "
        "archived INT, pinned INT, meta TEXT)"
    )
    row = (
        given["id"],
        given["user_id"],
        given["title"],
        json.dumps(given["chat"]),
        given["created_at"],
        given["updated_at"],
        1,
        0,
        json.dumps(given["meta"]),
    )
    connection.execute("INSERT INTO chat VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    connection.commit()
    connection.close()
    return path


def librechat_export() -> dict[str, Any]:
    root = "00000000-0000-0000-0000-000000000000"
    call = {
        "type": "tool_call",
        "tool_call": {"id": "c1", "name": "search", "args": {"q": "heron"}, "output": "A bird"},
    }
    answer = [{"type": "think", "think": "Hm."}, call, {"type": "text", "text": "A bird."}]
    return {
        "conversationId": "libre-1",
        "title": "Herons",
        "endpoint": "openAI",
        "recursive": True,
        "messagesTree": [
            {
                "messageId": "l1",
                "parentMessageId": root,
                "text": "What is a heron?",
                "isCreatedByUser": True,
                "createdAt": "2026-01-02T03:04:05Z",
                "children": [
                    {
                        "messageId": "l2",
                        "parentMessageId": "l1",
                        "text": "",
                        "content": answer,
                        "isCreatedByUser": False,
                        "model": "gpt-4o",
                        "createdAt": "2026-01-02T03:04:06Z",
                        "children": [],
                    },
                    {
                        "messageId": "l2b",
                        "parentMessageId": "l1",
                        "text": "No idea.",
                        "isCreatedByUser": False,
                        "model": "gpt-4o",
                        "createdAt": "2026-01-02T03:04:07Z",
                        "children": [],
                    },
                ],
            }
        ],
    }


def claude_code_lines() -> list[dict[str, Any]]:
    def line(kind: str, uuid: str, parent: str | None, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        about = {
            "sessionId": "s1",
            "cwd": "/home/ann/birds",
            "gitBranch": "main",
            "version": "2.0.1",
            "isSidechain": False,
        }
        return (
            {
                "type": kind,
                "uuid": uuid,
                "parentUuid": parent,
                "timestamp": "2026-01-02T03:04:05.678Z",
                "message": message,
            }
            | about
            | more
        )

    used = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    return [
        {"type": "summary", "summary": "Listing the birds", "leafUuid": "a2"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}, "sessionId": "s1"},
        line("user", "cu1", None, {"role": "user", "content": "List the birds"}),
        line(
            "assistant",
            "ca1",
            "cu1",
            {"role": "assistant", "id": "msg_1", "model": "claude-sonnet-4", "content": [call], "usage": used},
        ),
        line(
            "user",
            "cu2",
            "ca1",
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "heron.txt"}]},
        ),
        {"type": "attachment", "uuid": "at1", "parentUuid": "cu2", "sessionId": "s1"},
        line(
            "assistant",
            "ca2",
            "at1",
            {
                "role": "assistant",
                "id": "msg_2",
                "model": "claude-sonnet-4",
                "content": [{"type": "text", "text": "There is heron.txt."}],
                "usage": used,
            },
        ),
    ]


def codex_lines() -> list[dict[str, Any]]:
    def line(kind: str, **payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload}

    return [
        line(
            "session_meta",
            id="019aa8d2-0000-7000-8000-000000000001",
            cwd="/home/ann/birds",
            cli_version="0.60.0",
            git={"branch": "main"},
        ),
        line("turn_context", model="gpt-5-codex", cwd="/home/ann/birds"),
        line("response_item", type="message", role="user", content=[{"type": "input_text", "text": "List the birds"}]),
        line("event_msg", type="user_message", message="List the birds"),
        line("response_item", type="reasoning", id="rs_1", summary=[], encrypted_content="gAAA"),
        line(
            "response_item",
            type="function_call",
            id="fc_1",
            name="shell",
            arguments='{"command":["ls"]}',
            call_id="call_1",
        ),
        line("response_item", type="function_call_output", call_id="call_1", output="heron.txt"),
        line(
            "response_item",
            type="message",
            id="msg_9",
            role="assistant",
            content=[{"type": "output_text", "text": "There is heron.txt."}],
        ),
        line("event_msg", type="token_count", info={"last_token_usage": {"input_tokens": 40, "output_tokens": 8}}),
    ]


def jsonl(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def llm_database(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
        CREATE TABLE responses (id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT,
            options_json TEXT, response TEXT, response_json TEXT, conversation_id TEXT, duration_ms INT,
            datetime_utc TEXT, input_tokens INT, output_tokens INT, token_details TEXT);
        INSERT INTO conversations VALUES ('llm-1', 'Herons', 'gpt-4o');
        INSERT INTO responses VALUES ('r1', 'gpt-4o', 'What is a heron?', 'Be short.', NULL, '{"temperature": 0}',
            'A bird.', NULL, 'llm-1', 12, '2026-01-02T03:04:05.678901', 9, 3, NULL);
        INSERT INTO responses VALUES ('r2', 'gpt-4o', 'And an egret?', NULL, NULL, '{}',
            'Another.', NULL, 'llm-1', 12, '2026-01-02T03:05:05.678901', 19, 2, NULL);
        """
    )
    connection.commit()
    connection.close()
    return path


def llm_tools_and_media(path: Path) -> Path:
    """An old log in which a prompt has a fragment and files, and an answer calls tools that give the calls no ids."""
    llm_database(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
            CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
            CREATE TABLE system_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
            CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
            CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
            CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT,
                arguments TEXT, tool_call_id TEXT);
            CREATE TABLE tool_results (id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT,
                output TEXT, tool_call_id TEXT, exception TEXT);
            CREATE TABLE tool_results_attachments (tool_result_id INTEGER, attachment_id TEXT, "order" INTEGER);
            INSERT INTO fragments VALUES (1, 'A novel about herons.'), (2, 'Answer in verse.');
            INSERT INTO prompt_fragments VALUES ('r1', 1, 0);
            INSERT INTO system_fragments VALUES ('r1', 2, 0);
            INSERT INTO attachments VALUES ('a1', 'image/png', NULL, NULL, X'89504E47'),
                ('a2', 'application/pdf', NULL, 'https://example.org/herons.pdf', NULL),
                ('a3', 'audio/wav', '/home/ann/call.wav', NULL, NULL);
            INSERT INTO prompt_attachments VALUES ('r1', 'a1', 0), ('r1', 'a2', 1), ('r1', 'a3', 2);
            INSERT INTO tool_calls VALUES (1, 'r1', 1, 'look', '{"at": "pond"}', NULL),
                (2, 'r1', 1, 'look', '{"at": "sky"}', NULL);
            INSERT INTO tool_results VALUES (1, 'r2', 1, 'look', 'A heron', NULL, NULL),
                (2, 'r2', 1, 'look', 'Error: too bright', NULL, 'ValueError: too bright');
            INSERT INTO tool_results_attachments VALUES (1, 'a1', 0);
            UPDATE responses SET prompt = '' WHERE id = 'r2';
            """
        )
    return path


def llm_threads(path: Path) -> Path:
    """A log of the newer generation: a thread with a fork of an answer, and a conversation that it continues."""
    llm_database(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
            CREATE TABLE parts (id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
                text TEXT, payload TEXT);
            CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT);
            CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
            CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT,
                datetime_utc TEXT);
            CREATE TABLE turns (id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
                model TEXT, resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER,
                output_tokens INTEGER, token_details TEXT, duration_ms INTEGER, datetime_utc TEXT, response_json TEXT);
            INSERT INTO fragments VALUES (7, 'A novel about herons.');
            INSERT INTO attachments VALUES ('a1', 'image/png', NULL, NULL, X'89504E47');
            INSERT INTO messages VALUES ('b2:1', NULL, 'user', NULL), ('b2:2', 'b2:1', 'assistant', NULL),
                ('b2:3', 'b2:1', 'assistant', NULL), ('b2:4', 'b2:3', 'tool', NULL),
                ('b2:5', 'b2:4', 'assistant', NULL);
            INSERT INTO parts VALUES
                (1, 'b2:1', 0, 'text', NULL, NULL, '{"text_ref": [{"fragment": 7}, {"literal": " Who wrote it?"}]}'),
                (2, 'b2:1', 1, 'attachment', NULL, NULL, '{"attachment": {"id": "a1"}}'),
                (3, 'b2:2', 0, 'text', NULL, 'Nobody.', NULL),
                (4, 'b2:3', 0, 'reasoning', NULL, 'I must look.', NULL),
                (5, 'b2:3', 1, 'tool_call', 'look', NULL,
                    '{"name": "look", "arguments": {"at": "cover"}, "tool_call_id": "c1"}'),
                (6, 'b2:4', 0, 'tool_result', 'look', NULL,
                    '{"name": "look", "output": "Torn.", "tool_call_id": "c1", "exception": "ValueError"}'),
                (7, 'b2:5', 0, 'text', NULL, 'Nobody knows.', NULL);
            INSERT INTO threads VALUES ('llm-1', 'Herons', 'b2:5', NULL, '2026-01-02 03:00:00+00:00');
            INSERT INTO turns VALUES
                ('t1', 'llm-1', 'b2:1', 'b2:2', 'gpt-4o', NULL, '{"temperature": 0}', NULL, 9, 3, NULL, 12,
                    '2026-01-02T03:04:05+00:00', NULL),
                ('t2', 'llm-1', 'b2:1', 'b2:3', 'gpt-5', 'gpt-5-mini', NULL, NULL, 9, 3, NULL, 12,
                    '2026-01-02T03:05:05+00:00', NULL),
                ('t3', 'llm-1', 'b2:4', 'b2:5', 'gpt-5', 'gpt-5-mini', NULL, NULL, 19, 5, NULL, 12,
                    '2026-01-02T03:06:05+00:00', NULL);
            """
        )
    return path


def agents_database(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY)")
    connection.execute(
        "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT)"
    )
    said = [
        ("one", {"role": "user", "content": "What is a heron?"}),
        ("two", {"role": "user", "content": "Hello"}),
        ("one", {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}),
        ("one", {"type": "function_call_output", "call_id": "c1", "output": "A bird"}),
    ]
    for session, item in said:
        row = (session, json.dumps(item), "2026-01-02 03:04:05")
        connection.execute("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", row)
    connection.commit()
    connection.close()
    return path


def langchain_database(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)")
    for kind, said in (("human", "What is a heron?"), ("ai", "A bird.")):
        row = json.dumps({"type": kind, "data": {"content": said, "additional_kwargs": {}, "type": kind}})
        connection.execute("INSERT INTO message_store (session_id, message) VALUES ('lc-1', ?)", (row,))
    connection.commit()
    connection.close()
    return path
