"""Opening: what is refused, and with which words."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from tests.servers import cassandra

import hansard
from hansard import FormatMismatch, Unavailable, ValidationError
from hansard.backends.cassandra import CassandraBackend
from hansard.backends.cassandra.options import options_of
from hansard.urls import Url


async def _connect(url: str) -> None:
    async with hansard.connect(url):
        pass


@pytest.mark.parametrize(
    "url",
    [
        "cassandra://localhost/Upper",
        "cassandra://localhost/two words",
        "cassandra://one:1,two:2/chats",
        "cassandra://one:none/chats",
        "cassandra://localhost/chats?prefix=a b",
        "cassandra://localhost/chats?replicas=3",
    ],
)
def test_what_a_url_cannot_say(url: str) -> None:
    with pytest.raises(ValidationError):
        asyncio.run(_connect(url))


def test_what_a_url_says() -> None:
    options, prefix = options_of(Url("cassandra://ann:p%40ss@one,two:9043/chats?prefix=mine&datacenter=dc1"))
    assert options.hosts == ("one", "two")
    assert (options.port, options.keyspace, options.username, options.password) == (9043, "chats", "ann", "p@ss")
    assert (options.datacenter, prefix) == ("dc1", "mine")
    assert "p@ss" not in options.where


def test_no_node_there() -> None:
    with pytest.raises(Unavailable) as refused:
        asyncio.run(_connect("cassandra://127.0.0.1:1/chats"))
    assert refused.value.outcome == "not_applied"


def test_one_host_wrong() -> None:
    host, _, port = cassandra.url().removeprefix("cassandra://").rpartition(":")

    async def run() -> None:
        url = f"cassandra://127.0.0.254,{host}:{port}/{cassandra.KEYSPACE}?prefix=t{secrets.token_hex(4)}"
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "one")
            assert [each.text for each in await store.get_messages("c")] == ["one"]

    asyncio.run(run())


def test_several_make_one_keyspace_at_once() -> None:
    """Stores with different options share no connection, as those of different processes."""
    keyspace = f"made_{secrets.token_hex(4)}"

    async def run() -> None:
        await asyncio.gather(*(_connect(f"{cassandra.url()}/{keyspace}?timeout={30 + n}") for n in range(4)))
        async with hansard.connect(f"{cassandra.url()}/{keyspace}") as store:
            await store.append_message("c", "user", "one")
            assert [each.text for each in await store.get_messages("c")] == ["one"]

    asyncio.run(run())


def test_an_older_store_is_upgraded_and_continues() -> None:
    """Its conversations are in slots, without exact times, and its names have no column `leaving`."""
    url = f"{cassandra.url()}/older_{secrets.token_hex(4)}"

    async def run() -> None:
        backend = CassandraBackend(*options_of(Url(url)))
        await backend.storage.open(upgrade=False)
        async with hansard.Store(backend) as store:
            await store.append_message("old", "user", "one")
            link = backend.storage.link
            for name in ("0004_exact_entries", "0005_leaving_names", "0006_unindexed_tombstones"):
                await link.execute(f"DELETE FROM {link.options.keyspace}.migrations WHERE name = %s IF EXISTS", (name,))
            await link.execute(f"ALTER TABLE {link.options.keyspace}.catalog DROP leaving")
            await link.execute(f"ALTER TABLE {link.options.keyspace}.unindexed WITH gc_grace_seconds = 3600")
        with pytest.raises(FormatMismatch, match="hansard upgrade"):
            await _connect(url)
        backend = CassandraBackend(*options_of(Url(url)))
        await backend.storage.open(upgrade=True)
        async with hansard.Store(backend) as store:
            await store.append_message("new", "user", "two")
            await store.append_message("old", "user", "three")
            assert {each.id for each in (await store.list_conversations()).items} == {"old", "new"}
            assert await store.check() == []
            table = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
            assert await backend.storage.link.execute(table, (backend.storage.link.options.keyspace, "unindexed")) == [
                (0,)
            ]

    asyncio.run(run())


def test_the_default_commit_log_claims_no_more_than_a_process(url: str) -> None:
    async def run() -> str:
        async with hansard.connect(url) as store:
            return store.capabilities.durability

    assert asyncio.run(run()) == "process"
