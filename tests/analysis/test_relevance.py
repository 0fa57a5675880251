"""The ranking: the formula, and that skipping postings changes no result."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import pytest

from hansard.analysis import Clause, Position, Query, Terms, analyse, formula, one_word, parse_query, relaxed, relevance
from hansard.analysis.formula import Posting
from hansard.analysis.relevance import ScoredKey
from hansard.blocking import run_to_end

T = TypeVar("T")


class Texts:
    """Postings of texts, by key."""

    def __init__(self, texts: dict[int, str], query: Query) -> None:
        self._terms = {key: analyse(text) for key, text in texts.items()}
        self._query = query
        self.read: list[Clause] = []

    async def count(self, clause: Clause, most: int) -> int:
        return min(most, len(self._of(clause)))

    async def of(self, clause: Clause) -> list[Posting]:
        self.read.append(clause)
        return self._of(clause)

    def _of(self, clause: Clause) -> list[Posting]:
        return [
            (key, len(terms.words))
            for key, terms in self._terms.items()
            if clause.is_in(terms) and self._query.matches(terms)
        ]

    async def terms(self, keys: Collection[int]) -> dict[int, Terms]:
        return {key: self._terms[key] for key in keys if key in self._terms}

    async def positions(self, all_of: Collection[int], newest_of: Iterable[int], count: int) -> dict[int, Position]:
        return {key: (key, 0, "") for key in (*all_of, *newest_of)}

    async def run(self, work: Callable[[], T]) -> T:
        return work()


def ranked(texts: dict[int, str], query: Query, limit: int = 10, *, neighbours: bool = False) -> list[ScoredKey]:
    return run_to_end(relevance.best(query, Texts(texts, query), limit, neighbours=neighbours))


def any_of(text: str) -> Query:
    return relaxed(parse_query(text))


def test_a_rare_word_outweighs_common_ones() -> None:
    texts = {10 * at: "what did she say" for at in range(50)} | {1000: "the harbour", 2000: "what did"}
    assert ranked(texts, any_of("what did she say at the harbour"))[0].key == 1000


def test_neighbours_count_and_strangers_do_not() -> None:
    texts = {1: "a word", 2: "a word", 100: "a word", 201: "a word", 205: "a word"}
    scores = {each.key: each.score for each in ranked(texts, any_of("word"))}
    assert scores[1] == scores[2] > scores[100] == scores[201] == scores[205]


def test_a_long_message_is_hardly_read_with_its_neighbours() -> None:
    long = "a word " + "filler " * 600
    scores = {each.key: each.score for each in ranked({1: long, 2: long, 100: long}, any_of("word"))}
    assert scores[1] < 1.02 * scores[100]


def test_hardly_anything_is_near_behind_a_long_message() -> None:
    def added(between: str) -> float:
        """Returns what the messages around the first add to it."""
        texts = {1: "a word", 2: between, 3: "a word", 100: "a word"}
        scores = {each.key: each.score for each in ranked(texts, any_of("word"))}
        assert scores[1] == scores[3] > scores[100]
        return scores[1] / scores[100] - 1

    assert added("a word " + "filler " * 600) < added("a word") / 5


def test_a_message_loses_little_by_its_length() -> None:
    texts = {1: "a word", 100: "a word " + "filler " * 238, 200: "a word " + "filler " * 958}
    scores = {each.key: each.score for each in ranked(texts, any_of("word"))}
    assert scores[1] > scores[100] > scores[200] > 0.6 * scores[1]


def test_a_single_word_loses_least() -> None:
    """What can be skipped is decided by this bound."""
    assert min(range(2000), key=formula.damping_of) in (0, 1)
    assert formula.damping_of(0) == formula.damping_of(1)


def test_a_question_word_weighs_little_where_it_is_rare() -> None:
    texts = {10 * at: "my boat and my lamp" for at in range(1, 9)} | {1000: "does it", 2000: "my harbour lamp"}
    assert [each.key for each in ranked(texts, any_of("what lamp does my boat have"))][-1] == 1000
    assert ranked(texts, any_of("does lamp"))[0].key == 1000, "one such word may be a word of another language"
    assert ranked(texts, any_of("what does"))[0].key == 1000, "there is nothing else to find"
    assert ranked(texts, any_of('what lamp "does" my boat have'))[0].key == 1000, "it was quoted"


def test_a_neighbour_without_a_word_is_found_if_allowed() -> None:
    texts = {1: "which harbour", 2: "the old one", 3: "that harbour"}
    assert [each.key for each in ranked(texts, any_of("harbour"))] == [3, 1]
    found = ranked(texts, any_of("harbour"), neighbours=True)
    assert [each.key for each in found] == [3, 1, 2]
    assert [each.key for each in ranked(texts, any_of("harbour -old"), neighbours=True)] == [3, 1]


def test_of_equal_messages_the_newer_comes_first() -> None:
    texts = {10 * at: "a word" for at in range(1, 30)}
    assert [each.key for each in ranked(texts, any_of("word"), 3)] == [290, 280, 270]


def test_all_words_must_occur_and_weigh_alike() -> None:
    texts = {1: "red car", 10: "red", 20: "a car that is red", 30: "car"}
    assert [each.key for each in ranked(texts, parse_query("red car"))] == [1, 20]
    assert [each.key for each in ranked(texts, parse_query("car red OR blue"))] == [1, 20]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("neighbours", [False, True])
def test_skipping_changes_no_result(seed: int, neighbours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    words = [f"w{number}" for number in range(40)]
    weights = [1 / (number + 1) for number in range(40)]
    texts = {
        100 * conversation + at: " ".join(chance.choices(words, weights, k=chance.choice((2, 5, 20, 150))))
        for conversation in range(30)
        for at in range(chance.randrange(20))
    }
    query = any_of(" ".join([*chance.sample(words[:6], 4), *chance.sample(words[15:], 2), *["-w39"] * (seed % 2)]))
    whole = ranked(texts, query, 5, neighbours=neighbours)
    monkeypatch.setattr(relevance, "_SMALL", 0)
    skipping = Texts(texts, query)
    assert run_to_end(relevance.best(query, skipping, 5, neighbours=neighbours)) == whole
    assert len(whole) == 5


@pytest.mark.parametrize("longest", [60, 61, 300])
def test_one_word_is_scored_by_the_same_formula(longest: int) -> None:
    chance = random.Random(longest)
    keys = chance.sample(range(4000), 1500)
    postings = [(key, chance.choice((1, 2, 30, 60, longest))) for key in keys]
    clause = parse_query("word").wanted[0]
    weight = formula.weight_of(clause, len(keys), len(keys))
    scores = formula.Scorer(dict.fromkeys(keys, 1), dict(postings), [(1, weight)]).scores(keys)
    for limit in (1, 20, 1500, 2000):
        found = one_word.best(clause, postings, limit)
        assert found.lowest == formula.lowest(scores.values(), limit)
        assert found.scores == {key: score for key, score in scores.items() if score > found.lowest}
        assert [*found.last] == [key for key in reversed(keys) if scores[key] == found.lowest]


def test_common_words_are_not_read_beside_rare_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relevance, "_SMALL", 10)
    texts = {10 * at: "what did she say about it" for at in range(500)} | {9000 + 10 * at: "harbour" for at in range(9)}
    query = any_of("what did she say about the harbour")
    postings = Texts(texts, query)
    run_to_end(relevance.best(query, postings, 5))
    assert len(postings.read) <= 2
