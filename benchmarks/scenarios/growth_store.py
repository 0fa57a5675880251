"""The stores of `growth`: the same conversations and users, only more of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import cast

from benchmarks.contenders import NotAvailable
from benchmarks.scenarios.growth_places import Place
from benchmarks.scenarios.search_corpus import EVERY, WORDS, latin
from hansard import Message, Store, connect
from hansard.contract.backend import Indexed
from hansard.errors import TimedOut

EACH = 50
"""Messages in a conversation."""
CONVERSATIONS = 10
"""Conversations of a user."""
_BLOCK = 20_000
"""Conversations over which those of a user are spread, in a store that has so many."""
_TASKS = 64
_TRIES = 10
_PHRASES = 10_000
_IS_FILLED = (("growth",), "filled")
"""The record of a kept store that is complete. Later runs erase some of its users."""
_FIRST = datetime(2024, 1, 1, tzinfo=UTC)
_SECONDS = 7
"""Between two messages."""


@cache
def _phrases() -> list[str]:
    """Returns phrases of six words, with frequencies like those of a language."""
    words = " ".join(map(latin, range(_PHRASES * 6 // 30))).split()
    ordinary = [word for word in words if word not in WORDS.values()]
    return [" ".join(ordinary[at : at + 6]) for at in range(0, len(ordinary) - 5, 6)]


def text(number: int) -> str:
    """Returns about 30 words. Ten million texts are needed, and choosing words takes longer than storing them."""
    phrases = _phrases()
    chosen = number * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    picked = [phrases[(chosen >> shift) % len(phrases)] for shift in (0, 12, 24, 36, 48)]
    return " ".join([*picked, *(word for word, every in EVERY.items() if number % every == 0)])


@dataclass(slots=True, eq=False)
class GrownStore:
    messages: int
    url: str
    store: Store
    place: Place
    erased: int = 0
    """Users that were erased, from the last one."""
    appended: list[tuple[str, str]] = field(default_factory=list)
    """Conversations and ids of the messages that were appended to measure it."""
    bytes: int = 0
    """What it takes, after it was closed."""

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
        """Returns one of 8 users, whatever the size of the store. The others can be erased."""
        return f"u{number % 8 * (self.users // 20)}"

    def owner(self, number: int) -> str:
        """Returns the user of a conversation."""
        block = min(self.conversations, _BLOCK)
        users = block // CONVERSATIONS
        return f"u{number // block * users + number % users}"

    @property
    def last_user(self) -> str:
        """Returns the user to erase next."""
        return f"u{self.users - 1 - self.erased}"

    @property
    def last_is_read(self) -> bool:
        """Whether that user owns conversations that are read. In the smallest store all do."""
        apart = self.users // 20
        return apart > 1 and (self.users - 1 - self.erased) % apart == 0

    async def take_back(self) -> None:
        """Deletes what was appended: the newest messages of a kept store would be those of earlier runs."""
        for conversation, id in self.appended:
            await self.store.delete_message(conversation, id)

    async def index(self) -> None:
        """Tries again what a busy server did not answer in time: it is written once anyway."""
        for _ in range(_TRIES):
            with suppress(TimedOut):
                return await cast(Indexed, self.store.backend).catch_up()
        raise NotAvailable("the server is too slow to index the messages")


async def grown(place: Place, messages: int) -> GrownStore:
    """Builds a store of that size, with its index. Continues with one that was kept.

    It is opened again afterwards: a process remembers the conversations that it has written last, which would be all of
    a small store and few of a large one.
    """
    made = GrownStore(messages, place.url(messages), await connect(place.url(messages)), place)
    for first in range(await _filled(made), made.conversations, _TASKS):
        numbers = range(first, min(first + _TASKS, made.conversations))
        await asyncio.gather(*(_talk(made, number) for number in numbers))
    await made.store.records.put(*_IS_FILLED, True)
    await made.index()
    await place.tidy(messages)
    await made.store.close()
    made.store = await connect(made.url)
    return made


async def _filled(made: GrownStore) -> int:
    """Returns how many conversations a kept store has. Those that were written together are completed.

    The last ones are found by halving.
    """
    if await made.store.records.get(*_IS_FILLED):
        return made.conversations
    first, above = 0, made.conversations + 1
    while above - first > 1:
        middle = (first + above) // 2
        here = await made.store.get_conversation(f"c{middle - 1}")
        first, above = (middle, above) if here else (first, middle)
    for number in range(max(0, first - _TASKS), min(first + _TASKS, made.conversations)):
        if await made.store.get_conversation(f"c{number}") is None:
            await _talk(made, number)
    return first + _TASKS


async def _talk(made: GrownStore, number: int) -> None:
    said = [
        Message("user", text(at), created_at=_FIRST + timedelta(seconds=at * _SECONDS))
        for at in range(number * EACH, (number + 1) * EACH)
    ]
    await made.store.append(f"c{number}", said, user_id=made.owner(number))
