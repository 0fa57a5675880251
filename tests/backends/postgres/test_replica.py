"""A replica: it can be read, watched and searched, takes no writes, and answers the calls that allow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.backends.bucket.conftest import NO_S3, Prefixes
from tests.backends.bucket.conftest import bucket as bucket  # noqa: PLC0414  (a fixture)
from tests.backends.postgres.kit import following, play, raw
from tests.contract.backends import quick_folder
from tests.servers import postgres
from tests.wait import PATIENCE, coming
from tools.postgres import Server

from hansard import Corrupt, Denied, Message, Store, ValidationError, connect
from hansard.backends.bucket import Bucket


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A primary and its replica."""
    with quick_folder() as folder:
        folder.chmod(0o755)
        primary, replica = Server(folder / "a"), Server(folder / "b")
        primary.make()
        primary.start(**postgres.QUICK)
        try:
            replica.follow(primary)
            replica.start(**postgres.QUICK)
            yield primary, replica
        finally:
            primary.stop()
            replica.stop()


@pytest.fixture
def schema() -> str:
    return postgres.new_schema()


async def count(store: Store) -> int:
    found = await store.get_conversation("c")
    return found.message_count if found else 0


def test_a_replica_can_be_read_and_watched(pair: tuple[Server, Server], schema: str) -> None:
    primary, replica = (postgres.with_schema(schema, each.url) for each in pair)

    async def check() -> None:
        async with connect(primary) as writing:
            last = await writing.append_message("c", "user", "0")
            await coming(lambda: has_tables(replica))
            async with connect(f"{replica}&poll_interval=50") as reading:
                await coming(lambda: count(reading))
                for write in (reading.append_message("c", "user", "x"), reading.delete_conversation("c")):
                    with pytest.raises(Denied, match="accepts no writes"):
                        await write
                async with following(reading, "c", after=last) as tail:
                    for number in range(1, 4):
                        await writing.append_message("c", "user", str(number))
                        assert (await asyncio.wait_for(anext(tail), PATIENCE)).text == str(number)

    play(check)


async def has_tables(url: str) -> bool:
    try:
        async with connect(url):
            return True
    except Denied:
        return False  # what the primary has made has not arrived yet


async def unindex(url: str, schema: str) -> None:
    """No process is left that could index it again."""
    async with raw(url) as connection:
        await connection.execute(f"DELETE FROM {schema}.search")
        await connection.execute(
            f"INSERT INTO {schema}.search_queue SELECT tenant, conversation, line, seq FROM {schema}.messages "
            "ON CONFLICT DO NOTHING"
        )


def test_a_replica_can_be_searched(pair: tuple[Server, Server], schema: str) -> None:
    """It can index nothing: what the primary has not indexed is looked at, however much it is."""
    primary, replica = (postgres.with_schema(schema, each.url) for each in pair)

    async def check() -> None:
        async with connect(primary) as store:
            await store.append("c", [Message("user", f"word {number}") for number in range(150)])
            await coming(lambda: has_tables(replica))
        await unindex(pair[0].url, schema)
        async with connect(replica) as copy:
            await coming(lambda: is_queued(pair[1], schema, 150))
            found = await copy.search("word", order="newest", limit=100, token_cap=None)
            assert [hit.message.seq for hit in found] == list(range(150, 50, -1))
        async with connect(f"{primary}&replicas={pair[1].folder}") as both:
            found = await both.search("word", order="newest", limit=100, token_cap=None, read_from="replica")
            assert [hit.message.seq for hit in found] == list(range(150, 50, -1))

    play(check)


async def is_queued(server: Server, schema: str, messages: int) -> bool:
    async with raw(server.url) as connection:
        return bool(await connection.fetchval(f"SELECT count(*) = $1 FROM {schema}.search_queue", messages))


# Calls that a replica may answer


@asynccontextmanager
async def standing_still(replica: Server) -> AsyncIterator[None]:
    """The replica receives everything, and shows nothing of it yet."""
    async with raw(replica.url) as connection:
        await connection.execute("SELECT pg_wal_replay_pause()")
        await coming(lambda: connection.fetchval("SELECT pg_get_wal_replay_pause_state() = 'paused'"))
        try:
            yield
        finally:
            await connection.execute("SELECT pg_wal_replay_resume()")


