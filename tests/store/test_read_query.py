"""Messages and then their blobs are read; other writers may write in between."""

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
    """Another writer acts just before the blobs are read."""

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


def test_a_message_that_is_deleted_during_a_read_is_left_out(store: Driver, backend: Interrupted) -> None:
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
def test_a_page_whose_messages_are_all_deleted_during_the_read_is_read_again(
    store: Driver, backend: Interrupted, options: dict[str, Any], expected: list[str]
) -> None:
    if "after" not in options and "before" not in options:
        store.delete_message("c", "z")
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    page = store.get_messages("c", **options)
    assert ids(page) == expected
    assert not page.has_more


def test_a_filter_may_leave_no_message_of_a_turn(store: Driver) -> None:
    # Catches a read that continues with older turns because nothing was found.
    page = store.get_messages("c", turns=1, roles=["tool"])
    assert ids(page) == []
    assert page.has_more


def test_get_message_of_a_message_deleted_during_the_read_is_not_found(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_conversation("c")
    with pytest.raises(MessageNotFound):
        store.get_message("c", "p")


def test_a_message_that_is_updated_during_a_read_is_returned_updated(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.update_message("c", "p", content=picture(2))
    assert store.get_message("c", "p").content == picture(2)
    backend.meanwhile = lambda other: other.update_message("c", "p", content="plain")
    assert [message.content for message in store.iter_messages("c")] == ["a", "plain", "z"]


def test_an_append_of_a_stored_id_returns_it_though_it_is_deleted_meanwhile(
    store: Driver, backend: Interrupted
) -> None:
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    assert ids(store.append("c", Message("user", "other", id="p")).messages) == ["p"]


def test_an_update_returns_its_message_though_it_is_deleted_meanwhile(store: Driver, backend: Interrupted) -> None:
    backend.meanwhile = lambda other: other.delete_message("c", "p")
    assert store.update_message("c", "p", pinned=True).pinned


def test_a_missing_blob_is_corruption(store: Driver, backend: Interrupted) -> None:
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
