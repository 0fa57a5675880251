"""How many statements each call takes: on a server, each of them is a round trip."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import asyncpg
import pytest
from tests.backends.postgres.kit import play
from tests.servers import postgres

import hansard
from hansard import Message, connect
from hansard.backends.postgres import index_task

T = TypeVar("T")

# BEGIN and COMMIT are two of each write but the appends.
EXPECTED = {
    "append, first": 2,
    "append": 1,
    "append of fifty": 1,
    "append with an id": 1,
    "append with an id again": 6,
    "append with an owner": 7,
    "append with usage": 4,
    "append to a second branch": 4,
    "create_conversation": 5,
    "get_conversation": 1,
    "update_conversation": 5,
    "get_messages": 1,
    "get_message": 1,
    "update_message": 9,
    "update_message, the same text": 7,
    "delete_messages": 10,
    "pop_message": 10,
    "add_summary": 7,
    "list_summaries": 1,
    "replace_messages, more": 9,
    "replace_messages, others": 10,
    "branch": 8,
    "branch at": 8,
    "list_branches": 1,
    "list_conversations": 1,
    "list_conversations of a user": 1,
    "list_conversations of a user, by metadata": 3,
    "list_conversations of a member": 4,
    "delete_branch": 10,
    "clear_messages": 10,
    "delete_conversation": 6,
}


@pytest.fixture
def url() -> Iterator[str]:
    target = postgres.target()
    assert target.url is not None
    yield target.url
    target.close()


class Counter:
    """Counts what any connection sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: dict[str, int] = {}
        self._sent = 0
        for name in ("fetch", "fetchrow", "execute"):
            monkeypatch.setattr(asyncpg.Connection, name, self._counting(getattr(asyncpg.Connection, name)))

    def _counting(self, send: Any) -> Any:
        async def counted(*args: Any, **options: Any) -> Any:
            self._sent += 1
            return await send(*args, **options)

        return counted

    async def of(self, name: str, call: Awaitable[T]) -> T:
        self._sent = 0
        value = await call
        self.counts[name] = self._sent
        return value


def test_how_many_statements_each_call_takes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_task, "IDLE", 600.0)

    async def check() -> None:
        async with connect(url) as store:
            counter = Counter(monkeypatch)
            await _append(store, counter)
            await _change(store, counter)
            await _list(store, counter)
            await _remove(store, counter)
        assert counter.counts == EXPECTED

    play(check)


async def _append(store: hansard.Store, counter: Counter) -> None:
    await counter.of("append, first", store.append_message("c", "user", "x"))
    await counter.of("append", store.append_message("c", "user", "x"))
    await counter.of("append of fifty", store.append("c", [Message("user", "x") for _ in range(50)]))
    await counter.of("append with an id", store.append("c", [Message("user", "x", id="m")]))
    await counter.of("append with an id again", store.append("c", [Message("user", "x", id="m")]))
    await counter.of("append with an owner", store.append_message("c", "user", "x", user_id="ann"))
    used = Message("user", "x", usage=hansard.Usage(1, model="m"))
    await counter.of("append with usage", store.append("c", [used]))
    await counter.of("create_conversation", store.create_conversation("d"))


async def _change(store: hansard.Store, counter: Counter) -> None:
    found = await counter.of("get_messages", store.get_messages("c", limit=10))
    await counter.of("get_message", store.get_message("c", found[0].id))
    await counter.of("get_conversation", store.get_conversation("c"))
    await counter.of("update_conversation", store.update_conversation("c", title="x"))
    await counter.of("update_message", store.update_message("c", found[0].id, content="y"))
    same = store.update_message("c", found[0].id, metadata={"a": 1})
    await counter.of("update_message, the same text", same)
    await counter.of("add_summary", store.add_summary("c", "text", from_seq=1, to_seq=2))
    await counter.of("list_summaries", store.list_summaries("c"))
    await counter.of("branch", store.branch("c", branch_id="side", activate=False))
    await counter.of("branch at", store.branch("c", branch_id="early", activate=False, at=found[3].id))
    await counter.of("append to a second branch", store.append_message("c", "user", "x", branch="side"))
    await counter.of("list_branches", store.list_branches("c"))
    await store.replace_messages("d", [Message("user", "1")])
    more = [Message("user", "1"), Message("user", "2")]
    await counter.of("replace_messages, more", store.replace_messages("d", more))
    others = [Message("user", "1"), Message("user", "3")]
    await counter.of("replace_messages, others", store.replace_messages("d", others))


async def _list(store: hansard.Store, counter: Counter) -> None:
    await counter.of("list_conversations", store.list_conversations())
    ann = store.user("ann")
    page = await counter.of("list_conversations of a user", ann.list_conversations())
    assert [each.id for each in page.items] == ["c"]
    await counter.of("list_conversations of a user, by metadata", ann.list_conversations(metadata={"a": 1}))
    assert not (await store.user("bob").list_conversations()).items
    await ann.add_member("c", "bob")
    bob = store.user("bob")
    page = await counter.of("list_conversations of a member", bob.list_conversations())
    assert [each.id for each in page.items] == ["c"]
    await ann.remove_member("c", "bob")


async def _remove(store: hansard.Store, counter: Counter) -> None:
    await counter.of("delete_branch", store.delete_branch("c", "side"))
    await counter.of("clear_messages", store.clear_messages("c"))
    await counter.of("delete_conversation", store.delete_conversation("c"))
    first, *_ = (await store.append("c", [Message("user", "x") for _ in range(3)])).messages
    await counter.of("delete_messages", store.delete_messages("c", [first.id]))
    await counter.of("pop_message", store.pop_message("c"))
