"""Usage by day, user, agent and model: exact, and kept after the messages are deleted."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from msgspec import structs

from hansard.errors import ValidationError
from hansard.model import Message, Usage, UsageRow
from hansard.testing.contract.base import Contract, require, say
from hansard.testing.targets import Driver


def spent(usage: Usage, day: int = 1) -> Message:
    return Message("assistant", "x", usage=usage, created_at=datetime(2026, 1, day, 23, 59, 59, tzinfo=UTC))


class TestUsage(Contract):
    needs = ("our times",)

    def test_usage_adds_up_by_day_user_agent_and_model(self, store: Driver) -> None:
        usage = Usage(1, 2, 3, 4, 0.5, "m")
        store.append("c", [spent(usage), spent(usage), spent(usage, 2)], user_id="u", agent_id="a")
        store.append("d", [spent(usage), spent(Usage(1, model="n")), Message("user", "free")], user_id="u")
        store.append("e", spent(Usage(7)))
        assert store.usage() == [
            UsageRow("2026-01-01", None, None, None, 1, 7, 0, 0, 0, 0.0),
            UsageRow("2026-01-01", "u", None, "m", 1, 1, 2, 3, 4, 0.5),
            UsageRow("2026-01-01", "u", None, "n", 1, 1, 0, 0, 0, 0.0),
            UsageRow("2026-01-01", "u", "a", "m", 2, 2, 4, 6, 8, 1.0),
            UsageRow("2026-01-02", "u", "a", "m", 1, 1, 2, 3, 4, 0.5),
        ]

    def test_usage_of_a_range_excludes_its_end(self, store: Driver) -> None:
        store.append("c", [spent(Usage(day), day) for day in (1, 2, 3, 4)])
        assert [row.input_tokens for row in store.usage(since="2026-01-02", until="2026-01-04")] == [2, 3]
        assert [row.input_tokens for row in store.usage(since=date(2026, 1, 4))] == [4]
        assert store.usage(until="2026-01-01") == []
        with pytest.raises(ValidationError):
            store.usage(since="yesterday")

    def test_a_view_counts_only_its_user_on_every_day(self, store: Driver) -> None:
        for user, days in (("u", (1, 3, 5)), ("v", (2, 3, 4)), (None, (1, 5))):
            store.append(f"of {user}", [spent(Usage(day), day) for day in days], user_id=user)
        view = store.user("u")
        assert [(row.user_id, row.input_tokens) for row in view.usage()] == [("u", 1), ("u", 3), ("u", 5)]
        assert [row.input_tokens for row in view.usage(since="2026-01-02", until="2026-01-05")] == [3]
        assert view.usage(since="2026-01-04", until="2026-01-05") == []
        assert view.usage(since="2026-01-06") == []
        assert store.user("w").usage() == []

    def test_usage_of_deleted_messages_still_counts(self, store: Driver) -> None:
        messages = store.append("c", [spent(Usage(number)) for number in (1, 2, 4, 8)], user_id="u").messages
        before = store.usage()
        store.delete_message("c", messages[0].id)
        store.pop_message("c")
        store.clear_messages("c")
        store.delete_conversation("c")
        store.purge()
        assert store.usage() == before
        assert before[0].input_tokens == 15

    def test_erasing_a_user_removes_their_usage(self, store: Driver) -> None:
        store.append("c", spent(Usage(1)), user_id="u")
        store.append("d", spent(Usage(2)), user_id="v")
        store.delete_conversation("c")
        assert store.erase_user("u").usage_rows == 1
        assert [(row.user_id, row.input_tokens) for row in store.usage()] == [("v", 2)]

    def test_updating_usage_replaces_the_old_figures(self, store: Driver) -> None:
        id = store.append("c", spent(Usage(5, model="m"))).messages[0].id
        store.update_message("c", id, usage=Usage(7, model="m"))
        assert [(row.messages, row.input_tokens) for row in store.usage()] == [(1, 7)]
        store.update_message("c", id, usage=Usage(7, model="n"))
        assert [(row.model, row.messages, row.input_tokens) for row in store.usage()] == [("n", 1, 7)]
        store.update_message("c", id, content="other content")
        assert [row.input_tokens for row in store.usage()] == [7]
        store.update_message("c", id, usage=None)
        assert store.usage() == []

    def test_a_duplicate_append_counts_once(self, store: Driver) -> None:
        require(store, "our ids")
        message = Message("assistant", "x", id="m", usage=Usage(3))
        for _ in range(3):
            store.append("c", message)
        assert [row.input_tokens for row in store.usage()] == [3]

    def test_messages_that_a_snapshot_stores_again_count_once(self, store: Driver) -> None:
        require(store, "our ids")
        first, second = (Message("assistant", "x", id=id, usage=Usage(3, 4, cost=0.1, model="m")) for id in "ab")
        first, second = store.append("c", [first, second], user_id="u").messages
        before = store.usage()
        store.replace_messages("c", [Message("user", "put before them"), first, second])
        assert store.usage() == before, "they count once"
        store.replace_messages("c", [second, first])
        assert store.usage() == before
        store.replace_messages("c", [first])
        assert store.usage() == before, "deleted messages still count"

    def test_usage_in_a_snapshot_corrects_the_stored_figures(self, store: Driver) -> None:
        require(store, "our ids")
        (stored,) = store.append("c", structs.replace(spent(Usage(5, model="m")), id="a")).messages
        store.replace_messages("c", [structs.replace(stored, usage=Usage(7, model="n"))])
        assert [(row.model, row.messages, row.input_tokens) for row in store.usage()] == [("n", 1, 7)]
        later = datetime(2026, 1, 2, tzinfo=UTC)
        store.replace_messages("c", [structs.replace(stored, usage=Usage(7, model="n"), created_at=later)])
        assert [(row.day, row.messages, row.input_tokens) for row in store.usage()] == [("2026-01-02", 1, 7)]
        store.replace_messages("c", [structs.replace(stored, usage=None)])
        assert store.usage() == []

    def test_a_fork_adds_no_usage(self, store: Driver) -> None:
        store.append("c", [spent(Usage(3)), spent(Usage(4))])
        before = store.usage()
        store.fork("c", new_id="d")
        assert store.usage() == before, "a copy does not count"
        assert store.get_messages("d")[0].usage == Usage(3)

    def test_correcting_usage_after_a_change_of_owner_keeps_the_total(self, store: Driver) -> None:
        id = store.append("c", spent(Usage(5)), user_id="u").messages[0].id
        store.update_conversation("c", user_id="v")
        store.update_message("c", id, usage=Usage(7))
        assert sum(row.input_tokens for row in store.usage()) == 7, "the total stays exact"

    def test_usage_counts_for_the_owner_named_in_the_same_append(self, store: Driver) -> None:
        say(store, "c", "x")
        store.append("c", spent(Usage(3)), user_id="u")
        assert [row.user_id for row in store.usage()] == ["u"]
