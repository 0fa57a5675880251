"""How two rankings become one, and how neighbours count, without a store."""

from __future__ import annotations

import pytest

from hansard.search import fusion, similarity
from hansard.search.similarity import Similar


def keys(found: list[tuple[float, str]]) -> str:
    return "".join(key for _, key in found)


def test_what_both_find_comes_first() -> None:
    found = fusion.fused({"a": 8.0, "b": 4.0}, fusion.EVEN, {"b": 0.9, "c": 0.8, "d": 0.5}, 0.5)
    assert keys(found) == "bacd"
    assert found[0][0] == pytest.approx(0.75), "half of words' best, and meaning's best"
    assert found[-1][0] == 0.0, "no word, and no nearer than the average"


def test_one_half_may_be_empty() -> None:
    assert keys(fusion.fused({"a": 2.0, "b": 1.0}, 1.0, {}, 0.0)) == "ab"
    assert keys(fusion.fused({}, 0.0, {"a": 0.2, "b": 0.7}, 0.1)) == "ba"
    assert fusion.fused({}, 0.0, {}, 0.0) == []
    assert fusion.fused({}, 0.0, {"a": 0.5}, 0.5) == [(0.0, "a")], "the only message is the average one"


def test_words_weigh_as_much_as_they_match() -> None:
    words, meaning = {"named": 3.0}, {"near": 0.9}
    assert keys(fusion.fused(words, 1.0, meaning, 0.4)) == "namednear"
    assert keys(fusion.fused(words, 0.1, meaning, 0.4)) == "nearnamed"


def row(seq: int, own: float, size: int = 100) -> Similar:
    return Similar(seq, f"m{seq}", b"", size, own)


def test_neighbours_count_less_with_distance_and_length() -> None:
    here = {each.seq: each for each in (row(1, 0.0), row(2, 0.4), row(3, 0.8), row(4, 0.4), row(5, 0.0), row(6, 9.0))}
    assert similarity.score(here[3], here) == pytest.approx((0.8 + 2 * 0.25 * 0.4) / 1.75)
    assert similarity.score(here[3], here, {3}) == pytest.approx(0.8), "only those that are present"
    assert similarity.score(here[3], {}) == pytest.approx(0.8)
    assert list(similarity.neighbours(3)) == [1, 2, 3, 4, 5]
    long = row(3, 0.8, size=36_000)
    assert similarity.score(long, here) == pytest.approx(0.8, abs=0.01), "a long message stands alone"
