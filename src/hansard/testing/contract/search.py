"""Search finds exactly what matches, in any language, at once; nothing deleted, and nothing of other views."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hansard import sync
from hansard.errors import NotFound, ValidationError
from hansard.model import Message, Participant, Source
from hansard.search import Hit
from hansard.store.search_modes import SearchOrder
from hansard.testing.clock import Clock
from hansard.testing.contract.base import HOUR, Contract, require, require_url, rows, say
from hansard.testing.contract.blobs import picture
from hansard.testing.contract.judged import CORPUS, QUERIES, RANKED
from hansard.testing.processes import Writer
from hansard.testing.targets import Driver, Mode, Target

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)

FUZZED = int(os.environ.get("HANSARD_FUZZED_QUERIES", "300"))
"""The number of random queries."""

_ALPHABET = (
    "ab cd*\"'-_%()[]{}:^+|&~\\/.,;!?<>=@#$€0123ORANDéüßñ京東天ไท학교👍🏽\u200d\u0301\0\n\t\ud800\uffff\U0010ffff"
)


def texts(hits: Iterable[Hit]) -> list[str]:
    return [hit.message.content for hit in hits]


def found(store: Driver, query: str, **options: Any) -> list[str]:
    """Returns the contents of all hits of a query, newest first."""
    hits = store.search(query, order="newest", limit=100, token_cap=None, **options)
    assert hits.next_cursor is None
    return texts(hits)


RANKED_WITH: tuple[dict[str, Any], ...] = (
    {},
    {"roles": ["user"]},
    {"roles": ["assistant", "tool"]},
    {"agent_id": "a1"},
    {"participant_ids": ["p1"]},
    {"metadata": {"topic": "a0"}},
    {"conversation_id": "c1"},
    {"conversation_id": "c1", "branch": "side"},
    {"since": datetime(2026, 1, 1, 0, 0, 40, tzinfo=UTC)},
    {"agent_id": "a0", "roles": ["user"]},
)
"""Filters under which the ranking is compared."""


def _history() -> list[tuple[str, str, list[Message]]]:
    """Returns conversations in which `gamma` is rare in users' messages, and `alpha` in the assistant's."""
    chance = random.Random(9)
    rare = {"user": "gamma", "assistant": "alpha", "tool": "beta"}
    made = []
    for number in range(4):
        messages = []
        for at in range(20):
            role = chance.choice(list(rare))
            words = chance.choices(["alpha", "beta", "gamma", "delta", "epsilon"], k=chance.randint(2, 9))
            chosen = [word for word in words if word != rare[role] or chance.random() < 0.25]
            who = Participant("user", f"p{chance.randrange(2)}")
            when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=20 * number + at)
            text = " ".join(chosen) or "delta"
            messages.append(Message(role, text, id=f"m{number}-{at}", participant=who, created_at=when))
        made.append((f"c{number}", f"a{number % 2}", messages))
    return made


def _passes(message: Message, conversation: str, agent: str, options: dict[str, Any]) -> bool:
    assert message.participant is not None
    return (
        message.role in options.get("roles", [message.role])
        and message.participant.id in options.get("participant_ids", [message.participant.id])
        and agent == options.get("agent_id", agent) == options.get("metadata", {"topic": agent})["topic"]
        and conversation == options.get("conversation_id", conversation)
        and message.created_at >= options.get("since", message.created_at)
    )


def _by_relevance(words: list[str], messages: dict[tuple[str, int], Message]) -> list[str]:
    """Returns the ids of messages with any of the words, ranked as in docs/reference/search.md.

    The messages are given by conversation and position.
    """
    texts = {place: str(message.content).split() for place, message in messages.items()}
    found = {place for place, text in texts.items() if set(words) & set(text)}
    counts = [sum(word in texts[place] for place in found) for word in words]
    scores = {}
    for conversation, seq in found:
        size = 0.6 + 0.4 * (math.sqrt(len(texts[conversation, seq]) / 60) + 1.75) / 2.75
        score = 0.0
        for word, count in zip(words, counts, strict=True):
            times = 0.0
            for step in range(-3, 4):
                if (conversation, seq + step) in found and word in texts[conversation, seq + step]:
                    times += 0.5 ** abs(step)
            score += math.log(1 + (max(counts) + 1) / (count + 0.5)) ** 2 * times * 1.9 / (times + 0.9 * size)
        message = messages[conversation, seq]
        scores[message.id] = (round(score, 6), message.created_at)
    return sorted(scores, key=lambda id: scores[id], reverse=True)


class TestJudged(Contract):
    """Queries on one corpus, each with the messages that it must find."""

    needs = ("our ids",)

    def test_each_query_finds_exactly_the_judged_messages(self, store: Driver) -> None:
        self._fill(store)
        wrong = {}
        for query, expected in QUERIES:
            hits = store.search(query, order="newest", limit=100, token_cap=None)
            ids = [hit.message.id for hit in hits]
            # Appended in this order, so newest first is the reverse.
            right = [id for id in reversed(CORPUS) if id in expected.split()]
            ranked = store.search(query, limit=100, token_cap=None)
            if ids != right or {hit.message.id for hit in ranked} != set(right):
                wrong[query] = (ids, right)
        assert not wrong

    def test_the_most_relevant_come_first(self, store: Driver) -> None:
        self._fill(store)
        for query, expected in RANKED:
            hits = store.search(query, token_cap=None)
            assert [hit.message.id for hit in hits] == expected, query
            scores = [hit.score for hit in hits]
            assert scores == sorted(scores, reverse=True), query
            assert min(scores) > 0, query

    def test_every_hit_has_a_snippet_with_highlights(self, store: Driver) -> None:
        self._fill(store)
        for query, _ in QUERIES:
            for hit in store.search(query, limit=100, token_cap=None):
                snippet = hit.snippet
                assert snippet.highlights, (query, hit.message.id)
                assert hit.text[snippet.start :].startswith(snippet.text), (query, hit.message.id)

    def test_no_query_text_is_an_error(self, store: Driver) -> None:
        self._fill(store)
        chance = random.Random(4)
        for number in range(FUZZED):
            query = "".join(chance.choices(_ALPHABET, k=chance.randrange(40)))
            hits = store.search(query, order="newest" if number % 2 else "relevance", limit=3)
            assert len(hits) <= 3, query

    def _fill(self, store: Driver) -> None:
        for at, (id, content) in enumerate(CORPUS.items()):
            store.append(f"c{at % 5}", Message("user", content, id=id), user_id=f"u{at % 5 % 2}")


class TestSearching(Contract):
    def test_a_new_message_is_found_at_once(self, store: Driver) -> None:
        for number in range(20):
            say(store, "c", f"needle{number} hay")
            assert found(store, f"needle{number}") == [f"needle{number} hay"]
        assert len(found(store, "hay", conversation_id="c")) == 20

    def test_an_update_is_found_and_the_old_content_is_not(self, store: Driver) -> None:
        message, other = say(store, "c", "before", "other")
        assert found(store, "before") == ["before"]
        store.update_message("c", message.id, content="after")
        assert found(store, "before") == []
        assert found(store, "after") == ["after"]
        store.update_message("c", other.id, sources=[Source("d", "handbook.pdf")])
        assert found(store, "handbook") == ["other"]
        store.update_message("c", other.id, sources=[])
        assert found(store, "handbook") == []

    def test_deleted_messages_are_never_found_again(self, store: Driver) -> None:
        first, *_ = say(store, "c", "one word", "two word", "three word", "four word")
        assert len(found(store, "word")) == 4
        store.delete_message("c", first.id)
        assert found(store, "word") == ["four word", "three word", "two word"]
        store.pop_message("c")
        assert found(store, "word") == ["three word", "two word"]
        store.replace_messages("c", [Message("user", "five word")])
        assert found(store, "word") == ["five word"]
        store.clear_messages("c")
        assert found(store, "word") == []
        say(store, "c", "six word")
        assert found(store, "word") == ["six word"]
        store.delete_conversation("c")
        assert found(store, "word") == []

    def test_a_conversation_created_again_finds_only_new_messages(self, store: Driver) -> None:
        say(store, "c", "old word")
        assert found(store, "word") == ["old word"]
        store.delete_conversation("c")
        say(store, "c", "new word")
        assert found(store, "word") == ["new word"]

    @pytest.mark.parametrize("order", ["newest", "relevance"])
    def test_all_branches_of_a_conversation_that_has_only_one(self, store: Driver, order: SearchOrder) -> None:
        say(store, "c", "a word")
        say(store, "d", "another word")
        assert texts(store.search("word", conversation_id="c", all_branches=True, order=order)) == ["a word"]

    def test_search_reads_the_active_branch_unless_asked_otherwise(self, store: Driver) -> None:
        require(store, "branches")
        shared, _ = say(store, "c", "shared word", "main word")
        store.branch("c", at=shared.id, branch_id="side")
        say(store, "c", "side word")
        assert found(store, "word") == ["side word", "shared word"]
        assert found(store, "word", conversation_id="c", branch="main") == ["main word", "shared word"]
        assert found(store, "word", all_branches=True) == ["side word", "main word", "shared word"]
        assert found(store, "word", conversation_id="c", all_branches=True) == ["side word", "main word", "shared word"]
        store.switch_branch("c", "main")
        assert found(store, "word", conversation_id="c") == ["main word", "shared word"]
        store.delete_branch("c", "side")
        assert found(store, "word", all_branches=True) == ["main word", "shared word"]
        with pytest.raises(NotFound):
            found(store, "word", conversation_id="c", branch="nowhere")

    @pytest.mark.parametrize("order", ["newest", "relevance"])
    def test_a_shared_part_is_found_after_the_branch_that_wrote_it_was_replaced(
        self, store: Driver, order: SearchOrder
    ) -> None:
        """It belongs to no branch alone any more, only to the one that shares it."""
        require(store, "branches")
        first, _ = store.append("c", [Message("user", "first word"), Message("user", "second word")]).messages
        store.branch("c", at=first.id, branch_id="side")
        store.append("c", Message("user", "side word"))
        store.replace_messages("c", [Message("user", "another word")], branch="main")
        for id in (None, "c"):
            hits = store.search("word", conversation_id=id, order=order)
            assert sorted(texts(hits)) == ["first word", "side word"]
            hits = store.search("word", conversation_id=id, all_branches=True, order=order)
            assert sorted(texts(hits)) == ["another word", "first word", "side word"]

    def test_a_fork_is_found_without_its_original(self, store: Driver) -> None:
        say(store, "c", "a word")
        store.fork("c", new_id="copy")
        assert found(store, "word", conversation_id="copy") == ["a word"]
        store.delete_conversation("c")
        assert found(store, "word") == ["a word"]

    def test_expired_and_erased_messages_are_not_found(self, store: Driver, clock: Clock) -> None:
        say(store, "short", "a word", user_id="ann", expires_at=clock.now + HOUR)
        say(store, "long", "another word", user_id="ann")
        say(store, "bens", "his word", user_id="ben")
        store.append("bens", Message("user", "her word", participant=Participant("user", "ann")))
        assert len(found(store, "word")) == 4
        clock.advance(HOUR)
        assert found(store, "word") == ["her word", "his word", "another word"]
        store.purge()
        assert found(store, "word") == ["her word", "his word", "another word"]
        store.erase_user("ann")
        assert found(store, "word") == ["his word"]

    def test_a_change_of_owner_moves_what_each_user_finds(self, store: Driver) -> None:
        say(store, "c", "a word")
        assert found(store, "word", user_id="ann") == []
        store.update_conversation("c", user_id="ann")
        assert found(store, "word", user_id="ann") == found(store.user("ann"), "word") == ["a word"]
        store.update_conversation("c", user_id="ben")
        assert found(store, "word", user_id="ann") == found(store.user("ann"), "word") == []
        assert found(store, "word", user_id="ben") == ["a word"]

    def test_search_shows_nothing_of_other_views(self, store: Driver) -> None:
        for tenant in ("one", "two"):
            for user in ("ann", "ben"):
                say(store.tenant(tenant), f"{tenant}-{user}", f"{tenant} {user} word", user_id=user)
        one = store.tenant("one")
        assert found(one, "word") == ["one ben word", "one ann word"]
        assert found(one.user("ann"), "word") == ["one ann word"]
        assert found(one.user("ann"), "word", conversation_id="one-ben") == []
        assert found(one, "word", conversation_id="two-ann") == []
        assert found(store, "word") == []
        with pytest.raises(ValidationError):
            one.user("ann").search("word", user_id="ben")
        cursor = one.search("word", order="newest", limit=1).next_cursor
        with pytest.raises(ValidationError, match="does not belong to this search"):
            one.user("ben").search("word", order="newest", cursor=cursor)
        # Scores depend only on messages that the view can read.
        before = [hit.score for hit in one.search("word OR ann")]
        say(store.tenant("two"), "more", *["ann word"] * 20)
        assert [hit.score for hit in one.search("word OR ann")] == before

    def test_a_replica_may_answer(self, store: Driver) -> None:
        """A store without replicas reads its only copy; with any, the walls are the same."""
        for user in ("ann", "ben"):
            say(store.tenant("one"), user, f"{user} word", user_id=user)
        one = store.tenant("one")
        for view, expected in ((one, ["ben", "ann"]), (one.user("ann"), ["ann"]), (store, [])):
            assert [each.id for each in view.list_conversations(read_from="replica").items] == expected
            assert found(view, "word", read_from="replica") == [f"{user} word" for user in expected]
        with pytest.raises(ValidationError, match="read_from"):
            one.list_conversations(read_from="nearest")  # type: ignore[arg-type]

    def test_a_deleted_tenant_finds_nothing(self, store: Driver) -> None:
        say(store.tenant("one"), "c", "a word")
        store.admin.delete_tenant("one")
        assert found(store.tenant("one"), "word") == []

    @rows(
        ("options", "expected"),
        [
            ({"conversation_id": "c"}, "abcd"),
            ({"user_id": "ann"}, "abcd"),
            ({"user_id": "ben"}, "e"),
            ({"agent_id": "bot"}, "abcd"),
            ({"agent_id": "other"}, ""),
            ({"metadata": {"topic": "x"}}, "abcd"),
            ({"metadata": {"topic": "y"}}, ""),
            ({"conversation_id": "c", "agent_id": "other"}, ""),
            ({"conversation_id": "c", "metadata": {"topic": "y"}}, ""),
            ({"conversation_id": "c", "user_id": "ben"}, ""),
            ({"roles": ["assistant"]}, "b"),
            ({"roles": ["user"], "participant_ids": ["p1"]}, "a"),
            ({"participant_ids": ["p1", "p2"]}, "ac"),
            ({"since": datetime(2026, 1, 2, tzinfo=UTC)}, "bcde"),
            ({"until": datetime(2026, 1, 2, tzinfo=UTC)}, "a"),
            ({"since": datetime(2026, 1, 2, tzinfo=UTC), "until": datetime(2026, 1, 4, tzinfo=UTC)}, "bc"),
        ],
    )
    def test_each_filter_finds_exactly_what_matches(
        self, store: Driver, options: dict[str, Any], expected: str
    ) -> None:
        require(store, "our times")
        store.append(
            "c",
            [
                Message("user", "word a", participant=Participant("user", "p1"), created_at=_day(1)),
                Message("assistant", "word b", created_at=_day(2)),
                Message("user", "word c", participant=Participant("agent", "p2"), created_at=_day(3)),
                Message("user", "word d", created_at=_day(4)),
            ],
            user_id="ann",
            agent_id="bot",
            metadata={"topic": "x"},
        )
        store.append("d", Message("user", "word e", created_at=_day(5)), user_id="ben")
        assert found(store, "word", **options) == [f"word {letter}" for letter in reversed(expected)]
        assert sorted(texts(store.search("word", **options))) == [f"word {letter}" for letter in expected]

    def test_newest_first_goes_by_time_not_by_arrival(self, store: Driver) -> None:
        require(store, "our times")
        days = [5, 1, 9, 3, 7, 2, 8]
        for number, day in enumerate(days):
            store.append(f"c{number % 3}", Message("user", f"word {day}", created_at=_day(day)))
        newest = [f"word {day}" for day in sorted(days, reverse=True)]
        assert found(store, "word") == newest
        assert self._paged(store, "newest") == newest
        late = store.append("c0", [Message("user", "word 10", created_at=_day(4))] * 2).messages
        assert [hit.message.id for hit in store.search("10", order="newest")] == [late[1].id, late[0].id]

    @rows("options", RANKED_WITH)
    def test_relevance_is_computed_over_the_filtered_messages(self, store: Driver, options: dict[str, Any]) -> None:
        """Compares the order of hits with an independent ranking, so that it is the same on every backend."""
        require(store, "our times")
        history = _history()
        for conversation, agent, messages in history:
            store.append(conversation, messages, agent_id=agent, user_id="ann", metadata={"topic": agent})
        if "branch" in options:
            require(store, "branches")
            store.branch("c1", at=history[1][2][-4].id, branch_id="side")
            history = [(id, agent, messages[:-3]) for id, agent, messages in history]
        wanted = {
            (conversation, seq): message
            for conversation, agent, messages in history
            for seq, message in enumerate(messages, 1)
            if _passes(message, conversation, agent, options)
        }
        expected = _by_relevance(["alpha", "beta", "gamma"], wanted)
        assert len(expected) > 3
        for match, query in (("any", "alpha beta gamma"), ("all", "alpha OR beta OR gamma")):
            hits = store.search(query, match=match, limit=100, token_cap=None, **options)  # type: ignore[arg-type]
            assert [hit.message.id for hit in hits] == expected
            assert hits.complete
            first = store.search(query, match=match, limit=1, token_cap=None, **options)  # type: ignore[arg-type]
            assert [hit.message.id for hit in first] == expected[:1]

    def test_the_best_of_many_matches_is_found_however_old_it_is(self, store: Driver) -> None:
        say(store, "old", "the harbour word")
        for number in range(6):
            say(store, f"c{number}", *[f"the word {at}" for at in range(100)])
        hits = store.search("the harbour word", match="any", limit=3)
        assert hits[0].message.text == "the harbour word"
        assert hits.complete
        assert hits.next_cursor is not None

    def test_neighbours_raise_a_message_and_deleted_ones_do_not(self, store: Driver) -> None:
        say(store, "lonely", "a word", "nothing", "nothing")
        _, beside = say(store, "c", "a word", "next to a word")
        assert texts(store.search("word")) == ["a word", "next to a word", "a word"]
        assert store.search("word")[0].conversation.id == "c"
        store.delete_message("c", beside.id)
        first, second = store.search("word")
        assert first.score == second.score

    def test_a_branch_is_ranked_as_one_sequence(self, store: Driver) -> None:
        require(store, "branches")
        first, second, _ = say(store, "c", "a word", "another word", "nothing")
        store.branch("c", at=second.id, branch_id="side")
        (third,) = store.append("c", Message("user", "third word"), branch="side").messages
        hits = store.search("word", conversation_id="c", branch="side")
        assert sorted(hit.message.id for hit in hits) == sorted([first.id, second.id, third.id])
        assert hits[0].message.id == second.id, "it has neighbours on both sides"
        everywhere = store.search("word", conversation_id="c", all_branches=True)
        assert {hit.message.id: hit.score for hit in everywhere}[third.id] < hits[-1].score, (
            "it is alone on its segment"
        )

    @pytest.mark.parametrize("order", ["newest", "relevance"])
    def test_pages_of_hits_are_complete(self, store: Driver, order: SearchOrder) -> None:
        for number in range(10):
            say(store, f"c{number % 3}", f"word {number}", *(["other"] * number))
        whole = texts(store.search("word", order=order, limit=100))
        assert len(whole) == 10
        assert self._paged(store, order) == whole
        with pytest.raises(ValidationError, match="does not belong"):
            store.search("other", order=order, cursor=store.search("word", order=order, limit=1).next_cursor)

    @pytest.mark.parametrize("order", ["newest", "relevance"])
    def test_a_cursor_belongs_to_its_query_and_filters(self, store: Driver, order: SearchOrder) -> None:
        say(store, "c", *["word and other"] * 5)
        asked: dict[str, Any] = {"order": order, "roles": ["user"], "metadata": {}, "match": "all", "since": LONG_AGO}
        cursor = store.search("word other", limit=1, **asked).next_cursor
        assert cursor is not None
        assert len(store.search("word other", limit=3, token_cap=None, cursor=cursor, **asked)) == 3
        # "The last hour" moves between two pages.
        later = asked | {"since": LONG_AGO + timedelta(seconds=1)}
        assert len(store.search("word other", limit=3, cursor=cursor, **later)) == 3
        changes: list[dict[str, Any]] = [
            *({"match": "any"}, {"match": "part"}, {"roles": None}, {"roles": ["user", "tool"]}, {"since": None}),
            *(
                {"until": LONG_AGO + timedelta(days=40_000)},
                {"conversation_id": "c"},
                {"user_id": "ann"},
                {"agent_id": "a"},
            ),
            *({"metadata": {"a": 1}}, {"participant_ids": ["p"]}, {"all_branches": True}, {"label": "l"}),
            *({"rating": 1.0}, {"order": "relevance" if order == "newest" else "newest"}),
        ]
        for change in changes:
            with pytest.raises(ValidationError, match="pass the query, mode, match, order and filters of the page"):
                store.search("word other", cursor=cursor, **asked | change)

    def _paged(self, store: Driver, order: SearchOrder) -> list[str]:
        seen: list[str] = []
        cursor = None
        while True:
            page = store.search("word", order=order, limit=3, cursor=cursor)
            seen += texts(page)
            cursor = page.next_cursor
            if cursor is None:
                return seen

    def test_a_token_cap_ends_a_page_early(self, store: Driver) -> None:
        say(store, "c", *[f"word {number} " + "x" * 400 for number in range(5)])
        assert len(store.search("word", token_cap=250)) == 2
        page = store.search("word", order="newest", token_cap=250)
        assert [text[:6] for text in texts(page)] == ["word 4", "word 3"]
        page = store.search("word", order="newest", token_cap=250, cursor=page.next_cursor)
        assert [text[:6] for text in texts(page)] == ["word 2", "word 1"]
        assert len(store.search("word", token_cap=1)) == 1, "a page has at least one hit"
        assert len(store.search("word", token_cap=None)) == 5

    def test_match_any_finds_messages_with_one_of_the_words(self, store: Driver) -> None:
        say(store, "c", "apple pear", "apple", "plum")
        assert found(store, "apple pear") == ["apple pear"]
        assert texts(store.search("apple pear", match="any")) == ["apple pear", "apple"]

    def test_match_part_finds_pieces_of_words_and_numbers(self, store: Driver) -> None:
        say(
            store,
            "c",
            "My orders: A12345B, sent to Müller",
            "Rechnungsnummer 99",
            "東京タワーに行く",
            "border lines",
            user_id="u",
        )
        for query, wanted in (
            ("rder", ["border lines", "My orders: A12345B, sent to Müller"]),
            ("RDERS", ["My orders: A12345B, sent to Müller"]),
            ("2345", ["My orders: A12345B, sent to Müller"]),
            ("2345B", ["My orders: A12345B, sent to Müller"]),
            ("A123", ["My orders: A12345B, sent to Müller"]),
            ("ülle ent", ["My orders: A12345B, sent to Müller"]),
            ('"ders: a12"', ["My orders: A12345B, sent to Müller"]),
            ("nummer", ["Rechnungsnummer 99"]),
            ("京タ", ["東京タワーに行く"]),
            ("rder -nes", ["My orders: A12345B, sent to Müller"]),
            ("nummer OR lines", ["border lines", "Rechnungsnummer 99"]),
            ("order", ["border lines", "My orders: A12345B, sent to Müller"]),
            ("de", []),
            ("rdes", []),
        ):
            assert found(store, query, match="part") == wanted, query
            assert sorted(texts(store.search(query, match="part"))) == sorted(wanted), query
            assert found(store, query, match="part", user_id="stranger") == [], query
        assert store.search("rder", match="part").complete
        assert store.search("rder", match="part", order="newest")[0].snippet.marked() == "**border** lines"

    def test_archived_conversations_are_found(self, store: Driver) -> None:
        say(store, "c", "a word")
        store.update_conversation("c", archived=True)
        assert found(store, "word") == ["a word"]

    def test_hits_contain_the_whole_message_and_conversation(self, store: Driver) -> None:
        require(store, "blobs")
        say(store, "c", [{"type": "text", "text": "a word"}, *picture(1)])
        whole = store.get_messages("c")[0]
        assert store.search("word")[0].message.content == whole.content
        assert store.search("word", blobs="refs")[0].message.blobs
        assert store.search("word")[0].conversation == store.get_conversation("c")

    def test_a_message_in_progress_is_found_by_its_newest_content(self, store: Driver) -> None:
        message = store.append("c", Message("assistant", "the", status="in_progress")).messages[0]
        for text in ("the answer", "the answer is", "the answer is forty-two"):
            store.update_message("c", message.id, content=text)
            assert found(store, text.split()[-1]) == [text]
        assert found(store, "answer") == ["the answer is forty-two"]

    def test_search_works_after_reopening(self, store: Driver, target: Target, mode: Mode, clock: Clock) -> None:
        require(store, "durability")
        say(store, "c", "a word", "another word")
        found(store, "word")
        say(store, "c", "a late word")
        store.close()
        again = target.open(mode, clock=clock)
        assert found(again, "word") == ["a late word", "another word", "a word"]

    def test_messages_of_another_process_are_found(self, store: Driver, target: Target) -> None:
        require(store, "shared")
        url = require_url(target)
        say(store, "c", "our word")
        assert found(store, "word") == ["our word"]
        Writer(url, "other", conversations=["d"], batches=3, batch=2).wait()
        theirs = [message.content for message in store.iter_messages("d", order="desc")]
        assert len(theirs) == 6
        assert found(store, "other") == theirs
        assert store.check() == []

    def test_messages_are_found_that_another_process_has_listed(self, store: Driver, target: Target) -> None:
        # Catches an index that takes what another process has listed for what it has indexed.
        require(store, "shared")
        with sync.connect(require_url(target)) as other:
            say(store, "c", "our word")
            assert other.get_conversation("c") is not None
            assert len(other.list_conversations().items) == 1
            assert found(store, "word") == ["our word"]
            assert [hit.message.content for hit in other.search("word")] == ["our word"]

    @rows(
        "wrong",
        [
            {"query": 5},
            {"query": "x", "limit": 0},
            {"query": "x", "token_cap": 0},
            {"query": "x", "order": "oldest"},
            {"query": "x", "match": "some"},
            {"query": "x", "branch": "main"},
            {"query": "x", "cursor": "nonsense"},
            {"query": "x", "roles": ["unknown"]},
        ],
    )
    def test_wrong_arguments_are_refused(self, store: Driver, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            store.search(**wrong)


def _day(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=UTC)
