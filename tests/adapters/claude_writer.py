"""A process that writes batches into one session, as Claude's process does, until it has written all or is killed.

It says `open`, and then the number of each batch that it was told is stored.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from typing import Any

import hansard

SESSION = "22222222-2222-4222-8222-222222222222"
KEY: Any = {"project_key": "crash", "session_id": SESSION}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}
NAMES = uuid.UUID("8b7f4f3e-2f0b-4b59-9a41-3f0c5be1b6f2")


def batch(writer: str, number: int) -> list[Any]:
    """Messages, entries beside them, before, between and after, and now and then no message at all."""
    made = [_entry(writer, number, part) for part in range(5)]
    return [made[0], made[2], made[4]] if number % 4 == 3 else made


def _entry(writer: str, number: int, part: int) -> Any:
    name = f"{writer}.{number}.{part}"
    marks = {"uuid": str(uuid.uuid5(NAMES, name)), "sessionId": SESSION, "name": name}
    if part % 2 == 0:
        return {"type": "queue-operation", "content": f"Say {name} in é\x00\U0001f600\u2028", **marks}
    role = "user" if part == 1 else "assistant"
    said = {"role": role, "content": f"Say {name} in é\x00\U0001f600\u2028, said {role}"}
    return {"type": role, "message": said, "timestamp": "2026-01-01T00:00:00.000Z", "parentUuid": None, **marks}


def tell(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def write(url: str, writer: str, start: int, end: int) -> None:
    async with hansard.connect(url) as store:
        sessions = store.claude_session_store()
        tell("open")
        for number in range(start, end):
            for key in (KEY, SUB):
                await sessions.append(key, batch(writer, number))
            tell(number)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
