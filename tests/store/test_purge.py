"""A purge lists and then deletes; other writers may write in between."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from hansard import sync
from hansard.backends.memory import MemoryBackend
from hansard.contract.types import Context, ConversationQuery
from hansard.model import Conversation, Receipt
from hansard.store import Store
from hansard.testing import Clock, Driver, Target

DAY = timedelta(days=1)


class Interrupted(MemoryBackend):
    """Another writer acts just after conversations were listed."""

    meanwhile: Callable[[Store], Awaitable[Any]] | None = None

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        found = await super().list_conversations(context, query)
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act(Store(self, clock=lambda: context.now))
        return found


@pytest.fixture
def backend() -> Interrupted:
    return Interrupted()


@pytest.fixture
def store(backend: Interrupted) -> Iterator[Driver]:
    """A store with three old conversations."""

    async def give(blocking: bool) -> Interrupted:
        return backend

    target, clock = Target(give), Clock()
    opened = target.open(clock=clock)
    for id in ("a", "b", "c"):
        opened.append_message(id, "user", "old")
    clock.advance(2 * DAY)
    yield opened
    target.close()


async def _delete_and_create(other: Store) -> None:
    await other.delete_conversation("b")
    await other.append_message("b", "user", "new")


ACTS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "a message": lambda other: other.append_message("b", "user", "new"),
    "a title": lambda other: other.update_conversation("b", title="kept"),
    "a new beginning": _delete_and_create,
}


@pytest.mark.parametrize("act", ACTS)
def test_a_conversation_that_is_used_meanwhile_stays(store: Driver, backend: Interrupted, act: str) -> None:
    backend.meanwhile = ACTS[act]
    receipt = store.purge(DAY)
    assert (receipt.conversations, receipt.messages) == (2, 2)
    assert [each.id for each in store.list_conversations().items] == ["b"]


def test_a_conversation_that_is_deleted_meanwhile_is_not_counted(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_conversation("b")
    assert store.purge(DAY).conversations == 2
    assert store.list_conversations().items == []


class Late(MemoryBackend):
    """Another writer acts just before a deletion."""

    meanwhile: Callable[[Store], Awaitable[Any]] | None = None

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act(Store(self, clock=lambda: context.now))
        return await super().delete_conversation(context, id, expected_version)


def test_a_message_of_the_last_moment_is_not_lost() -> None:
    backend, clock = Late(), Clock()
    with sync.Store.over(backend, clock=clock) as store:
        for id in ("a", "b"):
            store.append_message(id, "user", "old")
        clock.advance(2 * DAY)
        backend.meanwhile = ACTS["a message"]
        # While `a` is deleted, another writer writes to `b`.
        assert store.purge(DAY).conversations == 1
        assert [each.id for each in store.list_conversations().items] == ["b"]
        clock.advance(2 * DAY)
        backend.meanwhile = ACTS["a title"]
        assert store.purge(DAY).conversations == 0
        assert [each.id for each in store.list_conversations().items] == ["b"]
