"""Faults of a cluster, of the rights of a role, and of a clock: a clear error each, and nothing half-written."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from tests.servers import cassandra
from tests.wait import coming
from tools.cassandra import Node, why_absent

import hansard
from hansard import Denied, FormatMismatch, Unavailable
from hansard.backends.cassandra import schema
from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.options import options_of
from hansard.urls import Url


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that asks for passwords, and syncs its commit log before it answers."""
    if reason := why_absent():
        pytest.skip(reason)
    node = Node(tmp_path_factory.mktemp("guarded"), sync="group", asks_passwords=True)
    try:
        node.start()
        asyncio.run(_make_roles(node))
        yield node
    finally:
        node.kill()


def _url(node: Node, role: str, keyspace: str = "chats", password: str = "secret") -> str:
    return f"cassandra://{role}:{password}@{node.address}:{node.port}/{keyspace}"


async def _execute(url: str, *statements: str) -> None:
    link = Link(options_of(Url(url))[0], "")

    async def is_open() -> bool:
        try:
            await link.open()
        except Denied:
            return False
        return True

    await coming(is_open)  # a new node makes its first role a moment after it listens
    try:
        for statement in statements:
            await link.execute(statement)
    finally:
        await link.close()


async def _make_roles(node: Node) -> None:
    root = _url(node, "cassandra", "chats", "cassandra")
    await _execute(root)
    async with hansard.connect(root) as store:
        await store.append_message("c", "user", "one")
    roles = [f"CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true" for role in ("reader", "writer", "nobody")]
    await _execute(
        root,
        *roles,
        "GRANT SELECT ON KEYSPACE chats TO reader",
        "GRANT SELECT ON KEYSPACE chats TO writer",
        "GRANT MODIFY ON KEYSPACE chats TO writer",
        "GRANT SELECT ON system_views.settings TO reader",
        "GRANT SELECT ON system_views.settings TO writer",
    )


async def _texts(url: str) -> list[str]:
    async with hansard.connect(url) as store:
        return [message.text for message in await store.get_messages("c")]


def test_a_wrong_password(guarded: Node) -> None:
    with pytest.raises(Denied, match="does not let us in") as refused:
        asyncio.run(_texts(_url(guarded, "writer", password="wrong")))
    assert "wrong@" not in str(refused.value)


def test_no_password(guarded: Node) -> None:
    with pytest.raises(Denied, match="name and password in the URL"):
        asyncio.run(_texts(f"cassandra://{guarded.address}:{guarded.port}/chats"))


def test_a_role_that_may_not_read(guarded: Node) -> None:
    with pytest.raises(Denied, match=r"GRANT SELECT ON system_views\.settings"):
        asyncio.run(_texts(_url(guarded, "nobody")))


def test_a_role_that_may_only_read(guarded: Node) -> None:
    url = _url(guarded, "reader")

    async def write() -> None:
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "two")

    assert asyncio.run(_texts(url)) == ["one"]
    with pytest.raises(Denied, match="MODIFY"):
        asyncio.run(write())
    assert asyncio.run(_texts(url)) == ["one"]


def test_a_role_that_may_write_needs_no_other_right(guarded: Node) -> None:
    async def run() -> None:
        async with hansard.connect(_url(guarded, "writer")) as store:
            await store.append_message("other", "user", "two")
            assert [each.text for each in await store.get_messages("other")] == ["two"]
            assert (await store.delete_conversation("other")).messages == 1

    asyncio.run(run())


def test_an_unknown_keyspace_that_the_role_may_not_make(guarded: Node) -> None:
    with pytest.raises(Denied, match="CREATE"):
        asyncio.run(_texts(_url(guarded, "writer", "unknown")))


def test_a_commit_log_that_is_synced_survives_the_machine(guarded: Node) -> None:
    async def run() -> str:
        async with hansard.connect(_url(guarded, "writer")) as store:
            return store.capabilities.durability

    assert asyncio.run(run()) == "machine"