async def listed(store: Store, **given: object) -> set[str]:
    return {conversation.id for conversation in (await store.list_conversations(**given)).items}  # type: ignore[arg-type]


async def found(store: Store, **given: object) -> set[str]:
    hits = await store.search("word", **given)  # type: ignore[arg-type]
    return {hit.conversation.id for hit in hits}


def test_only_calls_that_allow_it_read_from_a_replica(pair: tuple[Server, Server], schema: str) -> None:
    primary, replica = pair
    url = postgres.with_schema(schema, f"{primary.url}&replicas={replica.folder}")

    async def check() -> None:
        async with connect(url) as store:
            await store.append_message("old", "user", "word", user_id="ann")
            await coming(lambda: has_tables(postgres.with_schema(schema, replica.url)))
            await coming(lambda: listed(store, read_from="replica"))
            async with standing_still(replica):
                await store.append_message("new", "user", "word", user_id="ann")
                await store.append_message("other", "user", "word", user_id="ben")
                assert await listed(store) == await found(store) == {"old", "new", "other"}
                for look in (listed, found):
                    assert await look(store, read_from="replica") == {"old"}
                    assert await look(store.user("ben"), read_from="replica") == set()
                    assert await look(store.tenant("acme"), read_from="replica") == set()
                iterated = store.iter_conversations(read_from="replica")
                assert [conversation.id async for conversation in iterated] == ["old"]
            await coming(lambda: _has_all(store))
            for look in (listed, found):
                assert await look(store.user("ben"), read_from="replica") == {"other"}
            for look in (listed, found):
                with pytest.raises(ValidationError, match="read_from"):
                    await look(store, read_from="nearest")

    play(check)


@NO_S3
def test_a_hit_of_a_replica_whose_blob_is_gone_is_left_out(
    pair: tuple[Server, Server], schema: str, bucket: Prefixes
) -> None:
    """The bucket has no replica: it forgets a blob before the replica hears that its message was deleted."""
    primary, replica = pair
    url, picture = postgres.with_schema(schema, f"{primary.url}&replicas={replica.folder}"), "A" * 40_000
    where, _ = bucket.new()

    async def check() -> None:
        async with connect(url, blobs=where) as store:
            words = {"type": "text", "text": "word"}
            for id in ("gone", "lost"):
                await store.append(id, Message("user", [words, {"data": picture + id[0] * 40}], id=id))
            await store.append_message("kept", "user", "word")
            await coming(lambda: has_tables(postgres.with_schema(schema, replica.url)))
            await coming(lambda: _has_all(store))
            async with standing_still(replica):
                await store.delete_message("gone", "gone")
                given: dict[str, Any] = {"read_from": "replica"}
                assert await found(store, **given) == {"lost", "kept"}
                assert await found(store, **given, around=1) == {"lost", "kept"}
                for name, _ in list(Bucket(where).list()):
                    Bucket(where).remove(name)
                with pytest.raises(Corrupt, match="is missing"):
                    await found(store, **given)

    play(check)


async def _has_all(store: Store) -> bool:
    return len(await listed(store, read_from="replica")) == 3


def test_the_primary_answers_for_a_replica_that_is_away(pair: tuple[Server, Server], schema: str) -> None:
    """Refused at first; then it runs, but has no tables of this store yet; then it is there."""
    primary, replica = pair
    url = postgres.with_schema(schema, f"{primary.url}&replicas=/nowhere,{replica.folder}")

    async def check() -> None:
        async with standing_still(replica), connect(url) as store:
            await store.append_message("c", "user", "word", user_id="ann")
            assert await listed(store, read_from="replica") == await found(store, read_from="replica") == {"c"}
        async with connect(postgres.with_schema(schema, f"{primary.url}&replicas=/nowhere")) as store:
            assert await listed(store, read_from="replica") == await found(store, read_from="replica") == {"c"}

    play(check)


def test_names_of_replicas_that_are_none(pair: tuple[Server, Server]) -> None:
    async def check() -> None:
        with pytest.raises(ValidationError, match="replicas="):
            await connect(f"{pair[0].url}&replicas=a,,b")

    play(check)
