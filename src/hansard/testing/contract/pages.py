"""Promise 8: reading is bounded. Pages in both directions, by message id and by cursor, while messages are deleted."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from hansard.errors import MessageNotFound, NotFound, ValidationError
from hansard.limits import Limits
from hansard.model import Message, Messages, Order
from hansard.testing.contract.base import Contract, contents, history, require, rows, say
from hansard.testing.contract.blobs import picture
from hansard.testing.targets import Driver

Place = Callable[[Message], str]
PLACES: dict[str, Place] = {"id": lambda message: message.id, "cursor": lambda message: message.cursor}
ORDERS: tuple[Order, ...] = ("asc", "desc")


def fill(store: Driver, count: int, conversation: str = "c") -> list[Message]:
    return say(store, conversation, *range(count))


def forwards(store: Driver, order: Order, place: Place, limit: int) -> list[Messages]:
    pages = [store.get_messages("c", order=order, limit=limit)]
    while pages[-1].has_more:
        pages.append(store.get_messages("c", order=order, limit=limit, after=place(pages[-1][-1])))
    return pages


def backwards(store: Driver, order: Order, place: Place, last: Message, limit: int) -> list[Messages]:
    """Returns the pages before `last`, nearest first; each in `order`."""
    pages = [store.get_messages("c", order=order, limit=limit, before=place(last))]
    while pages[-1].has_more:
        pages.append(store.get_messages("c", order=order, limit=limit, before=place(pages[-1][0])))
    return pages


class TestPaging(Contract):
    def test_a_page_has_20_messages_by_default(self, store: Driver) -> None:
        fill(store, 23)
        page = store.get_messages("c")
        assert contents(page) == list(range(20))
        assert page.has_more

    @rows(("order", "place", "limit"), itertools.product(ORDERS, PLACES.values(), [1, 3, 5, 100]))
    def test_pages_forwards_are_complete_and_never_empty(
        self, store: Driver, order: Order, place: Place, limit: int
    ) -> None:
        fill(store, 10)
        pages = forwards(store, order, place, limit)
        numbers = list(range(10)) if order == "asc" else list(range(9, -1, -1))
        assert [number for page in pages for number in contents(page)] == numbers
        # An empty last page would mean that `has_more` only guessed.
        assert [len(page) for page in pages] == [min(limit, 10 - done) for done in range(0, 10, limit)]

    @rows(("order", "place"), itertools.product(ORDERS, PLACES.values()))
    def test_pages_backwards_are_complete(self, store: Driver, order: Order, place: Place) -> None:
        messages = fill(store, 10)
        last = messages[-1] if order == "asc" else messages[0]
        pages = backwards(store, order, place, last, 4)
        assert [contents(page) for page in pages] == (
            [[5, 6, 7, 8], [1, 2, 3, 4], [0]] if order == "asc" else [[4, 3, 2, 1], [8, 7, 6, 5], [9]]
        )

    @pytest.mark.parametrize("order", ORDERS)
    def test_deletions_between_pages_skip_and_repeat_nothing(self, store: Driver, order: Order) -> None:
        # Catches paging by offset: every deletion would shift the messages after it.
        messages = fill(store, 12)
        first = store.get_messages("c", order=order, limit=4)
        cursor = first[-1].cursor
        store.delete_messages("c", [first[0].id, first[-1].id, messages[6].id])
        rest = store.get_messages("c", order=order, limit=100, after=cursor)
        expected = [number for number in range(12) if number not in (*contents(first), 6)]
        assert contents(rest) == (expected if order == "asc" else expected[::-1])

    def test_a_cursor_outlives_its_message(self, store: Driver) -> None:
        messages = fill(store, 3)
        cursor = messages[1].cursor
        store.delete_message("c", messages[1].id)
        assert contents(store.get_messages("c", after=cursor)) == [2]
        assert contents(store.get_messages("c", before=cursor)) == [0]
        store.clear_messages("c")
        assert store.get_messages("c", after=cursor) == []
        say(store, "c", "new")
        assert contents(store.get_messages("c", after=cursor)) == ["new"]

    def test_paging_from_a_deleted_id_is_not_found(self, store: Driver) -> None:
        messages = fill(store, 3)
        store.delete_message("c", messages[1].id)
        with pytest.raises(MessageNotFound):
            store.get_messages("c", after=messages[1].id)
        with pytest.raises(MessageNotFound):
            store.get_messages("c", before=messages[1].id)
        with pytest.raises(MessageNotFound):
            store.get_messages("c", after="never there")

    def test_a_cursor_of_another_conversation_is_refused(self, store: Driver) -> None:
        foreign = fill(store, 3, "other")[1].cursor
        fill(store, 3)
        with pytest.raises(ValidationError, match="does not belong"):
            store.get_messages("c", after=foreign)

    @rows("cut", [slice(0, -1), slice(0, -6), slice(0, 9), slice(0, 7)])
    def test_a_damaged_cursor_is_refused(self, store: Driver, cut: slice) -> None:
        cursor = fill(store, 1)[0].cursor[cut]
        with pytest.raises(ValidationError, match="cursor"):
            store.get_messages("c", after=cursor)

    def test_cursors_of_other_listings_are_refused(self, store: Driver) -> None:
        fill(store, 3)
        fill(store, 3, "d")
        listing = store.list_conversations(limit=1).next_cursor
        assert listing is not None
        with pytest.raises(ValidationError, match="cursor"):
            store.get_messages("c", after=listing)
        with pytest.raises(ValidationError, match="cursor"):
            store.list_conversations(after=store.get_messages("c")[0].cursor)
        with pytest.raises(ValidationError, match="cursor"):
            store.list_conversations(after=listing, sort="updated_at")

    @rows("last", [1, 4, 10, 11, 5000])
    def test_last_returns_the_newest_oldest_first(self, store: Driver, last: int) -> None:
        fill(store, 10)
        page = store.get_messages("c", last=last)
        assert contents(page) == list(range(10))[-last:]
        assert page.has_more == (last < 10)

    def test_last_may_exceed_a_page(self, store: Driver) -> None:
        fill(store, 150)
        assert contents(store.get_messages("c", last=130)) == list(range(20, 150))

    def test_iterating_reads_every_message_once(self, store: Driver) -> None:
        messages = fill(store, 230)
        assert history(store, "c") == list(range(230))
        assert history(store, "c", order="desc") == list(range(229, -1, -1))
        assert history(store, "c", after=messages[99].id) == list(range(100, 230))
        assert history(store, "c", order="desc", after=messages[99].cursor) == list(range(98, -1, -1))

    def test_pages_are_bounded_in_bytes(self, store: Driver) -> None:
        small = store.again(limits=Limits(page_bytes=1000))
        texts = [f"{number} {'x' * 300}" for number in range(9)] + ["y " * 2500, "end"]
        say(small, "c", *texts)
        pages = forwards(small, "asc", PLACES["cursor"], 100)
        assert [text for page in pages for text in contents(page)] == texts
        # A page ends with the message that exceeds the limit; a message larger than a page is a page of its own.
        assert [len(page) for page in pages] == [4, 4, 2, 1]
        assert history(small, "c") == texts
        newest = small.get_messages("c", last=5)
        assert contents(newest) == texts[-2:]
        assert newest.has_more

    def test_blobs_count_in_full_towards_the_bytes_of_a_page(self, store: Driver) -> None:
        # Catches a limit on the size of the rows, which do not contain the blobs.
        require(store, "blobs")
        small = store.again(limits=Limits(page_bytes=20_000))
        say(small, "c", *(picture(number) for number in range(7)))
        assert [len(page) for page in forwards(small, "asc", PLACES["cursor"], 100)] == [3, 3, 1]
        assert len(small.get_messages("c", last=7)) == 3

    def test_a_missing_conversation_reads_as_empty(self, store: Driver) -> None:
        page = store.get_messages("missing")
        assert page == []
        assert not page.has_more
        assert store.get_messages("missing", last=3) == []
        assert store.get_messages("missing", turns=3) == []
        assert history(store, "missing") == []
        assert store.get_conversation("missing") is None
        fill(store, 1)
        with pytest.raises(NotFound):
            store.get_messages("c", branch="missing")
        with pytest.raises(MessageNotFound):
            store.get_message("c", "missing")
        with pytest.raises(MessageNotFound):
            store.get_message("missing", "missing")

    def test_get_message_finds_a_message_of_any_branch(self, store: Driver) -> None:
        require(store, "branches")
        first, second = fill(store, 2)
        store.branch("c", at=first.id)
        assert history(store, "c") == [0]
        assert store.get_message("c", second.id).content == 1
        assert contents(store.get_messages("c", before=second.id)) == [0]
