"""Messages and their blobs are read one after the other; others may write between the two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from hansard.backends.memory import MemoryBackend
from hansard.contract.types import Context
from hansard.errors import Corrupt, MessageNotFound
from hansard.model import Message
from hansard.store import Store
from hansard.testing import Driver, Target
from hansard.testing.contract.blobs import picture


class Interrupted(MemoryBackend):
    """Somebody else does something just before the blobs are read."""

    meanwhile: Callable[[Store], Awaitable[Any]] | None = None

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act(Store(self))
        return await super().get_blobs(context, digests)


@pytest.fixture
def backend() -> Interrupted:
    return Interrupted()


@pytest.fixture
def store(backend: Interrupted) -> Iterator[Driver]:
    async def give(blocking: bool) -> Interrupted:
        return backend

    target = Target(give)
    opened = target.open()
    opened.append(
        "c", [Message("user", "a", id="a"), Message("user", picture(1), id="p"), Message("user", "z", id="z")]
    )
    yield opened
    target.close()


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.id for message in messages]


def test_a_message_that_is_deleted_meanwhile_is_not_there(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    assert ids(store.get_messages("c")) == ["a", "z"]
    assert ids(store.get_messages("c")) == ["a", "z"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"limit": 1, "after": "a"}, ["z"]),
        ({"limit": 1, "order": "desc", "after": "z"}, ["a"]),
        ({"limit": 1, "before": "z"}, ["a"]),
        ({"last": 1}, ["a"]),
        ({"turns": 1}, ["a"]),
    ],
    ids=str,
)
def test_a_page_of_which_all_is_deleted_meanwhile_is_not_empty(
    store: Driver, backend: Interrupted, options: dict[str, Any], expected: list[str]
) -> None:
    if "after" not in options and "before" not in options:
        store.delete_message("c", "z")
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    page = store.get_messages("c", **options)
    assert ids(page) == expected
    assert not page.has_more


def test_a_turn_of_which_a_filter_leaves_nothing(store: Driver) -> None:
    # Catches a read that goes on because nothing was found.
    page = store.get_messages("c", turns=1, roles=["tool"])
    assert ids(page) == []
    assert page.has_more


def test_one_message_that_is_deleted_meanwhile(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_conversation("c")
    with pytest.raises(MessageNotFound):
        store.get_message("c", "p")


def test_a_message_that_is_changed_meanwhile(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.update_message("c", "p", content=picture(2))
    assert store.get_message("c", "p").content == picture(2)
    backend.meanwhile = lambda other: other.update_message("c", "p", content="plain")
    assert [message.content for message in store.iter_messages("c")] == ["a", "plain", "z"]


def test_a_known_message_that_is_deleted_meanwhile(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    assert ids(store.append("c", Message("user", "other", id="p")).messages) == ["p"]


def test_a_changed_message_that_is_deleted_meanwhile(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    assert store.update_message("c", "p", pinned=True).pinned


def test_a_blob_that_is_lost_is_corruption(store: Driver, backend: Interrupted) -> None:
    backend.storage.tenants["default"].blobs.clear()
    for read in (
        lambda: store.get_messages("c"),
        lambda: store.get_message("c", "p"),
        lambda: list(store.iter_messages("c")),
    ):
        with pytest.raises(Corrupt, match="of message 'p' of conversation 'c' is missing") as refused:
            read()
        assert refused.value.where == "message 'p' of conversation 'c'"
    assert ids(store.get_messages("c", blobs="refs")) == ["a", "p", "z"]
