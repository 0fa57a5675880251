"""Files of other programs with the messages of the samples, in conversations of 100."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain
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
    _array(path, (_tree(id, said) for id, said in _conversations(messages)))


def _tree(id: str, said: list[Sample]) -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    parent = None
    for sample in said:
        nodes[f"n{sample.number}"] = _node(sample, parent)
        parent = f"n{sample.number}"
    return {"id": id, "title": id, "create_time": 1.7e9, "current_node": parent, "mapping": nodes}


def _array(path: Path, values: Iterator[Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for number, value in enumerate(values):
            file.write(("," if number else "") + json.dumps(value))
        file.write("]")


def _at(sample: Sample) -> str:
    """A time a second after the one of the sample before."""
    return datetime.fromtimestamp(1_700_000_000 + sample.number, UTC).isoformat().replace("+00:00", ".000Z")


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
                    "timestamp": _at(sample),
                    "message": {"role": sample.role, "content": sample.text},
                }
                for sample in said
            ),
        )


def _claude_ai(path: Path, messages: int) -> None:
    _array(
        path,
        (
            {
                "uuid": id,
                "name": id,
                "created_at": _at(said[0]),
                "chat_messages": [
                    {
                        "uuid": f"n{sample.number}",
                        "sender": "human" if sample.role == "user" else "assistant",
                        "text": sample.text,
                        "content": [{"type": "text", "text": sample.text}],
                        "created_at": _at(sample),
                        "attachments": [],
                        "files": [],
                    }
                    for sample in said
                ],
            }
            for id, said in _conversations(messages)
        ),
    )


def _codex(path: Path, messages: int) -> None:
    path.mkdir()
    for number, (_, said) in enumerate(_conversations(messages)):
        id = f"00000000-0000-4000-8000-{number:012d}"
        head = {"timestamp": _at(said[0]), "type": "session_meta", "payload": {"id": id, "cwd": "/birds"}}
        lines = (
            {
                "timestamp": _at(sample),
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": sample.role,
                    "content": [
                        {"type": "input_text" if sample.role == "user" else "output_text", "text": sample.text}
                    ],
                },
            }
            for sample in said
        )
        _lines(path / f"rollout-{id}.jsonl", chain((head,), lines))


def _open_webui(path: Path, messages: int) -> None:
    _array(path, (_chat(id, said) for id, said in _conversations(messages)))


def _chat(id: str, said: list[Sample]) -> dict[str, Any]:
    nodes = {
        f"n{sample.number}": {
            "id": f"n{sample.number}",
            "parentId": f"n{sample.number - 1}" if sample is not said[0] else None,
            "childrenIds": [f"n{sample.number + 1}"] if sample is not said[-1] else [],
            "role": sample.role,
            "content": sample.text,
            "timestamp": 1_700_000_000 + sample.number,
        }
        for sample in said
    }
    history = {"messages": nodes, "currentId": f"n{said[-1].number}"}
    return {"id": id, "title": id, "chat": {"title": id, "history": history}, "created_at": 1_700_000_000}


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


def _csv(path: Path, messages: int) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["thread_id", "role", "content", "message_id"])
        for id, said in _conversations(messages):
            rows.writerows([id, sample.role, sample.text, f"n{sample.number}"] for sample in said)


def _agents(path: Path, messages: int) -> None:
    table = "agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TIMESTAMP)"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    rows = (
        (id, json.dumps({"role": sample.role, "content": sample.text}), _at(sample)[:19].replace("T", " "))
        for id, said in _conversations(messages)
        for sample in said
    )
    connection.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
    connection.commit()
    connection.close()


FILES: dict[str, tuple[str, Callable[[Path, int], None]]] = {
    "chatgpt": ("conversations.json", _chatgpt),
    "claude-code": ("projects", _claude_code),
    "claude-ai": ("conversations.json", _claude_ai),
    "codex": ("sessions", _codex),
    "open-webui": ("chats.json", _open_webui),
    "openai-jsonl": ("train.jsonl", _fine_tuning),
    "jsonl": ("rows.jsonl", _plain_rows),
    "csv": ("rows.csv", _csv),
    "openai-agents": ("sessions.db", _agents),
}
"""What each kind of file is called, and how it is made."""
