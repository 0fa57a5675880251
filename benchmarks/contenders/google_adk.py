"""google-adk's SqliteSessionService: a connection per call through aiosqlite, rollback journal.

It has no call for several events; histories for reads are written directly to its table, never timed.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.samples import Sample

service = importlib.import_module("google.adk.sessions.sqlite_session_service")
sessions = importlib.import_module("google.adk.sessions.base_session_service")
events = importlib.import_module("google.adk.events")
types = importlib.import_module("google.genai.types")

APP, USER = "benchmarks", "u_1"


def event_of(sample: Sample) -> Any:
    role = "model" if sample.role == "assistant" else "user"
    content = types.Content(role=role, parts=[types.Part(text=sample.text)])
    return events.Event(author=role, invocation_id="turn", content=content, custom_metadata=sample.metadata)


class GoogleADK(Contender):
    key: ClassVar[str] = "google-adk"
    title: ClassVar[str] = "google-adk SqliteSessionService"
    package: ClassVar[str] = "google-adk"
    thrift: ClassVar[int] = 10

    async def open(self) -> None:
        self._file = str(self.path.with_suffix(".adk"))
        self._service = service.SqliteSessionService(self._file)
        self._prepared: dict[int, Any] = {}
        self._sessions: dict[str, Any] = {}

    async def close(self) -> None:
        await self._service.close()

    def prepare(self, samples: Sequence[Sample]) -> None:
        self._prepared = {sample.number: event_of(sample) for sample in samples}

    async def append(self, conversation: str, sample: Sample) -> None:
        event = self._prepared.pop(sample.number, None) or event_of(sample)
        await self._service.append_event(await self._session(conversation), event)

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._session(conversation)
        with closing(sqlite3.connect(self._file)) as db, db:
            db.executemany(
                "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)",
                [self._row(conversation, event_of(sample)) for sample in samples],
            )

    async def last(self, conversation: str, count: int) -> Sequence[Any]:
        return list((await self._fetch(conversation, count)).events)

    def texts(self, messages: Sequence[Any]) -> list[str]:
        return [message.content.parts[0].text for message in messages]

    async def turn(self, conversation: str, question: Sample, answer: Sample) -> Sequence[Any]:
        session = self._sessions[conversation] = await self._fetch(conversation, 50)
        history = list(session.events)
        await self.append(conversation, question)
        await self.append(conversation, answer)
        return history

    async def _session(self, conversation: str) -> Any:
        session = self._sessions.get(conversation)
        if session is None:
            session = await self._service.create_session(app_name=APP, user_id=USER, session_id=conversation)
            self._sessions[conversation] = session
        return session

    async def _fetch(self, conversation: str, count: int) -> Any:
        recent = sessions.GetSessionConfig(num_recent_events=count)
        return await self._service.get_session(app_name=APP, user_id=USER, session_id=conversation, config=recent)

    def _row(self, conversation: str, event: Any) -> tuple[Any, ...]:
        data = event.model_dump_json(exclude_none=True)
        return event.id, APP, USER, conversation, "turn", event.timestamp, data
