"""Row-level security: a second wall, which stands even where a statement forgets the first."""

from __future__ import annotations

from collections.abc import Iterator

import asyncpg
import pytest
from tests.backends.postgres.kit import backend_of, play, raw
from tests.backends.postgres.test_pooler import use_everything
from tests.servers import postgres

from hansard import Message, ValidationError, connect
from hansard.backends.postgres.schema import TABLES


@pytest.fixture
def place() -> Iterator[str]:
    """A schema that belongs to a role without privileges."""
    name = postgres.place_of_the_ordinary()
    yield name
    postgres.drop(name)


def url_of(place: str, options: str = "") -> str:
    return postgres.with_schema(place, postgres.shared().url_of(postgres.ORDINARY)) + options


def test_everything_works_behind_it(place: str) -> None:
    async def check() -> None:
        async with connect(url_of(place, "&rls=true")) as store:
            await use_everything(store)
            await use_everything(store.tenant("acme"))
            assert await store.admin.tenants() == ["acme", "default"]
            assert (await store.admin.stats()).conversations == 10
            assert [found async for found in store.admin.check()][-1] == 10
            await store.purge()
            await store.admin.delete_tenant("acme")
            assert await store.admin.tenants() == ["default"]

    play(check)


def test_the_wall_stands_for_whoever_opens_the_store(place: str) -> None:
    """Once it is up, it need not be asked for again; and nobody reads past it by accident."""

    async def check() -> None:
        async with connect(url_of(place, "&rls=true")) as store:
            await store.append_message("c", "user", "x")
            await store.tenant("acme").append_message("c", "user", "y")
        async with connect(url_of(place)) as store:
            assert [message.text for message in await store.get_messages("c")] == ["x"]
            assert await store.admin.tenants() == ["acme", "default"]

    play(check)


def test_a_statement_without_a_tenant_sees_nothing(place: str) -> None:
    async def check() -> None:
        async with connect(url_of(place, "&rls=true")) as store:
            await store.append("c", [Message("user", "x", usage={"input_tokens": 1})])  # type: ignore[arg-type]
            await store.tenant("acme").append_message("c", "user", "y")
            await store.records.put(["n"], "k", 1)
            async with raw(postgres.shared().url_of(postgres.ORDINARY)) as connection:
                for table in TABLES:
                    assert await connection.fetchval(f"SELECT count(*) FROM {place}.{table}") == 0, table
                async with connection.transaction():
                    await connection.execute("SET LOCAL hansard_wall.tenant = 'acme'")
                    found = await connection.fetch(f"SELECT tenant FROM {place}.conversations")
                    assert [row[0] for row in found] == ["acme"]
                    # Nothing can be written for another tenant, either.
                    with pytest.raises(asyncpg.InsufficientPrivilegeError):
                        await connection.execute(f"INSERT INTO {place}.tombstones VALUES ('default', 'x', 0)")
                # What a transaction has set goes with it.
                assert await connection.fetchval(f"SELECT count(*) FROM {place}.conversations") == 0

    play(check)


def test_a_query_of_ours_that_forgot_its_tenant(place: str) -> None:
    async def check() -> None:
        async with connect(url_of(place, "&rls=true")) as store:
            await store.append_message("c", "user", "x")
            await store.tenant("acme").append_message("c", "user", "y")
            engine = backend_of(store).storage.engine
            forgetful = f"SELECT tenant FROM {place}.conversations"
            found = await engine.read("acme", lambda link: link.fetch(forgetful, ()))
            assert [row[0] for row in found] == ["acme"]

    play(check)


def test_an_odd_tenant_does_not_open_it(place: str) -> None:
    async def check() -> None:
        async with connect(url_of(place, "&rls=true")) as store:
            await store.append_message("c", "user", "x")
            for odd in ("*", "on", "'; SET LOCAL hansard_wall.open = 'on", "\\'", "ü😀"):
                view = store.tenant(odd)
                assert await view.get_conversation("c") is None
                await view.append_message("c", "user", odd)
                assert [message.text for message in await view.get_messages("c")] == [odd]

    play(check)


def test_a_superuser_cannot_be_walled_in() -> None:
    async def check() -> None:
        with pytest.raises(ValidationError, match="superuser"):
            await connect(postgres.with_schema(postgres.new_schema()) + "&rls=true")

    play(check)
