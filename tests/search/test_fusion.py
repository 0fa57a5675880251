"""How two rankings become one, and how neighbours count, without a store."""

from __future__ import annotations

import pytest

from hansard.search import fusion, similarity
from hansard.search.similarity import Similar


def keys(found: list[tuple[float, str]]) -> str:
    return "".join(key for _, key in found)


def test_what_both_find_comes_first() -> None:
    found = fusion.fused({"a": 8.0, "b": 4.0}, {"b": 0.9, "c": 0.8, "d": 0.5}, 0.5)
    assert keys(found) == "bcad"
    assert found[0][0] == pytest.approx((0.5 * fusion.WORDS + 1) / (fusion.WORDS + 1), abs=1e-6)
    assert found[-1][0] == 0.0, "no word, and no nearer than the average"


def test_one_half_may_be_empty() -> None:
    assert fusion.fused({"a": 2.0, "b": 1.0}, {}, 0.0) == [(1.0, "a"), (0.5, "b")]
    assert keys(fusion.fused({}, {"a": 0.2, "b": 0.7}, 0.1)) == "ba"
    assert fusion.fused({}, {}, 0.0) == []
    assert fusion.fused({}, {"a": 0.5}, 0.5) == [(0.0, "a")], "the only message is the average one"


def test_a_half_weighs_as_much_as_it_distinguishes() -> None:
    flat, steep = [1.0, *[0.9] * 30], [1.0, *[0.1] * 30]

    def best(words: list[float], meaning: list[float]) -> str:
        by_words = {f"w{at}": score for at, score in enumerate(words)}
        return fusion.fused(by_words, {f"m{at}": score for at, score in enumerate(meaning)}, 0.0)[0][1]

    assert best(steep, flat) == "w0", "the words name one message, and everything is alike"
    assert best(flat, steep) == "m0"
    assert best([1.0], steep) == "m0", "of few matches, too, words weigh half"
    assert best([1.0], flat) == "w0"
    same = fusion.fused(dict.fromkeys("abcdefghijkl", 2.0), dict.fromkeys("abcdefghijkl", 0.5), 0.1)
    assert {score for score, _ in same} == {1.0}


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
