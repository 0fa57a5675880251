"""Exact copies: `read_image`, `read_rows` and `restore`, in pieces, and again after an interruption."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from hansard import codec
from hansard.contract.types import Context, Draft, Image, Restore, RestoredRow, Row
from hansard.errors import Conflict
from hansard.model import NOT_YET, Message, Participant, Usage
from hansard.testing.comparison import conversation_state, facts, state
from hansard.testing.contract.base import HOUR, Contract, assert_exact, history, require, say
from hansard.testing.contract.blobs import data, picture
from hansard.testing.targets import Driver

BIG = 1 << 40


def restored(row: Row) -> RestoredRow:
    message = row.message
    body = message.content if message.format == "text" else codec.encode(message.content)
    return RestoredRow(row.segment, Draft(message, body, len(body.encode()), given_id=True))


def image_of(store: Driver, id: str = "c") -> Image:
    image = store.run(store.backend.read_image(store.context(), id))
    assert image is not None
    return image


def rows_of(store: Driver, *, after: int = 0, limit: int = 1000, max_bytes: int = BIG) -> list[Row]:
    return store.run(store.backend.read_rows(store.context(), "c", after, limit, max_bytes))


def put(view: Driver, image: Image, rows: Sequence[Row], blobs: dict[str, bytes], *, done: bool = False) -> int:
    restore = Restore(image, tuple(map(restored, rows)), blobs, done)
    return view.run(view.backend.restore(view.context(), restore))


class TestCopying(Contract):
    def fill(self, store: Driver) -> None:
        messages = say(store, "c", "a", picture(1), {"b": 1}, user_id="u", agent_id="g", title="T", metadata={"k": 1})
        store.update_message("c", messages[0].id, content="edited")
        if store.capabilities.branches:
            store.branch("c", at=messages[1].id, branch_id="side")
            full = Message("user", "s", participant=Participant("user", "p"), pinned=True, usage=Usage(3))
            store.append("c", full)
            say(store, "c", "m", branch="main")
        store.delete_message("c", messages[2].id)
        store.update_conversation("c", archived=True)

    def blobs(self, store: Driver) -> dict[str, bytes]:
        digests = [ref.sha256 for row in rows_of(store) for ref in row.message.blobs]
        return store.run(store.backend.get_blobs(store.context(), digests))

    def shown(self, store: Driver) -> Any:
        return facts(conversation_state(store, "c"))

    def test_clearing_resets_a_main_branch_made_from_another(self, store: Driver) -> None:
        """Only a copy can have such a branch. Clearing leaves one without a parent, as old as its conversation."""
        require(store, "branches")
        say(store, "c", "a", "b")
        image = image_of(store)
        began = image.conversation.created_at
        (own,) = image.branches
        path = ((own.segment + 1, 1),)
        main = structs.replace(own, parent="draft", from_seq=1, created_at=began + HOUR, path=path)
        draft = structs.replace(own, id="draft", segment=own.segment + 1)
        view = store.tenant("copy")
        put(view, structs.replace(image, branches=(draft, main)), rows_of(store)[1:], {}, done=True)
        before = {each.id: (each.parent, each.from_seq, each.created_at) for each in view.list_branches("c")}
        assert before == {"draft": (None, None, began), "main": ("draft", 1, began + HOUR)}
        view.clear_messages("c")
        (left,) = view.list_branches("c")
        assert (left.id, left.parent, left.from_seq, left.created_at) == ("main", None, None, began)

    def test_a_copy_in_one_piece_is_exact(self, store: Driver) -> None:
        self.fill(store)
        copy = store.tenant("copy")
        image, rows = image_of(store), rows_of(store)
        assert put(copy, image, rows, self.blobs(store), done=True) == image.seq
        assert self.shown(copy) == self.shown(store)
        assert_exact(copy, "c")
        assert say(copy, "c", "next")[0].seq > image.seq, "seq continues"

    def test_counts_are_exact_after_each_piece_of_a_copy(self, store: Driver) -> None:
        self.fill(store)
        copy = store.tenant("copy")
        image, blobs = image_of(store), self.blobs(store)
        seq = 0
        while rows := rows_of(store, after=seq, limit=1):
            assert len(rows) == 1
            seq = put(copy, image, rows, blobs)
            assert seq == rows[-1].message.seq
            assert_exact(copy, "c")
        put(copy, image, (), {}, done=True)
        assert self.shown(copy) == self.shown(store)

    def test_restoring_a_piece_again_changes_nothing(self, store: Driver) -> None:
        self.fill(store)
        copy = store.tenant("copy")
        image, rows, blobs = image_of(store), rows_of(store), self.blobs(store)
        put(copy, image, rows[:2], blobs)
        put(copy, image, rows[:2], blobs)
        put(copy, image, rows, blobs, done=True)
        assert self.shown(copy) == self.shown(store)
        assert_exact(copy, "c")

    def test_a_change_during_a_copy_is_kept_with_its_own_version(self, store: Driver) -> None:
        # Catches a version that is used for two states: a caller with the first would take it for the newest.
        require(store, "our ids")
        messages = say(store, "c", "a", "b")
        copy = store.tenant("copy")
        image = image_of(store)
        put(copy, image, rows_of(store), {})
        assert [message.content for message in copy.get_messages("c", last=5)] == ["a", "b"]
        copy.update_message("c", messages[1].id, content="changed")
        changed = copy.get_conversation("c")
        put(copy, image, (), {}, done=True)
        assert [message.content for message in copy.get_messages("c", last=5)] == ["a", "changed"]
        after = copy.get_conversation("c")
        assert changed is not None
        assert after is not None
        assert after.version >= changed.version > image.conversation.version

    def test_a_tombstone_does_not_stop_a_copy(self, store: Driver) -> None:
        require(store, "our ids")
        self.fill(store)
        copy = store.tenant("copy")
        image, rows, blobs = image_of(store), rows_of(store), self.blobs(store)
        put(copy, image, rows, blobs, done=True)
        copy.delete_message("c", rows[0].message.id)
        copy.delete_conversation("c")
        put(copy, image, rows, blobs, done=True)
        assert self.shown(copy) == self.shown(store)

    @pytest.mark.parametrize("before", [0, 1, 2])
    def test_a_piece_with_a_repeated_id_is_refused_as_a_whole(self, store: Driver, before: int) -> None:
        # Catches a backend that overwrites one message with another, or stores half a piece.
        require(store, "our ids")
        say(store, "c", "a", picture(1), "b", picture(2))
        image, rows, blobs = image_of(store), rows_of(store), self.blobs(store)
        last = structs.replace(rows[3], message=structs.replace(rows[3].message, id=rows[1].message.id))
        copy = store.tenant("copy")
        if before:
            put(copy, image, rows[:before], blobs)
        stored = state(copy)
        with pytest.raises(Conflict, match=f"{rows[1].message.id!r} occurs twice"):
            put(copy, image, [*rows[before:3], last], blobs, done=True)
        assert state(copy) == stored
        assert copy.check() == []
        put(copy, image, rows, blobs, done=True)
        assert self.shown(copy) == self.shown(store)

    def test_seq_continues_from_the_original_after_a_copy(self, store: Driver) -> None:
        # Catches a copy that counts from the last remaining message.
        last = say(store, "c", "a", "b", "c")[-1].seq
        store.pop_message("c")
        copy = store.tenant("copy")
        assert put(copy, image_of(store), rows_of(store), {}, done=True) == last
        assert say(copy, "c", "next")[0].seq > last

    def test_an_empty_conversation_is_copied(self, store: Driver) -> None:
        store.create_conversation("c", title="T")
        copy = store.tenant("copy")
        put(copy, image_of(store), (), {}, done=True)
        assert self.shown(copy) == self.shown(store)

    def test_rows_are_read_in_the_order_of_seq(self, store: Driver) -> None:
        require(store, "branches")
        first = say(store, "c", "a", "b")[0]
        for number in range(4):
            store.branch("c", at=first.id, branch_id=f"b{number}")
            say(store, "c", f"s{number}")
            say(store, "c", f"m{number}", branch="main")
        rows = rows_of(store)
        seqs = [row.message.seq for row in rows]
        assert seqs == sorted(set(seqs))
        assert len(rows) == 10
        assert [row.message.seq for row in rows_of(store, after=seqs[3], limit=2)] == seqs[4:6]
        assert rows_of(store, after=seqs[-1]) == []
        segments_of = {branch.id: branch.segment for branch in image_of(store).branches}
        assert all(row.segment == segments_of[row.message.branch] for row in rows)

    def test_rows_are_bounded_in_bytes(self, store: Driver) -> None:
        say(store, "c", *("x" * 400 for _ in range(10)))
        assert len(rows_of(store, max_bytes=1000)) == 3
        assert len(rows_of(store, max_bytes=1)) == 1, "at least one"

    def test_a_missing_conversation_has_no_image_and_no_rows(self, store: Driver) -> None:
        assert store.run(store.backend.read_image(store.context(), "missing")) is None
        assert store.run(store.backend.read_rows(store.context(), "missing", 0, 10, BIG)) == []

    def test_an_image_has_the_conversation_and_its_branches(self, store: Driver) -> None:
        self.fill(store)
        image = image_of(store)
        assert facts(image.conversation) == facts(store.get_conversation("c"))
        branches = store.list_branches("c")
        assert [
            (
                stored_branch.id,
                stored_branch.count,
                stored_branch.parent,
                stored_branch.from_seq,
                stored_branch.created_at,
            )
            for stored_branch in image.branches
        ] == [
            (branch.id, branch.message_count, branch.parent, branch.from_seq, branch.created_at) for branch in branches
        ]

    def test_record_owners_lists_users_with_records(self, store: Driver) -> None:
        require(store, "records")
        for user in ("v", "u"):
            store.user(user).records.put(["n"], "k", 1)
        store.records.put(["n"], "k", 1)
        assert store.run(store.backend.record_owners(store.context())) == ["u", "v"]
        assert store.run(store.backend.record_owners(store.tenant("other").context())) == []

    def test_participations_are_bounded(self, store: Driver) -> None:
        ada, agent = Participant("user", "ada"), Participant("agent", "ada")
        for conversation in ("c", "d"):
            store.append(conversation, [Message("user", n, participant=(ada, agent)[n % 2]) for n in range(8)])
        context = Context("default", store.context().now)
        found = store.run(store.backend.participations(context, "ada", 100))
        assert sorted((each.conversation_id, len(each.message_ids)) for each in found) == [("c", 4), ("d", 4)]
        assert sum(len(each.message_ids) for each in store.run(store.backend.participations(context, "ada", 5))) == 5
        assert store.run(store.backend.participations(context, "unknown", 5)) == []

    def test_find_messages_returns_the_order_asked_for(self, store: Driver) -> None:
        ids = [message.id for message in say(store, "c", *range(4))]

        def found(*wanted: str) -> list[Any]:
            return [each.content for each in store.run(store.backend.find_messages(store.context(), "c", wanted))]

        assert found(ids[3], "missing", ids[0], ids[2]) == [3, 0, 2]
        assert found() == []
        assert store.run(store.backend.find_messages(store.context(), "missing", ids)) == []

    def test_changing_a_read_image_changes_nothing_stored(self, store: Driver) -> None:
        self.fill(store)
        before = state(store)
        rows = rows_of(store)
        image_of(store).conversation.metadata["x"] = 1
        for row in rows:
            assert row.message.created_at is not NOT_YET
            if isinstance(row.message.content, dict | list):
                row.message.content.clear()
        assert state(store) == before
        assert history(store, "c", branch="main")[1] == picture(1)
        if store.capabilities.blobs:
            assert next(iter(self.blobs(store).values())) == data(1)
        assert structs.asdict(rows[0].message)["conversation_id"] == "c"