def test_a_node_that_goes_and_returns_with_the_older_paxos(guarded: Node) -> None:
    """An open store fails while no node is there, a new one while it has the older Paxos; then both work."""
    url = _url(guarded, "writer")

    async def run() -> None:
        async with hansard.connect(f"{url}?timeout=60") as store:
            await store.append_message("away", "user", "one")
            await asyncio.to_thread(guarded.kill)
            with pytest.raises(Unavailable):
                await store.append_message("away", "user", "two")
            await asyncio.to_thread(_restart, guarded, "v1")
            with pytest.raises(FormatMismatch, match="set paxos_variant to v2"):
                await _texts(url)
            await asyncio.to_thread(_restart, guarded, "v2")
            assert [each.text for each in await _patiently(store)][:1] == ["one"]
            await store.append_message("away", "user", "three")

    asyncio.run(run())


def _restart(node: Node, paxos: str) -> None:
    node.kill()
    node.paxos = paxos
    node.start()


async def _patiently(store: hansard.Store) -> list[hansard.Message]:
    """The driver tries a node again after a while."""

    async def ask() -> list[hansard.Message] | None:
        try:
            return await store.get_messages("away")
        except Unavailable:
            return None

    found: list[hansard.Message] = await coming(ask)
    return found


@pytest.mark.parametrize("version", ["4.1.9", "4.0-alpha2", "3.11"])
def test_older_versions_are_refused(version: str) -> None:
    with pytest.raises(FormatMismatch, match=r"needs 5\.0 or newer"):
        schema.check_version("here", version)


@pytest.mark.parametrize("version", ["5.0", "5.0.9", "5.1-SNAPSHOT", "6.0-alpha2"])
def test_newer_versions_are_not(version: str) -> None:
    schema.check_version("here", version)


def test_a_schema_of_a_newer_version() -> None:
    keyspace = f"future_{secrets.token_hex(4)}"
    url = f"{cassandra.url()}/{keyspace}"

    async def run() -> None:
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "one")
        await _execute(
            url,
            f"INSERT INTO {keyspace}.migrations (name, checksum, state) VALUES ('9999_future', 'x', 'done')",
        )
        with pytest.raises(FormatMismatch, match="newer version of Hansard"):
            await _texts(url)

    asyncio.run(run())


def _run_ahead(code: str, url: str) -> None:
    """Runs statements in a process whose clock is a minute ahead."""
    lines = [
        "import asyncio, sys, time",
        "seconds, nanoseconds = time.time, time.time_ns",
        "time.time = lambda: seconds() + 60",
        "time.time_ns = lambda: nanoseconds() + 60 * 10**9",
        "import hansard",
        "async def run():",
        "    async with hansard.connect(sys.argv[1]) as store:",
        textwrap.indent(textwrap.dedent(code).strip(), " " * 8),
        "asyncio.run(run())",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines), url], check=True, timeout=120)


def test_a_tenant_that_a_clock_ahead_has_deleted(url: str) -> None:
    _run_ahead(
        """
        tenant = store.tenant("t")
        await tenant.append_message("c", "user", "one", user_id="ann")
        await tenant.user("ann").records.put(("a",), "k", 1)
        await store.admin.delete_tenant("t")
        """,
        url,
    )

    async def run() -> None:
        async with hansard.connect(url) as store:
            assert await store.admin.tenants() == []
            tenant = store.tenant("t")
            await tenant.append_message("c", "user", "two", user_id="ann")
            await tenant.user("ann").records.put(("a",), "k", 2)
            assert await store.admin.tenants() == ["t"]
            assert [each.id for each in (await tenant.user("ann").list_conversations()).items] == ["c"]
            receipt = await store.admin.delete_tenant("t")
            assert (receipt.conversations, receipt.messages, receipt.records) == (1, 1, 1)

    asyncio.run(run())


def test_writers_whose_clocks_disagree(url: str) -> None:
    _run_ahead('await store.append_message("c", "user", "one", user_id="ann")', url)

    async def run() -> None:
        async with hansard.connect(url) as store:
            await store.append_message("c", "user", "two")
            assert [each.text for each in await store.get_messages("c")] == ["one", "two"]
            assert [each.id for each in (await store.user("ann").list_conversations()).items] == ["c"]
            await store.delete_conversation("c")
            assert (await store.list_conversations()).items == []
            assert await store.check() == []

    asyncio.run(run())
