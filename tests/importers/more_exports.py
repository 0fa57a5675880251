"""More exports of other programs, written by hand after their formats. Nobody's data."""

from __future__ import annotations

import base64
import json
import sqlite3
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.importers.exports import PNG, jsonl

PICTURE = "data:image/png;base64," + base64.b64encode(PNG).decode()


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def database(path: Path, script: str, *rows: tuple[str, Sequence[Any]]) -> Path:
    """A SQLite file: a script, then rows of tables."""
    connection = sqlite3.connect(path)
    connection.executescript(script)
    for table, row in rows:
        connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    connection.commit()
    connection.close()
    return path


# opencode


def opencode_session() -> dict[str, Any]:
    return {
        "id": "ses_1",
        "projectID": "p1",
        "directory": "/home/ann/birds",
        "title": "Herons",
        "version": "1.0.0",
        "time": {"created": 1_700_000_000_000, "updated": 1_700_000_100_000},
    }


def opencode_messages() -> list[dict[str, Any]]:
    def part(id: str, message: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"id": id, "messageID": message, "sessionID": "ses_1", "type": kind} | more

    tool = {"status": "completed", "input": {"path": "heron.txt"}, "output": "Grey.", "title": "heron.txt"}
    answer = {
        "id": "msg_2",
        "sessionID": "ses_1",
        "role": "assistant",
        "parentID": "msg_1",
        "modelID": "claude-sonnet-5",
        "providerID": "anthropic",
        "cost": 0.0125,
        "tokens": {"input": 12, "output": 7, "reasoning": 2, "cache": {"read": 5, "write": 0}},
        "time": {"created": 1_700_000_001_000, "completed": 1_700_000_002_000},
    }
    return [
        {
            "info": {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1_700_000_000_000}},
            "parts": [
                part("prt_1", "msg_1", "text", text="What is a heron?"),
                part("prt_2", "msg_1", "file", mime="image/png", filename="heron.png", url=PICTURE),
            ],
        },
        {
            "info": answer,
            "parts": [
                part("prt_3", "msg_2", "step-start"),
                part("prt_4", "msg_2", "reasoning", text="Look it up."),
                part("prt_5", "msg_2", "tool", callID="call_1", tool="read", state=tool),
                part("prt_6", "msg_2", "text", text="A grey bird."),
            ],
        },
    ]


def opencode_export(folder: Path) -> Path:
    return write(folder / "export.json", {"info": opencode_session(), "messages": opencode_messages()})


def opencode_storage(folder: Path) -> Path:
    root = folder / "storage"
    write(root / "session" / "p1" / "ses_1.json", opencode_session())
    for message in opencode_messages():
        write(root / "message" / "ses_1" / f"{message['info']['id']}.json", message["info"])
        for part in message["parts"]:
            write(root / "part" / part["messageID"] / f"{part['id']}.json", part)
    return root


def opencode_database(folder: Path) -> Path:
    session = opencode_session()
    rows: list[tuple[str, Sequence[Any]]] = [
        ("session", (session["id"], "p1", session["directory"], session["title"], session["time"]["created"], 0))
    ]
    for message in opencode_messages():
        info = {name: value for name, value in message["info"].items() if name not in ("id", "sessionID")}
        rows.append(("message", (message["info"]["id"], "ses_1", 0, 0, json.dumps(info))))
        for part in message["parts"]:
            data = {name: value for name, value in part.items() if name not in ("id", "messageID", "sessionID")}
            rows.append(("part", (part["id"], part["messageID"], "ses_1", 0, 0, json.dumps(data))))
    script = """
    CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, directory TEXT, title TEXT, time_created INT,
        time_updated INT);
    CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INT, time_updated INT, data TEXT);
    CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INT, time_updated INT,
        data TEXT);
    """
    return database(folder / "opencode.db", script, *rows)


# Gemini


def gemini_zip(folder: Path) -> Path:
    def record(title: str, at: str, *html: str, **more: Any) -> dict[str, Any]:
        answers = {"safeHtmlItem": [{"html": each} for each in html]} if html else {}
        return {"header": "Gemini Apps", "title": title, "time": at, "products": ["Gemini Apps"]} | answers | more

    records = [
        record("Prompted And an egret?", "2026-01-03T10:00:00.000Z", "<p>Another bird.</p>"),
        record("Prompted Where does it nest?", "2026-01-02T03:10:00.000Z"),
        record(
            "Prompted What is a heron?",
            "2026-01-02T03:04:05.123Z",
            "<p>A <b>bird</b> &amp; a fisher:</p><ul><li>grey</li><li>tall</li></ul>",
        ),
    ]
    path = folder / "takeout.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("Takeout/My Activity/Gemini Apps/MyActivity.json", json.dumps(records))
    return path


