"""Transcripts as coding agents write them, in a home folder of a test's own."""

from __future__ import annotations

import json
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
        "cwd": "/work/birds",
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
    return codex_line("session_meta", id=CODEX_SESSION, cwd="/work/birds", git={"branch": "main"}) + codex_line(
        "turn_context", model="gpt-test"
    )


def codex_message(role: str, text: str) -> bytes:
    kind = "input_text" if role == "user" else "output_text"
    return codex_line("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
