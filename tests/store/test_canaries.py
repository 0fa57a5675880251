"""Erasure, checked in the raw bytes: no message of a user, and nothing derived from one, is left.

Each place that a user's words may reach gets a canary of its own. Other users' words must stay.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.servers import postgres
from tests.servers import redis as redis_servers

from hansard import Message, Participant, sync
from hansard.search import vectors

ANN = Participant("user", "ann")
BEN = Participant("user", "ben")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
STAYS = "bens-words"
VECTOR = [0.1 * number for number in range(1, 17)]
"""No other text is embedded like this."""


class Embedder:
    name = "canaries"
    version = "1"
    dimensions = 16

    async def __call__(self, texts: Sequence[str], kind: str) -> Sequence[Sequence[float]]:
        return [VECTOR if "canary" in text else [1.0] * 16 for text in texts]


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


def fill(store: sync.Store, word: Callable[[str], str]) -> None:
    """Stores every kind of user data, with and without expiry."""
    for name, ends in (("kept", None), ("expired", NOW + timedelta(hours=1))):
        own = [
            Message("user", word(f"message-{name}"), participant=ANN, metadata={"k": word(f"extra-{name}")}),
            Message("user", {"image": base64.b64encode(word(f"blob-{name}").encode() * 300).decode()}),
        ]
        first = store.append(
            f"{name}-own", own, user_id="ann", title=word(f"title-{name}"), metadata={"k": word(f"metadata-{name}")}
        ).messages[0]
        store.branch(f"{name}-own", at=first.id)
        store.append(f"{name}-own", Message("assistant", word(f"branch-{name}")))
        store.add_summary(f"{name}-own", word(f"summary-{name}"), from_seq=1, to_seq=1)
        store.records.put(["n"], name, word(f"record-{name}"), conversation_id=f"{name}-own")
        others = [Message("user", word(f"other-{name}"), participant=ANN), Message("user", STAYS, participant=BEN)]
        store.append(f"{name}-bens", others, user_id="ben")
        store.update_message(f"{name}-own", first.id, content=word(f"changed-{name}"))
        for id in (f"{name}-own", f"{name}-bens"):
            store.update_conversation(id, expires_at=ends)
    store.user("ann").records.put(["n"], "own", word("own-record"))


@pytest.fixture(params=["sqlite", "file", "file-snapshot", "postgres", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yields a URL, and a function that returns everything stored there as bytes."""
    kind = request.param
    if kind == "postgres":
        if reason := postgres.why_absent():
            pytest.skip(reason)
        schema = postgres.new_schema()
        yield postgres.with_schema(schema), lambda: postgres.run(rows_of(schema))
        postgres.drop(schema)
    elif kind == "redis":
        if reason := redis_servers.why_absent():
            pytest.skip(reason)
        url = redis_servers.fresh_database()
        yield url, lambda: dump_of(int(url.partition("db=")[2]))
    else:
        urls = {"sqlite": "sqlite:///{}/s.db", "file": "file://{}/s", "file-snapshot": "file://{}/s?mode=snapshot"}
        yield urls[kind].format(tmp_path), lambda: bytes_of(tmp_path)


def bytes_of(folder: Path) -> bytes:
    """Returns the content of all files, and their decoded base64."""
    read = b"|".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    decoded = [
        base64.b64decode(each) for each in re.findall(rb"\"((?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/=]{4})?)\"", read)
    ]
    return b"|".join([read, *decoded])


async def rows_of(schema: str) -> bytes:
    import asyncpg

    connection = await asyncpg.connect(postgres.url())
    try:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        found = []
        for (table,) in tables:
            for row in await connection.fetch(f"SELECT * FROM {schema}.{table}"):
                found += [value if isinstance(value, bytes) else str(value).encode() for value in row.values()]
        return b"|".join(found)
    finally:
        await connection.close()


def dump_of(number: int) -> bytes:
    client = redis_servers.shared().client(number)
    read: dict[bytes, Callable[[bytes], list[bytes]]] = {
        b"string": lambda key: [client.get(key)],
        b"hash": lambda key: [part for pair in client.hgetall(key).items() for part in pair],
        b"list": lambda key: client.lrange(key, 0, -1),
        b"set": lambda key: list(client.smembers(key)),
        b"zset": lambda key: client.zrange(key, 0, -1),
    }
    return b"|".join(part for key in client.keys("*") for part in (key, *read[client.type(key)](key)))


@pytest.mark.parametrize("how", ["store", "tenant", "user"])
def test_nothing_of_an_erased_user_is_left(place: tuple[str, Callable[[], bytes]], how: str) -> None:
    url, raw = place
    said: list[str] = []

    def word(where: str) -> str:
        said.append(f"canary-{where}-xyzzy")
        return said[-1]

    clock = Clock()
    with sync.connect(url, clock=clock, embedder=Embedder()) as store:
        acme = store if how == "store" else store.tenant("acme")
        fill(acme, word)
        acme.embed()
        acme.search("canary")
    vector = vectors.stored(vectors.unit(VECTOR, 16))
    before = raw()
    assert vector in before
    assert b"canary-message-kept-xyzzy" in before or b"canary-changed-kept-xyzzy" in before
    clock.now = NOW + timedelta(hours=2)
    with sync.connect(url, clock=clock) as store:
        acme = store if how == "store" else store.tenant("acme")
        receipt = (acme.user("ann") if how == "user" else acme).erase_user("ann")
        assert (receipt.conversations, receipt.messages) == (2, 8)
    after = raw()
    left = [each for each in said if each.encode() in after]
    assert not left
    # SQLite's index stores words in pieces: none that only this user had may be left.
    assert b"xyzzy" not in after
    assert vector not in after
    assert STAYS.encode() in after