GEMINI_CELL = """<div class="outer-cell mdl-cell mdl-cell--12-col mdl-shadow--2dp"><div class="mdl-grid">
<div class="header-cell mdl-cell mdl-cell--12-col"><p class="mdl-typography--title">Gemini Apps<br></p></div>
<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1">{said}<br>{at}<br>{answer}</div>
<div class="content-cell mdl-cell mdl-cell--6-col mdl-typography--body-1 mdl-typography--text-right"></div>
<div class="content-cell mdl-cell mdl-cell--12-col mdl-typography--caption"><b>Products:</b><br>Gemini Apps<br></div>
</div></div>"""


def gemini_page(folder: Path) -> Path:
    cells = [
        ("Prompted And an egret?", "Jan 3, 2026, 10:00:00\u202fAM UTC", "<p>Another bird.</p>"),
        ("Prompted Where does it nest?", "2 Jan 2026, 04:10:00 CET", ""),
        (
            "Prompted What is a &lt;heron&gt;,<br>and where?",
            "Jan 1, 2026, 7:04:05\u202fPM PST",
            "<p>A <b>bird</b> &amp; a fisher:</p><div><ul><li>grey</li><li>tall</li></ul></div>",
        ),
        ("Prompted Was ist ein Reiher?", "02.01.2026, 03:04:05 MEZ", "<p>Ein Vogel.</p>"),
        ("Prompted And an ibis?", "Jan 4, 2026, 10:00:00 AM XYZT", "<p>A bird too.</p>"),
    ]
    style = "<style>" + ".mdl{}" * 20_000 + "</style>"
    body = "".join(GEMINI_CELL.format(said=said, at=at, answer=answer) for said, at, answer in cells)
    path = folder / "MyActivity.html"
    path.write_text(f"<html><head><title>My Activity History</title>{style}</head><body>{body}</body></html>", "utf-8")
    return path


# Chainlit


CHAINLIT = """
CREATE TABLE users ("id" TEXT PRIMARY KEY, "identifier" TEXT, "metadata" TEXT, "createdAt" TEXT);
CREATE TABLE threads ("id" TEXT PRIMARY KEY, "createdAt" TEXT, "name" TEXT, "userId" TEXT, "userIdentifier" TEXT,
    "tags" TEXT, "metadata" TEXT);
CREATE TABLE steps ("id" TEXT PRIMARY KEY, "name" TEXT, "type" TEXT, "threadId" TEXT, "parentId" TEXT,
    "isError" INT, "input" TEXT, "output" TEXT, "createdAt" TEXT, "generation" TEXT);
CREATE TABLE elements ("id" TEXT PRIMARY KEY, "threadId" TEXT, "name" TEXT, "mime" TEXT, "url" TEXT);
CREATE TABLE feedbacks ("id" TEXT PRIMARY KEY, "forId" TEXT, "threadId" TEXT, "value" INT, "comment" TEXT);
"""
CHAINLIT_ROWS: list[tuple[str, Sequence[Any]]] = [
    ("users", ("u1", "ann", "{}", "2026-01-02T03:04:00Z")),
    ("threads", ("cl-1", "2026-01-02T03:04:00Z", "Herons", "u1", "ann", '["birds"]', '{"profile": "short"}')),
    ("steps", ("s1", "ann", "user_message", "cl-1", None, 0, "", "What is a heron?", "2026-01-02T03:04:01Z", None)),
    ("steps", ("s2", "on_message", "run", "cl-1", "s1", 0, "", "", "2026-01-02T03:04:02Z", None)),
    ("steps", ("s3", "look", "tool", "cl-1", "s2", 0, '{"q": "heron"}', "A bird", "2026-01-02T03:04:03Z", None)),
    (
        "steps",
        (
            "s4",
            "bot",
            "assistant_message",
            "cl-1",
            "s2",
            0,
            "",
            "A bird.",
            "2026-01-02T03:04:04Z",
            '{"model": "gpt-5"}',
        ),
    ),
    ("elements", ("e1", "cl-1", "heron.png", "image/png", "https://example.org/heron.png")),
    ("feedbacks", ("f1", "s4", "cl-1", 1, "Short")),
]


def chainlit_database(folder: Path) -> Path:
    return database(folder / "chainlit.db", CHAINLIT, *CHAINLIT_ROWS)


# Langfuse


def langfuse_observations(folder: Path) -> Path:
    def generation(id: str, trace: str, second: int, given: list[Any], answer: Any, **more: Any) -> dict[str, Any]:
        return {
            "id": id,
            "trace_id": trace,
            "session_id": "lf-1",
            "user_id": "ann",
            "type": "GENERATION",
            "start_time": f"2026-01-02 03:04:{second:02}.000000",
            "end_time": f"2026-01-02 03:04:{second + 1:02}.000000",
            "provided_model_name": "gpt-5",
            "usage_details": {"input": 9, "output": 3},
            "input": given,
            "output": answer,
        } | more

    system = {"role": "system", "content": "Be short."}
    asked = {"role": "user", "content": "What is a heron?"}
    answer = {"role": "assistant", "content": "A bird."}
    more = {"role": "user", "content": "Where does it nest?"}
    return jsonl(
        folder / "observations.jsonl",
        [
            generation("o2", "t2", 10, [system, asked, answer, more], {"role": "assistant", "content": "In trees."}),
            generation("o1", "t1", 5, [system, asked], answer | {"tool_calls": None}),
            {"id": "x1", "trace_id": "t1", "type": "SPAN", "name": "retrieve", "start_time": "2026-01-02 03:04:05"},
            generation(
                "o3", "t3", 20, [system, asked], {"role": "assistant", "content": "No idea."}, session_id="lf-1"
            ),
        ],
    )


