"""Random histories and random queries: every backend finds what `memory` finds, in the same order, whatever was done.

The pieces that texts and queries are made of are few, so that they meet, and awkward, so that each rule of what a word
is gets its turn.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract.backends import BACKENDS, KEEPING, quick_folder

from hansard import Message, Participant
from hansard.model import NOT_YET
from hansard.testing import Target
from hansard.testing.clock import Clock
from hansard.testing.targets import Driver

FUZZED = int(os.environ.get("HANSARD_FUZZED_QUERIES", "0"))
SEEDS = max(1, FUZZED // 300)
QUERIES = 120 if FUZZED else 48
"""For each seed."""

PIECES = (
    *("order", "Orders", "ordering", "the", "Müller", "mueller", "Muller", "Häuser", "Haus", "Größe", "GROESSE"),
    *("GitHub", "github", "getUserName", "user_name", "iPhone15", "iphone", "HTTPServerError", "ERR_CONN_RESET"),
    *("src/app.py", "app", "a.b@example.com", "example", "https://example.com/a?b=1#c", r"C:\app", "v2.1.3", "1,250"),
    *("1250", "50%", "C++", "c#", "$5", "€", "R&D", "don't", "l'été", "O’Brien", "x²", "ﬁle", "ＡＢＣ１２", "½"),
    *("東京タワー", "京", "天气很好", "很", "コーヒー", "ｺｰﾋｰ", "학교에서", "교", "ภาษาไทย", "ไทย", "น้ำ", "ㅋㅋ"),
    *("كِتَابٌ", "الكتاب", "أحمد", "हिन्दी", "हिंदी", "книги", "книга", "Ёлка", "ΑΘΉΝΑ", "İstanbul", "Łódź", "שָׁלוֹם"),
    *("👍🏽", "👍", "👨‍👩‍👧", "🇩🇪", "❤️", "1️⃣", "\u200b", "\u00ad", "\u0301", "\ufeff", "\0", "_", "-", "'", "…"),
    *("u0123456789abcdef", "c1", "words", "more", "owner", "NEAR", "loose", "\2loose", "x" * 50, "ab" * 60),
)
_GLUE = (" ", " ", " ", "", "-", "_", "/", ".", "\n", ", ", "'", "、")
_MARKS = ("", "", "", "", '"', '"', "-", "*", " OR ", " AND ", "(", "+", "--", "“")


def text_of(chance: random.Random, most: int = 8) -> str:
    return "".join(chance.choice(PIECES) + chance.choice(_GLUE) for _ in range(chance.randint(1, most)))


def query_of(chance: random.Random) -> str:
    words = (chance.choice(_MARKS) + chance.choice(PIECES) + chance.choice(_MARKS) for _ in range(chance.randint(1, 4)))
    query = chance.choice(_GLUE).join(words)
    return f'"{query}"' if chance.random() < 0.2 else query


def content_of(chance: random.Random) -> Any:
    text = text_of(chance)
    if chance.random() < 0.7:
        return text
    call = {"type": "tool_call", "id": "call_1", "name": "look_up", "arguments": {text_of(chance, 2): [text, 17, True]}}
    result = {"type": "tool_result", "id": "call_1", "output": text}
    return [{"type": "text", "text": text_of(chance)}, chance.choice([call, result])]


class History:
    """The same life of a few conversations on two stores."""

    def __init__(self, chance: random.Random, stores: list[Driver], clocks: list[Clock]) -> None:
        self.chance = chance
        self.stores = stores
        self.clocks = clocks
        self.ids: dict[str, list[str]] = {}
        self.count = 0

    def live(self, steps: int) -> None:
        acts = [self.append] * 8 + [self.change, self.delete, self.branch, self.switch, self.hand_over, self.clear]
        for _ in range(steps):
            self.chance.choice(acts)()
            for clock in self.clocks:
                clock.advance(timedelta(seconds=1))

    def append(self) -> None:
        conversation = f"c{self.chance.randrange(5)}"
        batch = []
        for _ in range(self.chance.randint(1, 3)):
            self.count += 1
            made = NOT_YET
            if self.chance.random() < 0.2:
                made = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=self.chance.randrange(3))
            who = Participant("user", f"p{self.chance.randrange(2)}") if self.chance.random() < 0.5 else None
            role = self.chance.choice(["user", "assistant", "tool"])
            content = content_of(self.chance)
            batch.append(Message(role, content, id=f"m{self.count}", created_at=made, participant=who))
        for store in self.stores:
            store.append(conversation, batch)
        self.ids.setdefault(conversation, []).extend(message.id for message in batch)

    def _any(self) -> tuple[str, str] | None:
        there = [conversation for conversation, ids in self.ids.items() if ids]
        if not there:
            return None
        conversation = self.chance.choice(there)
        return conversation, self.chance.choice(self.ids[conversation])

    def change(self) -> None:
        if place := self._any():
            content = content_of(self.chance)
            for store in self.stores:
                store.update_message(*place, content=content)

    def delete(self) -> None:
        if place := self._any():
            self.ids[place[0]].remove(place[1])
            for store in self.stores:
                store.delete_message(*place)

    def branch(self) -> None:
        if place := self._any():
            self.count += 1
            line = self.stores[0].get_messages(place[0], last=100)
            at = self.chance.choice(line).id if line else None
            for store in self.stores:
                store.branch(place[0], at=at, branch_id=f"b{self.count}")

    def switch(self) -> None:
        if place := self._any():
            branches = [branch.id for branch in self.stores[0].list_branches(place[0])]
            to = self.chance.choice(branches)
            for store in self.stores:
                store.switch_branch(place[0], to)

    def hand_over(self) -> None:
        if place := self._any():
            user = f"u{self.chance.randrange(2)}"
            for store in self.stores:
                store.update_conversation(place[0], user_id=user)

    def clear(self) -> None:
        place = self._any() if self.chance.random() < 0.2 else None
        if place:
            self.ids[place[0]].clear()
            for store in self.stores:
                store.clear_messages(place[0])


def answers(store: Driver, query: str, options: dict[str, Any]) -> Any:
    """All pages of the newest, with what is marked in each. The ranked are the same messages."""
    pages: list[list[Any]] = []
    cursor = None
    while True:
        hits = store.search(query, order="newest", limit=7, token_cap=None, cursor=cursor, **options)
        for hit in hits:
            snippet = hit.snippet
            assert hit.text[snippet.start :].startswith(snippet.text)
        pages.append([(hit.conversation.id, hit.message.id, hit.snippet) for hit in hits])
        cursor = hits.next_cursor
        if cursor is None:
            break
    ranked = store.search(query, limit=100, token_cap=None, **options)
    assert {hit.message.id for hit in ranked} == {id for page in pages for _, id, _ in page}
    return pages


def options_of(chance: random.Random) -> dict[str, Any]:
    day = datetime(2026, 1, 2, tzinfo=UTC)
    return chance.choice(
        [
            {},
            {},
            {"conversation_id": f"c{chance.randrange(5)}"},
            {"user_id": "u1"},
            {"all_branches": True},
            {"conversation_id": "c1", "all_branches": True},
            {"roles": ["user"]},
            {"participant_ids": ["p1"]},
            {"since": day},
            {"until": day},
            {"match": "any"},
        ]
    )


@pytest.fixture(params=[name for name in KEEPING if name != "memory"])
def other(request: pytest.FixtureRequest) -> Iterator[Target]:
    with quick_folder() as folder:
        yield BACKENDS[request.param](folder)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_backend_finds_what_memory_finds(other: Target, seed: int) -> None:
    chance = random.Random(f"same {seed}")
    clocks = [Clock(), Clock()]
    memory = Target("memory://")
    try:
        stores = [memory.open("blocking", clock=clocks[0]), other.open("blocking", clock=clocks[1])]
        history = History(chance, stores, clocks)
        for _ in range(3):
            history.live(60)
            for _ in range(QUERIES // 3):
                query, options = query_of(chance), options_of(chance)
                expected, found = (answers(store, query, options) for store in stores)
                assert found == expected, (seed, query, options)
        assert stores[1].check() == []
    finally:
        memory.close()
        other.close()
