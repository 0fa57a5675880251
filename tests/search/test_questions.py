"""Questions as people ask them: loosened words, times, and what is around a hit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hansard import Message, ValidationError, sync

START = datetime(2026, 4, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["memory://", "sqlite:///{}/a.db", "file:///{}/a"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sync.Store]:
    url: str = request.param
    with sync.connect(url.format(tmp_path)) as store:
        yield store


def texts(hits: Any) -> list[str]:
    return [hit.message.text for hit in hits]


def spread(store: sync.Store, conversation: str, *texts: str, start: datetime = START) -> list[Message]:
    made = [Message("user", text, created_at=start + timedelta(minutes=at)) for at, text in enumerate(texts)]
    return list(store.append(conversation, made).messages)


class TestAuto:
    def test_all_words_first_then_some(self, store: sync.Store) -> None:
        spread(store, "a", "the harbour at night")
        spread(store, "b", "a harbour")
        spread(store, "c", "nothing here")
        assert texts(store.search("night harbour", match="auto")) == ["the harbour at night", "a harbour"]
        assert texts(store.search("night harbour")) == ["the harbour at night"]

    def test_common_words_weigh_little_in_any_language(self, store: sync.Store) -> None:
        for number in range(20):
            spread(store, f"c{number}", "was wurde über das wetter gesagt")
        spread(store, "d", "der rote leuchtturm")
        hits = store.search("was wurde über den leuchtturm gesagt", match="auto", limit=3)
        assert hits[0].message.text == "der rote leuchtturm"

    def test_a_number_or_a_quoted_phrase_weighs_more_than_words_as_rare(self, store: sync.Store) -> None:
        for name, text in {"a": "order 4711", "b": "order lamp", "c": "red lamp shade", "d": "lamp red shade"}.items():
            spread(store, name, text)
        assert texts(store.search("order 4711 shade", match="any"))[0] == "order 4711"
        assert texts(store.search('"red lamp" shade', match="any"))[0] == "red lamp shade"

    def test_an_answer_without_the_words_is_found_between_them(self, store: sync.Store) -> None:
        spread(store, "a", "which colour has the lighthouse?", "red and white", "a nice colour for a lighthouse")
        spread(store, "b", "what is the time?")
        hits = store.search("what colour does the lighthouse have", match="auto")
        assert "red and white" in texts(hits)
        assert "red and white" not in texts(store.search("lighthouse colour", match="auto")), "these are keywords"
        assert "red and white" not in texts(store.search("what colour does the lighthouse have", match="any"))

    def test_exclusions_hold(self, store: sync.Store) -> None:
        spread(store, "a", "which lighthouse is it", "the old one", "that lighthouse is it")
        assert texts(store.search("which lighthouse is it -old", match="auto")) == [
            "which lighthouse is it",
            "that lighthouse is it",
        ]

    def test_newest_first_it_is_loosened_only_if_nothing_has_all(self, store: sync.Store) -> None:
        spread(store, "a", "red lamp", "lamp", "red")
        assert texts(store.search("red lamp", match="auto", order="newest")) == ["red lamp"]
        page = store.search("lamp blue", match="auto", order="newest", limit=1)
        assert texts(page) == ["lamp"]
        assert page.next_cursor is not None
        rest = store.search("lamp blue", match="auto", order="newest", limit=1, cursor=page.next_cursor)
        assert texts(rest) == ["red lamp"]
        with pytest.raises(ValidationError, match="does not belong to this search"):
            store.search("lamp blue", match="all", order="newest", limit=1, cursor=page.next_cursor)

    def test_pages(self, store: sync.Store) -> None:
        for number in range(7):
            spread(store, f"c{number}", "which lighthouse", "an answer", "was it that lighthouse")
        whole = [hit.message.id for hit in store.search("which lighthouse was it", match="auto", limit=50)]
        assert len(whole) == 21
        seen: list[str] = []
        cursor = None
        while len(seen) < 21:
            page = store.search("which lighthouse was it", match="auto", limit=4, cursor=cursor)
            seen += [hit.message.id for hit in page]
            cursor = page.next_cursor
        assert seen == whole


class TestTime:
    def test_a_time_in_the_query_narrows_the_search(self, store: sync.Store) -> None:
        spread(store, "a", "the invoice", start=datetime(2023, 5, 3, tzinfo=UTC))
        spread(store, "b", "the invoice again", start=datetime(2024, 5, 3, tzinfo=UTC))
        hits = store.search("invoice in May 2023", time="auto")
        assert texts(hits) == ["the invoice"]
        assert hits.period is not None
        assert (hits.period.text, hits.period.since, hits.period.until) == (
            "in May 2023",
            datetime(2023, 5, 1, tzinfo=UTC),
            datetime(2023, 6, 1, tzinfo=UTC),
        )

    def test_if_nothing_is_of_that_time_everything_is_searched(self, store: sync.Store) -> None:
        spread(store, "a", "the invoice of June", start=datetime(2023, 5, 3, tzinfo=UTC))
        hits = store.search("invoice of June 2023", time="auto", match="any")
        assert texts(hits) == ["the invoice of June"]
        assert hits.period is None

    def test_the_callers_times_win(self, store: sync.Store) -> None:
        spread(store, "a", "the invoice in May 2023", start=datetime(2024, 5, 3, tzinfo=UTC))
        hits = store.search("invoice in May 2023", time="auto", since=datetime(2024, 1, 1, tzinfo=UTC))
        assert (len(hits), hits.period) == (1, None)
        assert store.search("invoice in May 2023").period is None

    @pytest.mark.parametrize("when", ["in May 2023", "in May 2022"])
    def test_pages(self, store: sync.Store, when: str) -> None:
        spread(store, "a", *["the invoice in may 2022"] * 5, start=datetime(2023, 5, 3, tzinfo=UTC))
        first = store.search(f"invoice {when}", time="auto", match="any", limit=3)
        assert first.next_cursor is not None
        second = store.search(f"invoice {when}", time="auto", match="any", limit=3, cursor=first.next_cursor)
        assert len({hit.message.id for hit in [*first, *second]}) == 5

    def test_pages_of_a_time_that_moves_with_the_clock(self, store: sync.Store) -> None:
        spread(store, "a", *["an invoice"] * 5, start=datetime.now(UTC) - timedelta(days=1))
        first = store.search("invoice of the last three days", time="auto", match="any", limit=3)
        assert first.period is not None
        second = store.search(
            "invoice of the last three days", time="auto", match="any", limit=3, cursor=first.next_cursor
        )
        assert len({hit.message.id for hit in [*first, *second]}) == 5


class TestAround:
    def test_a_hit_comes_with_its_neighbours(self, store: sync.Store) -> None:
        spread(store, "a", "one", "two", "a needle", "four", "five")
        (hit,) = store.search("needle", around=1)
        (passage,) = hit.passages
        assert [message.text for message in passage.messages] == ["two", "a needle", "four"]
        assert passage.found == (hit.message.id,)
        assert store.search("needle")[0].passages == ()

    def test_passages_that_touch_are_joined_and_each_message_comes_once(self, store: sync.Store) -> None:
        spread(store, "a", "zero", "a needle", "two", "three", "a needle", "five", "six", "seven", "a needle")
        hits = store.search("needle", around=1)
        found = [[message.text for message in passage.messages] for hit in hits for passage in hit.passages]
        assert sorted(found) == [["seven", "a needle"], ["zero", "a needle", "two", "three", "a needle", "five"]]
        assert sorted(len(hit.passages[0].found) for hit in hits) == [1, 2]

    def test_the_token_cap_limits_what_is_around(self, store: sync.Store) -> None:
        long = "filler " * 40
        spread(store, "a", long, long, "a needle", long, long)
        (hit,) = store.search("needle", around=2, token_cap=160)
        assert len(hit.passages[0].messages) == 3
        (hit,) = store.search("needle", around=2, token_cap=20)
        assert len(hit.passages[0].messages) == 1
        (hit,) = store.search("needle", around=2, token_cap=None)
        assert len(hit.passages[0].messages) == 5

    def test_what_is_around_is_on_the_branch(self, store: sync.Store) -> None:
        first, *_ = spread(store, "a", "a needle", "on the main branch")
        store.branch("a", at=first.id, branch_id="side")
        store.append("a", Message("user", "on the side branch"), branch="side")
        (hit,) = store.search("needle", around=1, conversation_id="a", branch="side")
        assert [message.text for message in hit.passages[0].messages] == ["a needle", "on the side branch"]

    @pytest.mark.parametrize("wrong", [{"around": -1}, {"around": 51}, {"around": True}, {"around": 1.5}])
    def test_wrong_numbers(self, store: sync.Store, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError, match="around"):
            store.search("needle", **wrong)

    def test_it_needs_one_branch(self, store: sync.Store) -> None:
        with pytest.raises(ValidationError, match="all_branches"):
            store.search("needle", around=1, all_branches=True)


class TestGroups:
    def test_the_best_conversations_come_with_their_passages(self, store: sync.Store) -> None:
        spread(store, "a", "a needle", *["hay"] * 5, "another needle", *["hay"] * 5)
        spread(store, "b", "one needle")
        spread(store, "c", "hay")
        hits = store.search("needle", group_by="conversation")
        assert sorted(hit.conversation.id for hit in hits) == ["a", "b"]
        passages = {hit.conversation.id: hit.passages for hit in hits}
        assert [[message.text for message in each.messages] for each in passages["b"]] == [["one needle"]]
        assert len(passages["a"]) == 2
        assert hits.next_cursor is None

    def test_a_limit_counts_conversations(self, store: sync.Store) -> None:
        spread(store, "big", *["needle"] * 150)
        for number in range(4):
            spread(store, f"c{number}", "a needle in the hay")
        hits = store.search("needle", group_by="conversation", limit=3, around=1)
        assert len({hit.conversation.id for hit in hits}) == len(hits) == 3
        assert hits.complete

    def test_it_has_no_pages(self, store: sync.Store) -> None:
        with pytest.raises(ValidationError, match="group_by"):
            store.search("needle", group_by="conversation", cursor="x")
        with pytest.raises(ValidationError, match="group_by"):
            store.search("needle", group_by="user")  # type: ignore[arg-type]
