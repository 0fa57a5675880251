"""The bounded cache: what it holds, what it drops, and that threads can share it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from hansard.cache import Cache


def keys(cache: Cache[str, str]) -> list[str]:
    return [key for key, _ in cache.items()]


def filled(capacity: int, *names: str) -> Cache[str, str]:
    cache: Cache[str, str] = Cache(capacity)
    for name in names:
        cache.put(name, name.upper())
    return cache


class TestCapacity:
    def test_the_oldest_is_dropped(self) -> None:
        cache = filled(2, "a", "b", "c")
        assert keys(cache) == ["b", "c"]
        assert len(cache) == cache.weight == 2
        assert cache.get("a") is None

    def test_a_use_keeps_a_value(self) -> None:
        cache = filled(2, "a", "b")
        assert cache.get("a") == "A"
        cache.put("c", "C")
        assert keys(cache) == ["a", "c"]

    def test_a_peek_is_no_use(self) -> None:
        cache = filled(2, "a", "b")
        assert cache.peek("a") == "A"
        assert "a" in cache
        cache.put("c", "C")
        assert keys(cache) == ["b", "c"]

    def test_a_new_value_replaces_the_old_one(self) -> None:
        cache = filled(2, "a", "b")
        cache.put("a", "other")
        assert cache.items() == [("b", "B"), ("a", "other")]
        assert cache.weight == 2

    def test_a_capacity_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="at least 1, not 0"):
            Cache(0)


class TestWeights:
    def test_the_total_is_bounded(self) -> None:
        cache: Cache[int, str] = Cache(10, weigh=len)
        for number in range(4):
            cache.put(number, "four")
        assert [key for key, _ in cache.items()] == [2, 3]
        assert cache.weight == 8

    def test_a_replacement_is_weighed_again(self) -> None:
        cache: Cache[int, str] = Cache(10, weigh=len)
        cache.put(1, "four")
        cache.put(1, "12345678")
        assert cache.weight == 8

    def test_a_value_that_is_too_heavy_displaces_only_its_predecessor(self) -> None:
        cache: Cache[int, str] = Cache(10, weigh=len)
        cache.put(1, "one")
        cache.put(2, "two")
        cache.put(2, "more than ten")
        assert cache.items() == [(1, "one")]
        assert cache.weight == 3

    def test_a_weight_of_nothing_is_counted_as_nothing(self) -> None:
        cache: Cache[int, str] = Cache(10, weigh=len)
        cache.put(1, "")
        assert cache.pop(1) == ""
        assert cache.weight == 0


class TestDropping:
    def test_pop_removes_a_value_and_its_weight(self) -> None:
        cache = filled(3, "a", "b")
        assert cache.pop("a") == "A"
        assert cache.pop("a") is None
        assert keys(cache) == ["b"]
        assert cache.weight == 1

    def test_drop_where_removes_what_the_condition_names(self) -> None:
        cache = filled(3, "a", "b", "c")
        cache.drop_where(lambda key: key != "b")
        assert keys(cache) == ["b"]
        assert cache.weight == 1

    def test_clear_removes_everything(self) -> None:
        cache = filled(3, "a", "b")
        cache.clear()
        assert cache.peek("a") is None
        assert len(cache) == cache.weight == 0


class TestMaking:
    def test_a_missing_value_is_made_once(self) -> None:
        cache: Cache[str, list[int]] = Cache(2)
        assert cache.get_or_make("a", list) is cache.get_or_make("a", list)

    def test_a_failure_stores_nothing(self) -> None:
        cache: Cache[str, float] = Cache(2)
        with pytest.raises(ZeroDivisionError):
            cache.get_or_make("a", lambda: 1 / 0)
        assert "a" not in cache
        assert cache.get_or_make("a", lambda: 2.0) == 2.0

    def test_threads_share_it(self) -> None:
        cache: Cache[int, str] = Cache(50, weigh=len)

        def work(start: int) -> None:
            for number in range(start, start + 2_000):
                cache.put(number % 97, "x" * (number % 7))
                cache.get(number % 89)
                cache.pop(number % 31)

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(0, 800, 100)))
        assert cache.weight == sum(len(value) for _, value in cache.items()) <= 50
