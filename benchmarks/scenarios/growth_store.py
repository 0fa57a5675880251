"""The stores of `growth`: the same conversations and users, only more of them, and what their calls cost.

A server's work counts as well: the processor time of its processes is read from `/proc`, so it must run on this
machine.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from benchmarks.arena import Arena
from benchmarks.contenders import NotAvailable
from benchmarks.scenarios.search_corpus import latin
from hansard import Message, Store, connect
from hansard.contract.backend import Indexed

EACH = 50
"""Messages in a conversation."""
CONVERSATIONS = 10
"""Conversations of a user."""
_TASKS = 64


@dataclass(slots=True, eq=False)
class GrownStore:
    messages: int
    url: str
    file: Path | None
    """The file of a store that has one."""
    store: Store
    server: Any = None
    """A connection to the server of a store that has one."""
    schema: str = ""

    @property
    def title(self) -> str:
        return f"{self.messages:,} messages"

    @property
    def conversations(self) -> int:
        return self.messages // EACH

    @property
    def users(self) -> int:
        return self.conversations // CONVERSATIONS

    def conversation(self, number: int) -> str:
        """Returns one of 200 conversations, which are spread over the whole store, whatever its size."""
        return f"c{number % 200 * (self.conversations // 200)}"

    def user(self, number: int) -> str:
        return f"u{number % self.users}"

    async def pids(self) -> Sequence[int]:
        """Returns the processes of the server that work for this program."""
        if self.server is None:
            return ()
        found = await self.server.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'hansard'")
        return [row[0] for row in found]

    async def bytes(self) -> int:
        if self.file is not None:
            return self.file.stat().st_size
        of_schema = f"relkind = 'r' AND relnamespace = '{self.schema}'::regnamespace"
        return int(
            await self.server.fetchval(f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE {of_schema}")
        )

    async def index(self) -> None:
        await cast(Indexed, self.store.backend).catch_up()

    async def close(self) -> None:
        await self.store.close()
        if self.server is not None:
            await self.server.execute(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
            await self.server.close()


async def grown(arena: Arena, messages: int) -> GrownStore:
    """Builds a store of that size, with its index."""
    made = await _opened(arena, messages)
    numbers = range(made.conversations)
    for first in range(0, len(numbers), _TASKS):
        await asyncio.gather(*(_talk(made, number) for number in numbers[first : first + _TASKS]))
    await made.index()
    if made.server is not None:
        for table in ("conversations", "messages", "search", "search_queue"):
            await made.server.execute(f"VACUUM ANALYZE {made.schema}.{table}", timeout=3600)
    return made


async def _talk(made: GrownStore, number: int) -> None:
    said = [Message("user", latin(at)) for at in range(number * EACH, (number + 1) * EACH)]
    await made.store.append(f"c{number}", said, user_id=made.user(number))


async def _opened(arena: Arena, messages: int) -> GrownStore:
    engine = arena.roster.engine
    if engine == "sqlite":
        path, url = arena.place()
        return GrownStore(messages, url, path.with_suffix(".db"), await connect(url))
    if engine != "postgresql":
        raise NotAvailable("measured on sqlite and postgresql")
    server = await importlib.import_module("asyncpg").connect(arena.options.url)
    schema = f"growth_{os.getpid()}_{messages}"
    url = f"{arena.options.url}{'&' if '?' in arena.options.url else '?'}schema={schema}"
    return GrownStore(messages, url, None, await connect(url), server, schema)


def processor_time(pids: Sequence[int]) -> float:
    """Returns microseconds of this process, with all its threads, and of these processes."""
    try:
        others = sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids)
    except OSError as error:
        raise NotAvailable("needs a server on this machine, whose processor time can be read") from error
    return time.process_time() * 1e6 + others / 1e3
