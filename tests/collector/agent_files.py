"""Transcripts as coding agents write them, in a home folder of a test's own."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

SESSION = "11111111-2222-4333-8444-555555555555"
CODEX_SESSION = "019aa8d2-0000-7000-8000-000000000001"


def text_of(entry: Any) -> bytes:
    return json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def claude_entry(number: int, parent: int | None = None, **more: Any) -> dict[str, Any]:
    """A message of Claude Code. Odd ones are the user's, even ones are answers."""
    is_user = number % 2 == 1
    message: dict[str, Any] = {"role": "user" if is_user else "assistant", "content": f"Message {number}"}
    if not is_user:
        message |= {"model": "claude-test", "usage": {"input_tokens": 3, "output_tokens": 2}}
    before = number - 1 if parent is None else parent
    return {
        "type": message["role"],
        "uuid": f"m{number}",
        "parentUuid": f"m{before}" if before else None,
        "sessionId": SESSION,
        "cwd": "/projects/birds",
        "gitBranch": "main",
        "timestamp": f"2026-01-02T03:04:05.{number % 1000:03d}Z",
        "message": message,
    } | more


def claude_lines(first: int, last: int) -> bytes:
    return b"".join(text_of(claude_entry(number)) for number in range(first, last + 1))


def side_line(uuid: str, parent: str) -> bytes:
    """A line that is no message, and that a message may follow."""
    return text_of({"type": "attachment", "uuid": uuid, "parentUuid": parent, "sessionId": SESSION})


def claude_file(home: Path) -> Path:
    folder = home / ".claude" / "projects" / "-work-birds"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{SESSION}.jsonl"


def codex_line(kind: str, **payload: Any) -> bytes:
    return text_of({"timestamp": "2026-01-02T03:04:05.678Z", "type": kind, "payload": payload})


def codex_file(home: Path) -> Path:
    folder = home / ".codex" / "sessions" / "2026" / "01" / "02"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"rollout-2026-01-02T03-04-05-{CODEX_SESSION}.jsonl"


def codex_begin() -> bytes:
    return codex_line("session_meta", id=CODEX_SESSION, cwd="/projects/birds", git={"branch": "main"}) + codex_line(
        "turn_context", model="gpt-test"
    )


def codex_message(role: str, text: str) -> bytes:
    kind = "input_text" if role == "user" else "output_text"
    return codex_line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# Gemini CLI and opencode


def gemini_file(home: Path) -> Path:
    folder = home / ".gemini" / "tmp" / "birds"
    (folder / "chats").mkdir(parents=True, exist_ok=True)
    (folder / ".project_root").write_text("/projects/birds\n")
    return folder / "chats" / "session-2026-01-02T03-04-abcd1234.jsonl"


def gemini_begin() -> bytes:
    about = {"sessionId": "gem-1", "projectHash": "abc", "startTime": "2026-01-02T03:04:05.000Z", "kind": "main"}
    return text_of(about)


def gemini_message(id: str, kind: str, content: Any, **more: Any) -> bytes:
    """A line for a message, and one for the session's new time."""
    message = {"id": id, "timestamp": "2026-01-02T03:04:06.000Z", "type": kind, "content": content} | more
    return text_of(message) + text_of({"$set": {"lastUpdated": "2026-01-02T03:04:07.000Z"}})


def gemini_call(**more: Any) -> dict[str, Any]:
    return {"id": "call-1", "name": "read_file", "args": {"path": "heron.txt"}, "status": "executing"} | more


def gemini_result() -> list[Any]:
    return [{"functionResponse": {"id": "call-1", "name": "read_file", "response": {"output": "Grey."}}}]


class OpencodeDatabase:
    def __init__(self, home: Path) -> None:
        self.path = home / ".local" / "share" / "opencode" / "opencode.db"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self.path, isolation_level=None)
        self._db.executescript(
            """
            PRAGMA journal_mode = WAL;
            CREATE TABLE session (id TEXT PRIMARY KEY, parent_id TEXT, directory TEXT, title TEXT, time_created INT,
                time_updated INT);
            CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INT, time_updated INT, data TEXT);
            CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INT,
                time_updated INT, data TEXT);
            """
        )
        self._clock = 1_700_000_000_000

    def _tick(self) -> int:
        self._clock += 1_000
        return self._clock

    def session(self, id: str, parent: str | None = None) -> None:
        now = self._tick()
        row = (id, parent, "/projects/birds", "Herons", now, now)
        self._db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?)", row)

    def message(self, session: str, id: str, role: str, text: str, *, completed: bool = True) -> None:
        now = self._tick()
        times = {"created": now} | ({"completed": now} if completed and role == "assistant" else {})
        data = json.dumps({"role": role, "time": times, "modelID": "open-test"})
        self._db.execute("INSERT OR REPLACE INTO message VALUES (?, ?, ?, ?, ?)", (id, session, now, now, data))
        self.part(session, id, f"prt_{id}", {"type": "text", "text": text})

    def part(self, session: str, message: str, id: str, part: dict[str, Any]) -> None:
        now = self._tick()
        row = (id, message, session, now, now, json.dumps(part))
        self._db.execute("INSERT OR REPLACE INTO part VALUES (?, ?, ?, ?, ?, ?)", row)

    def close(self) -> None:
        self._db.close()