# The seeds


def modernpath_file(folder: Path) -> Path:
    about = {
        "schemaVersion": 1,
        "conversationId": "mp-1",
        "userId": 7,
        "auditingId": 100,
        "agentName": "helper",
        "title": "Herons",
        "createdAt": "2026-01-02T03:04:00Z",
        "messageCount": 2,
        "metadata": {"store": "birds"},
    }

    def message(id: str, role: str, said: str, second: int, **more: Any) -> dict[str, Any]:
        at = f"2026-01-02T03:04:{second:02}Z"
        return {"schemaVersion": 1, "messageId": id, "conversationId": "mp-1", "role": role, "content": said} | {
            "timestamp": at,
            **more,
        }

    source = {"documentId": "d1", "documentName": "Birds", "chunk": "Herons fish.", "score": 0.5}
    said = [
        message("m2", "assistant", "A bird.", 2, traceId="t-1", sources=[source]),
        message("m1", "user", "What is a heron?", 1),
    ]
    return write(folder / "modernpath.json", {"conversations": [about], "messages": said})


def toolpack_messages() -> list[dict[str, Any]]:
    return [
        {
            "id": "e1",
            "conversationId": "C042",
            "participant": {"kind": "user", "id": "U7", "displayName": "Ann"},
            "content": "@helper, what is a heron?",
            "timestamp": "2026-01-02T03:04:05Z",
            "scope": "thread",
            "metadata": {"channelType": "slack", "mentions": ["helper"]},
        },
        {
            "id": "e2",
            "conversationId": "C042",
            "participant": {"kind": "agent", "id": "helper"},
            "content": "A bird.",
            "timestamp": "2026-01-02T03:04:06Z",
            "scope": "thread",
        },
    ]


def toolpack_database(folder: Path) -> Path:
    script = """
    CREATE TABLE messages (id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, participant_kind TEXT NOT NULL,
        participant_id TEXT NOT NULL, participant_display_name TEXT, content TEXT NOT NULL, timestamp TEXT NOT NULL,
        scope TEXT NOT NULL, metadata TEXT);
    """
    rows: list[tuple[str, Sequence[Any]]] = [
        (
            "messages",
            (
                each["id"],
                each["conversationId"],
                each["participant"]["kind"],
                each["participant"]["id"],
                each["participant"].get("displayName"),
                each["content"],
                each["timestamp"],
                each["scope"],
                json.dumps(each["metadata"]) if "metadata" in each else None,
            ),
        )
        for each in toolpack_messages()
    ]
    return database(folder / "conversations.db", script, *rows)


def ai_dev_kit_folder(folder: Path) -> Path:
    root = folder / "Conversations"
    about = {"Id": "unity-1", "AgentId": "guide", "Title": "Herons", "CreatedAt": "2026-01-02T03:04:05Z"}
    write(root / "guide" / "unity-1.json", about | {"Metadata": {"level": "3"}})
    said = [
        {
            "id": "i1",
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "What is a heron?"}],
        },
        {"id": "i2", "type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"id": "i3", "type": "function_call_output", "call_id": "c1", "output": "A bird"},
        {"id": "i4", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A bird."}]},
    ]
    write(root / "guide" / "unity-1_items.json", said)
    return root


def makers_file(folder: Path) -> Path:
    about = {"conversationId": "mk-1", "createdAt": 1_700_000_000_000, "lastMessageAt": 1_700_000_002_000}
    said = [
        {"messageId": "msg_1", "role": "user", "content": "What is a heron?", "createdAt": 1_700_000_001_000},
        {"messageId": "msg_2", "role": "assistant", "content": "A bird.", "createdAt": 1_700_000_002_000},
    ]
    whole = about | {"messageCount": 2, "metadata": {"title": "Herons", "summary": "Birds"}, "messages": said}
    return write(folder / "makers.json", [whole])


def tpipe_file(folder: Path) -> Path:
    picture = {"type": "bytes", "data": [(each + 128) % 256 - 128 for each in PNG], "mimeType": "image/png"}
    history = [
        {"role": "user", "content": {"text": "What is a heron?", "binaryContent": [picture]}, "uuid": "t1"},
        {"role": "agent", "content": {"text": "A bird.", "binaryContent": []}, "uuid": "t2"},
    ]
    return write(folder / "tpipe-1.json", {"history": history})
