"""How two rankings become one, and how neighbours count, without a store."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from hansard.search import fusion, similarity
from hansard.search.similarity import Similar

Ranking = list[tuple[float, str]]


def keys(found: Ranking) -> str:
    return "".join(key for _, key in found)


def ranking(names: Iterable[str], first: float = 1.0, step: float = 0.05) -> Ranking:
    return [(first - step * at, name) for at, name in enumerate(names)]


def counts(rank: float) -> float:
    return (fusion.PAGE + 1) / (fusion.PAGE + 1 + rank)


def test_what_both_find_comes_first() -> None:
    found = fusion.fused(ranking("abe"), ranking("bcd"))
    assert keys(found) == "baced"
    assert found[0][0] == pytest.approx((1 + counts(1)) / 2, abs=1e-6)
    assert fusion.fused(ranking("a"), ranking("a")) == [(1.0, "a")]


def test_one_ranking_may_be_empty() -> None:
    far = [(9.0, "a"), (0.1, "b")]
    assert fusion.fused(far, []) == [(1.0, "a"), (pytest.approx(counts(1), abs=1e-6), "b")]
    assert keys(fusion.fused([], ranking("ba"))) == "ba"
    assert fusion.fused([], []) == []


def test_both_first_pages_come_before_what_one_has_further_down() -> None:
    words, meaning = [f"w{at}" for at in range(40)], [f"m{at}" for at in range(40)]
    by_words, by_meaning = ranking(words, 100, 2.1), ranking(meaning)
    first = [key for _, key in fusion.fused(by_words, by_meaning)[: 2 * fusion.PAGE]]
    assert {*first} == {*words[: fusion.PAGE], *meaning[: fusion.PAGE]}


def test_almost_equal_scores_share_a_rank() -> None:
    words = [(10.0, "a"), (9.9, "b"), (8.0, "c")]
    # The range of similarities begins with the lowest one.
    meaning = [(0.8, "b"), (0.75, "d"), (0.746, "a"), (0.5, "e")]
    scores = {key: score for score, key in fusion.fused(words, meaning)}
    assert scores["a"] == pytest.approx((counts(0.5) + counts(1.5)) / 2, abs=1e-6)
    assert scores["b"] == pytest.approx((counts(0.5) + counts(0)) / 2, abs=1e-6)
    assert scores["d"] == pytest.approx(counts(1.5) / 2, abs=1e-6)


def test_what_is_far_behind_the_best_by_words_comes_last() -> None:
    words = [(10.0, "best"), (4.0, "behind"), (2.9, "far"), (2.8, "far, but near in meaning")]
    found = fusion.fused(words, ranking(["other", "far, but near in meaning"]))
    scores = {key: score for score, key in found}
    assert found[-1] == (0.0, "far"), "it is still found"
    assert scores["behind"] == pytest.approx(counts(1) / 2, abs=1e-6)
    assert scores["far, but near in meaning"] == pytest.approx(counts(1) / 2, abs=1e-6)


def row(seq: int, own: float, size: int = 100) -> Similar:
    return Similar(seq, f"m{seq}", b"", size, own)


def test_neighbours_count_less_with_distance_and_length() -> None:
    here = {each.seq: each for each in (row(1, 0.0), row(2, 0.4), row(3, 0.8), row(4, 0.4), row(5, 0.0), row(6, 9.0))}
    assert similarity.score(here[3], here) == pytest.approx((0.8 + 2 * 0.25 * 0.4) / 1.75)
    assert similarity.score(here[3], here, {3}) == pytest.approx(0.8), "only those that are present"
    assert similarity.score(here[3], {}) == pytest.approx(0.8)
    assert list(similarity.neighbours(3)) == [1, 2, 3, 4, 5]
    here[2] = row(2, 0.0, size=36_000)
    assert similarity.score(here[3], here) == pytest.approx((0.8 + 0.25 * 0.4) / 1.375, abs=0.01), (
        "nor what is behind one"
    )
    long = row(3, 0.8, size=36_000)
    assert similarity.score(long, here) == pytest.approx(0.8, abs=0.01), "a long message stands alone"
