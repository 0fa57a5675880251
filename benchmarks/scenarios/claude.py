"""Claude's transcripts: appends through `claude_session_store`, compared with `Store.append` of the same entries.

A batch is what Claude's process mirrors for a turn: a question, an answer, and an entry that is not a message.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable
from benchmarks.measure import TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import TRANSCRIPT, transcript_batch

TITLE = "Claude append"
BATCHES = 20
TARGET = 1.5
STORE, SESSIONS = "hansard append", "hansard claude_session_store"
KEY = {"project_key": "benchmarks", "session_id": TRANSCRIPT}


def run(arena: Arena) -> Iterator[Comparison]:
    arena.require_files()
    entrants = [Direct(arena), Mirrored(arena)]
    try:
        rounds = arena.size(40, quick=5)
        series = by_turns([TimedContender(one.name, one.portion, rounds) for one in entrants])
        for one in entrants:
            arena.run_async(one.verify(rounds))
    finally:
        for one in entrants:
            arena.run_async(one.close())
    yield Judge(arena.roster, TITLE, series).compare(SESSIONS, STORE, TARGET)


class Direct:
    """The entries as messages of a conversation."""

    name = STORE

    def __init__(self, arena: Arena) -> None:
        try:
            self._hansard = importlib.import_module("hansard")
            importlib.import_module("claude_agent_sdk")
        except ImportError as error:
            raise NotAvailable(f"{type(error).__name__}: {error.name}") from error
        self._arena = arena
        self._store = arena.run_async(self._open(arena.place()[1]))

    async def _open(self, url: str) -> Any:
        return await self._hansard.connect(url)

    def portion(self, number: int) -> float:
        batches = [transcript_batch(number * BATCHES + at) for at in range(BATCHES)]
        return self._arena.run_async(self._timed(batches)) / BATCHES * 1e6

    async def _timed(self, batches: list[list[dict[str, Any]]]) -> float:
        begin = perf_counter()
        for batch in batches:
            await self._append(batch)
        return perf_counter() - begin

    async def _append(self, batch: list[dict[str, Any]]) -> None:
        messages = [
            self._hansard.Message("user", entry, id=entry.get("uuid", ""), format="claude.transcript")
            for entry in batch
        ]
        await self._store.append(KEY["session_id"], messages)

    async def verify(self, rounds: int) -> None:
        conversation = await self._store.get_conversation(KEY["session_id"])
        check(conversation.message_count == 3 * BATCHES * rounds, "the store lost entries")

    async def close(self) -> None:
        await self._store.close()


class Mirrored(Direct):
    """The entries as Claude's process sends them."""

    name = SESSIONS

    async def _open(self, url: str) -> Any:
        store = await super()._open(url)
        # One per process, as in the SDK's options.
        self._sessions = store.claude_session_store()
        return store

    async def _append(self, batch: list[dict[str, Any]]) -> None:
        await self._sessions.append(KEY, batch)

    async def verify(self, rounds: int) -> None:
        entries = await self._store.claude_session_store().load(KEY)
        check(len(entries) == 3 * BATCHES * rounds, "the session store lost entries")
