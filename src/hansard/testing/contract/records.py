"""Records: documents outside the messages, with compare-and-swap, expiry and ordered scans."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from hansard.contract.types import RecordQuery
from hansard.errors import Conflict, ConversationNotFound, Unsupported, ValidationError
from hansard.model import Message, Order, Record
from hansard.store import Delete, Put
from hansard.testing.clock import Clock
from hansard.testing.comparison import facts
from hansard.testing.contract.base import HOUR, Contract, history, races, require, rows, say
from hansard.testing.targets import Driver, Target

VALUES: list[Any] = [
    None,
    True,
    0,
    -1.5,
    10**40,
    "",
    "nul \0 emoji 😀",
    [],
    {},
    {"b": [1, {"a": None}], "a": 1},
    b"",
    b"bytes \0 \xff",
    bytes(range(256)) * 100,
]


def names(records: list[Record]) -> list[str]:
    return ["/".join((*record.namespace, record.key)) for record in records]


class TestRecords(Contract):
    needs = ("records",)

    @rows("value", VALUES)
    def test_every_kind_of_value_is_read_as_written(self, store: Driver, value: Any) -> None:
        written = store.records.put(["a", "b"], "k", value)
        read = store.records.get(["a", "b"], "k")
        assert facts(read) == facts(written)
        assert facts(written.value) == facts(value)
        assert type(written.value) is type(value)
        assert (written.namespace, written.key, written.revision) == (("a", "b"), "k", 1)
        assert facts(store.records.scan().items) == facts([read])

    def test_writing_again_raises_the_revision_and_keeps_created_at(self, store: Driver, clock: Clock) -> None:
        first = store.records.put(["n"], "k", 1)
        clock.advance(HOUR)
        second = store.records.put(["n"], "k", b"other")
        assert (second.revision, second.value) == (2, b"other")
        assert second.created_at == first.created_at
        assert second.updated_at > first.updated_at
        assert facts(store.records.get(["n"], "k")) == facts(second)

    def test_an_unexpected_revision_is_a_conflict(self, store: Driver) -> None:
        store.records.put(["n"], "k", 1, expected_revision=0)
        for expected in (0, 2):
            with pytest.raises(Conflict) as refused:
                store.records.put(["n"], "k", 2, expected_revision=expected)
            assert (refused.value.expected, refused.value.actual) == (expected, 1)
        with pytest.raises(Conflict):
            store.records.put(["n"], "missing", 2, expected_revision=1)
        assert store.records.put(["n"], "k", 2, expected_revision=1).revision == 2
        with pytest.raises(Conflict):
            store.records.delete(["n"], "k", expected_revision=1)
        assert store.records.delete(["n"], "k", expected_revision=2)
        assert store.records.put(["n"], "k", 3, expected_revision=0).revision == 1

    @races
    def test_only_one_concurrent_compare_and_swap_wins(self, store: Driver) -> None:
        calls = [
            lambda each, number=number: each.records.put(["n"], "k", number, expected_revision=0) for number in range(8)
        ]
        results = store.together(calls)
        assert sum(isinstance(result, Conflict) for result in results) == 7

    def test_a_deleted_record_is_not_found(self, store: Driver) -> None:
        store.records.put(["n"], "k", 1)
        assert store.records.delete(["n"], "k")
        assert not store.records.delete(["n"], "k")
        assert store.records.get(["n"], "k") is None
        assert store.records.scan().items == []

    def test_a_batch_is_all_or_nothing(self, store: Driver) -> None:
        store.records.put(["n"], "taken", 1)
        wrong: list[Put | Delete] = [Put(["n"], "taken", 2, expected_revision=0), Delete(["n"], "other", 3)]
        for bad in wrong:
            with pytest.raises(Conflict):
                store.records.write([Put(["n"], "new", 1), bad, Delete(["n"], "taken")])
        with pytest.raises(ConversationNotFound):
            store.records.write([Put(["n"], "new", 1), Put(["n"], "of", 1, conversation_id="missing")])
        with pytest.raises(ValidationError):
            store.records.write([Put(["n"], "new", 1), Put(["n"], "", 1)])
        assert names(store.records.scan().items) == ["n/taken"]

    def test_a_batch_is_applied_in_order(self, store: Driver) -> None:
        store.records.put(["n"], "b", "old")
        batch: list[Put | Delete] = [
            Put(["n"], "a", 1),
            Delete(["n"], "b"),
            Put(["m"], "c", b"x"),
            Delete(["n"], "missing"),
        ]
        written = store.records.write(batch)
        assert [record and record.value for record in written] == [1, "old", b"x", None]
        assert names(store.records.scan().items) == ["m/c", "n/a"]
        # Later writes of a batch see earlier ones.
        batch = [Put(["n"], "x", 1, expected_revision=0), Put(["n"], "x", 2, expected_revision=1), Delete(["n"], "a")]
        assert [record and record.revision for record in store.records.write(batch)] == [1, 2, 1]
        assert store.records.write([]) == []

    def test_get_many_answers_in_the_order_asked(self, store: Driver) -> None:
        store.records.put(["n"], "a", 1)
        store.records.put(["m"], "b", 2)
        found = store.records.get_many([(["m"], "b"), (["n"], "missing"), (["n"], "a"), (["m"], "b")])
        assert [record and record.value for record in found] == [2, None, 1, 2]
        assert store.records.get_many([]) == []

    def test_an_expired_record_is_invisible_and_purged(self, store: Driver, clock: Clock) -> None:
        clock.stop()
        store.records.put(["n"], "age", 1, expires_at=HOUR)
        store.records.put(["n"], "time", 1, expires_at=clock.now + HOUR)
        store.records.put(["n"], "stays", 1)
        clock.advance(HOUR - timedelta(microseconds=1))
        assert len(store.records.scan().items) == 3
        clock.advance(timedelta(microseconds=1))
        assert names(store.records.scan().items) == ["n/stays"]
        assert store.records.get(["n"], "age") is None
        assert store.records.put(["n"], "time", 2, expected_revision=0).revision == 1, (
            "an expired record counts as missing"
        )
        assert store.purge().records == 1
        assert not store.records.delete(["n"], "age")
        assert names(store.records.scan().items) == ["n/stays", "n/time"]
        written = store.records.get(["n"], "time")
        assert written is not None
        assert written.expires_at is None

    def test_deleting_a_conversation_deletes_its_records(self, store: Driver) -> None:
        say(store, "c", "x")
        record = store.records.put(["n"], "k", 1, conversation_id="c")
        assert record.conversation_id == "c"
        with pytest.raises(ConversationNotFound):
            store.records.put(["n"], "l", 1, conversation_id="missing")
        assert store.delete_conversation("c").records == 1
        assert store.records.get(["n"], "k") is None

    @races
    def test_records_go_with_a_conversation_that_is_deleted_while_they_are_put(
        self, target: Target, store: Driver
    ) -> None:
        others = [target.open("blocking") for _ in range(3)] if store.capabilities.shared else [None]

        def put(other: Driver | None, key: str) -> Any:
            return lambda each: (other or each).records.put(["n"], key, 1, conversation_id="c")

        for number in range(8):
            say(store, "c", "x")
            calls = [put(others[at % len(others)], f"{number}.{at}") for at in range(9)]
            calls.insert(number, lambda each: each.delete_conversation("c"))
            results = (others[0] or store).together(calls)
            assert {type(each) for each in results if isinstance(each, BaseException)} <= {ConversationNotFound}
            # Counted before they are looked for: a backend may remove what it finds.
            assert store.stats().records == 0
            assert store.records.scan().items == []

    def test_a_record_rewritten_without_its_conversation_outlives_it(self, store: Driver) -> None:
        say(store, "c", "x")
        store.records.put(["n"], "k", 1, conversation_id="c")
        store.records.put(["n"], "k", 2)
        assert store.delete_conversation("c").records == 0
        assert store.records.get(["n"], "k") is not None

    def test_clearing_messages_keeps_records(self, store: Driver) -> None:
        say(store, "c", "x")
        store.records.put(["n"], "k", 1, conversation_id="c")
        store.clear_messages("c")
        assert store.records.get(["n"], "k") is not None

    def test_each_view_has_its_own_records(self, store: Driver) -> None:
        for number, view in enumerate((store, store.user("u"), store.user("v"), store.tenant("t"))):
            view.records.put(["n"], "k", number)
        found = [view.records.get(["n"], "k") for view in (store, store.user("u"), store.user("v"), store.tenant("t"))]
        assert [record and record.value for record in found] == [0, 1, 2, 3]
        assert [record and record.revision for record in found] == [1, 1, 1, 1]


SCANNED = [
    ((), "", ["a/1", "a/2", "a/b/1", "a/b/c/1", "a!/1", "ab/1", "a\u00e9/1", "b/1"]),
    (("a",), "", ["a/1", "a/2", "a/b/1", "a/b/c/1"]),
    (("a", "b"), "", ["a/b/1", "a/b/c/1"]),
    (("ab",), "", ["ab/1"]),
    (("a",), "2", ["a/2"]),
    (("c",), "", []),
]


class TestScans(Contract):
    needs = ("records",)

    def fill(self, store: Driver) -> None:
        for path in ("b/1", "a/b/c/1", "a\u00e9/1", "a/2", "ab/1", "a/1", "a!/1", "a/b/1"):
            *namespace, key = path.split("/")
            store.records.put(namespace, key, path)

    @rows(("prefix", "key_prefix", "expected"), SCANNED)
    def test_a_scan_matches_whole_namespace_parts_in_order(
        self, store: Driver, prefix: tuple[str, ...], key_prefix: str, expected: list[str]
    ) -> None:
        # Catches a prefix taken as text: ("a",) is no prefix of ("ab",), though "a" is one of "ab".
        self.fill(store)
        assert names(store.records.scan(prefix, key_prefix=key_prefix).items) == expected
        assert names(store.records.scan(prefix, key_prefix=key_prefix, order="desc").items) == expected[::-1]
        assert names(list(store.records.iter(prefix, key_prefix=key_prefix))) == expected

    def test_an_exact_scan_leaves_out_deeper_namespaces(self, store: Driver) -> None:
        self.fill(store)
        assert names(store.records.scan(["a"], exact=True).items) == ["a/1", "a/2"]
        assert names(store.records.scan(["a", "b"], exact=True, order="desc").items) == ["a/b/1"]

    @rows(("order", "limit"), itertools.product(["asc", "desc"], [1, 3, 8]))
    def test_pages_are_complete_while_records_are_deleted(self, store: Driver, order: Order, limit: int) -> None:
        self.fill(store)
        expected = SCANNED[0][2] if order == "asc" else SCANNED[0][2][::-1]
        page = store.records.scan(order=order, limit=limit)
        found = names(page.items)
        while page.next_cursor is not None:
            last = page.items[-1]
            page = store.records.scan(order=order, limit=limit, after=page.next_cursor)
            assert page.items, "a cursor promised more"
            # A cursor stays valid after its record is deleted.
            store.records.delete(last.namespace, last.key)
            found += names(page.items)
        assert found == expected

    def test_a_position_outside_the_prefix_reads_nothing_outside_it(self, store: Driver) -> None:
        # A position has no prefix of its own: the prefix of the query must still limit the scan.
        self.fill(store)

        def scanned(after: str, *, newest_first: bool = False) -> list[str]:
            query = RecordQuery(prefix=("ab",), after=((after,), "1"), newest_first=newest_first)
            return names(store.run(store.backend.scan_records(store.context(), query))[0])

        assert scanned("a") == ["ab/1"]
        assert scanned("b") == []
        assert scanned("b", newest_first=True) == ["ab/1"]
        assert scanned("a", newest_first=True) == []

    def test_a_cursor_of_another_scan_is_refused(self, store: Driver) -> None:
        self.fill(store)
        cursor = store.records.scan(["a"], limit=1).next_cursor
        assert cursor is not None
        others: list[dict[str, Any]] = [
            {},
            {"namespace": ["b"]},
            {"namespace": ["a", "b"]},
            {"namespace": ["a"], "key_prefix": "1"},
            {"namespace": ["a"], "exact": True},
        ]
        for other in others:
            with pytest.raises(ValidationError, match="does not belong to a scan of records"):
                store.records.scan(**other, after=cursor)
        assert names(store.records.scan(["a"], after=cursor, limit=1).items) == ["a/2"]
        assert store.records.scan(["a"], after=cursor, order="desc").items == [], (
            "a cursor may be used in the other direction"
        )

    def test_keys_sort_by_code_point(self, store: Driver) -> None:
        keys = ["a", "B", "10", "9", "ä", "\U0001f600", "\uffff", "z", "Z", " ", "a b", "a%", "a_", "a\\"]
        for key in keys:
            store.records.put(["n"], key, key)
        assert [record.key for record in store.records.iter(["n"])] == sorted(keys)
        for prefix in ("a", "a%", "a_", "\uffff", "\U0001f600", "ä"):
            found = [record.key for record in store.records.iter(["n"], key_prefix=prefix)]
            assert found == sorted(key for key in keys if key.startswith(prefix))

    def test_long_scans_are_complete(self, store: Driver) -> None:
        store.records.write([Put(["n"], f"{number:04}", number) for number in range(250)])
        assert [record.value for record in store.records.iter(["n"])] == list(range(250))
        assert [record.value for record in store.records.iter(["n"], order="desc")] == list(range(249, -1, -1))
        page = store.records.scan(["n"])
        assert len(page.items) == 100

    def test_a_scan_shows_no_other_view(self, store: Driver) -> None:
        require(store, "records")
        self.fill(store.user("u"))
        self.fill(store.tenant("t"))
        assert store.records.scan().items == []
        assert len(store.user("u").records.scan().items) == 8


class TestAppendRecords(Contract):
    """Records that are derived from messages commit with them: neither is ever visible without the other."""

    needs = ("records",)

    def test_records_are_stored_with_the_messages(self, store: Driver) -> None:
        require(store, "append_records")
        ann = store.user("ann")
        for view in (store, ann):
            own, free = Put(["n"], "own", {"at": 1}, conversation_id="c"), Put(["n"], "free", b"\0\xff")
            assert view.append("c", [Message("user", "a"), Message("user", "b")], records=[own, free]).created
            found = view.records.get_many([(["n"], "own"), (["n"], "free"), (["n"], "other")])
            assert [each and (each.value, each.revision, each.conversation_id) for each in found] == [
                ({"at": 1}, 1, "c"),
                (b"\0\xff", 1, None),
                None,
            ]
            view.append("c", Message("user", "c"), records=[Put(["n"], "own", 2, 1), Delete(["n"], "free")])
            assert names(view.records.scan().items) == ["n/own"]
            assert history(view, "c") == ["a", "b", "c"]
            assert view.delete_conversation("c").messages == 3
        assert store.check() == []

    def test_a_refused_append_stores_neither_messages_nor_records(self, store: Driver) -> None:
        require(store, "append_records", "compare_and_swap")
        store.append("c", Message("user", "a"), records=[Put(["n"], "k", 1)])
        good = Put(["n"], "new", 1)
        with pytest.raises(Conflict):
            store.append("c", Message("user", "b"), records=[good, Put(["n"], "k", 2, expected_revision=7)])
        with pytest.raises(Conflict):
            store.append("d", Message("user", "b"), records=[good, Put(["n"], "k", 2, expected_revision=0)])
        with pytest.raises(Conflict):
            store.append("c", Message("user", "b"), expected_version=9, records=[good])
        with pytest.raises(ConversationNotFound):
            store.append("d", Message("user", "b"), create=False, records=[good])
        with pytest.raises(ValidationError):
            store.append("c", Message("user", "b"), records=[good, Put(["n"], "of", 1, conversation_id="d")])
        with pytest.raises(ValidationError):
            store.append("c", [], records=[good])
        assert history(store, "c") == ["a"]
        assert store.get_conversation("d") is None
        assert facts(store.records.scan().items) == facts([store.records.get(["n"], "k")])

    def test_a_retried_append_writes_its_records_once(self, store: Driver) -> None:
        require(store, "append_records", "our ids", "compare_and_swap")
        message = Message("user", "a", id="a")
        writes: list[Put | Delete] = [Put(["n"], "k", 0), Put(["n"], "k", [1.0], 1), Delete(["n"], "gone")]
        for _ in range(2):
            store.append("c", message, records=writes)
        record = store.records.get(["n"], "k")
        assert record is not None
        assert (record.value, record.revision) == ([1.0], 2)
        # A retry with another record writes the record.
        store.append("c", message, records=[Put(["n"], "k", [1], 2)])
        record = store.records.get(["n"], "k")
        assert record is not None
        assert (record.value, record.revision) == ([1], 3)
        assert history(store, "c") == ["a"]

    def test_deleting_a_conversation_deletes_records_written_by_append(self, store: Driver) -> None:
        require(store, "append_records")
        store.append("c", Message("user", "a"), records=[Put(["n"], "own", 1, conversation_id="c"), Put(["n"], "k", 1)])
        assert store.delete_conversation("c").records == 1
        assert names(store.records.scan().items) == ["n/k"]

    @races
    def test_concurrent_writers_lose_no_message_and_no_record(self, store: Driver) -> None:
        """No writer loses a message or a record to another, whichever conversation and record they share."""
        require(store, "append_records", "compare_and_swap")

        def write(number: int) -> Any:
            def call(each: Any) -> Any:
                return each.append(
                    f"c{number % 2}", Message("user", f"{number}"), records=[Put(["n"], f"k{number % 3}", number)]
                )

            return call

        answers = store.together([write(number) for number in range(12)])
        assert [each for each in answers if isinstance(each, Exception)] == []
        assert sum(len(history(store, f"c{number}")) for number in range(2)) == 12
        found = store.records.get_many([(["n"], f"k{number}") for number in range(3)])
        assert sorted(each.revision for each in found if each) == [4, 4, 4]
        assert store.check() == []

    @races
    def test_only_one_concurrent_append_gets_the_revision(self, store: Driver) -> None:
        require(store, "append_records", "compare_and_swap")
        calls = [
            lambda each, number=number: each.append(
                f"c{number}", Message("user", "x"), records=[Put(["n"], "k", number, expected_revision=0)]
            )
            for number in range(8)
        ]
        answers = store.together(calls)
        won = [number for number, answer in enumerate(answers) if not isinstance(answer, Exception)]
        assert len(won) == 1
        assert all(isinstance(answer, Conflict) for number, answer in enumerate(answers) if number not in won)
        record = store.records.get(["n"], "k")
        assert record is not None
        assert record.value == won[0]
        assert [each.id for each in store.list_conversations().items] == [f"c{won[0]}"]

    def test_a_backend_without_append_records_refuses_and_stores_nothing(self, store: Driver) -> None:
        """Such a backend does not claim `append_records`."""
        if store.capabilities.append_records:
            pytest.skip(f"{store.capabilities.name} writes records and messages in one step")
        with pytest.raises(Unsupported, match=r"records\.write") as raised:
            store.append("c", Message("user", "a"), records=[Put(["n"], "k", 1)])
        assert raised.value.capability == "append_records"
        assert store.get_conversation("c") is None
        assert store.records.scan().items == []
