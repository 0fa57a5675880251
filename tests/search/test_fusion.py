"""How two rankings become one, and how neighbours count, without a store."""

from __future__ import annotations

import pytest

from hansard.search import fusion, similarity
from hansard.search.similarity import Similar


def keys(found: list[tuple[float, str]]) -> str:
    return "".join(key for _, key in found)


def test_what_both_find_comes_first() -> None:
    found = fusion.fused("abe", "bcd")
    assert keys(found) == "baced"
    assert found[0][0] == pytest.approx((1 + 11 / 12) / 2, abs=1e-6)
    assert fusion.fused("a", "a") == [(1.0, "a")]


def test_one_ranking_may_be_empty() -> None:
    assert fusion.fused("ab", "") == [(1.0, "a"), (pytest.approx(11 / 12, abs=1e-6), "b")]
    assert keys(fusion.fused("", "ba")) == "ba"
    assert fusion.fused("", "") == []


def test_both_first_pages_come_before_what_one_has_further_down() -> None:
    words, meaning = [f"w{at}" for at in range(40)], [f"m{at}" for at in range(40)]
    first = [key for _, key in fusion.fused(words, meaning)[: 2 * fusion.PAGE]]
    assert {*first} == {*words[: fusion.PAGE], *meaning[: fusion.PAGE]}
    both = [*words, "both"], [*meaning, "both"]
    place = [key for _, key in fusion.fused(*both)].index("both")
    assert 0 < place < 2 * len(words), "what is last in both is not last"


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
