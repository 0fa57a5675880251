"""Files of other programs with the messages of the samples, in conversations of 100."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.samples import Sample, samples

PER_CONVERSATION = 100


def _conversations(messages: int) -> Iterator[tuple[str, list[Sample]]]:
    for start in range(0, messages, PER_CONVERSATION):
        yield f"c{start // PER_CONVERSATION}", samples(PER_CONVERSATION, start)


def _node(sample: Sample, parent: str | None) -> dict[str, Any]:
    id = f"n{sample.number}"
    message = {
        "id": id,
        "author": {"role": sample.role, "name": None, "metadata": {}},
        "create_time": 1.7e9 + sample.number,
        "content": {"content_type": "text", "parts": [sample.text]},
        "status": "finished_successfully",
        "recipient": "all",
        "metadata": {"model_slug": "small"},
    }
    return {"id": id, "parent": parent, "children": [], "message": message}


def _chatgpt(path: Path, messages: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, (id, said) in enumerate(_conversations(messages)):
            nodes: dict[str, Any] = {}
            parent = None
            for sample in said:
                nodes[f"n{sample.number}"] = _node(sample, parent)
                parent = f"n{sample.number}"
            whole = {"id": id, "title": id, "create_time": 1.7e9, "current_node": parent, "mapping": nodes}
            file.write(("," if number else "") + json.dumps(whole))
        file.write("]")


def _lines(path: Path, rows: Iterator[Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def _claude_code(path: Path, messages: int) -> None:
    path.mkdir()
    for id, said in _conversations(messages):
        _lines(
            path / f"{id}.jsonl",
            (
                {
                    "type": sample.role,
                    "uuid": f"n{sample.number}",
                    "parentUuid": f"n{sample.number - 1}" if sample.number % PER_CONVERSATION else None,
                    "sessionId": id,
                    "timestamp": "2026-11-15T08:00:00.000Z",
                    "message": {"role": sample.role, "content": sample.text},
                }
                for sample in said
            ),
        )


def _fine_tuning(path: Path, messages: int) -> None:
    _lines(
        path,
        (
            {"messages": [{"role": sample.role, "content": sample.text} for sample in said]}
            for _, said in _conversations(messages)
        ),
    )


def _plain_rows(path: Path, messages: int) -> None:
    _lines(
        path,
        (
            {"thread_id": id, "role": sample.role, "content": sample.text, "message_id": f"n{sample.number}"}
            for id, said in _conversations(messages)
            for sample in said
        ),
    )


def _agents(path: Path, messages: int) -> None:
    table = "agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TIMESTAMP)"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    rows = (
        (id, json.dumps({"role": sample.role, "content": sample.text}), "2026-11-15 08:00:00")
        for id, said in _conversations(messages)
        for sample in said
    )
    connection.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


FILES: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "chatgpt": ("conversations.json", _chatgpt),
    "claude-code": ("projects", _claude_code),
    "openai-jsonl": ("train.jsonl", _fine_tuning),
    "jsonl": ("rows.jsonl", _plain_rows),
    "openai-agents": ("sessions.db", _agents),
}
"""What each kind of file is called, and how it is made."""
