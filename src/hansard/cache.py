"""A bounded cache: values by key, up to a total weight. The least recently used are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Holds values until their weights exceed `capacity`. Without `weigh`, each value weighs 1.

    Threads may share it. `peek` and `in` take no lock and do not count as a use, for readers on hot paths.
    """

    def __init__(self, capacity: int, weigh: Callable[[V], int] | None = None) -> None:
        if capacity < 1:
            raise ValueError(f"the capacity of a cache must be at least 1, not {capacity}")
        self._capacity = capacity
        self._weigh = weigh
        self._values: OrderedDict[K, V] = OrderedDict()
        self._weights: dict[K, int] = {}
        self._total = 0
        self._lock = Lock()
        self.peek = self._values.get

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: K) -> bool:
        return key in self._values

    @property
    def weight(self) -> int:
        """The total weight of all values."""
        return self._total

    def get(self, key: K) -> V | None:
        """Returns the value and marks it as used; None when there is none."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value, made and stored if it is missing. `make` runs under the lock, so once for each key."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            value = make()
            self._store(key, value)
            return value

    def put(self, key: K, value: V) -> None:
        """Stores the value as the most recent one. One that is too heavy for the cache is not stored."""
        with self._lock:
            self._drop(key)
            self._store(key, value)

    def pop(self, key: K) -> V | None:
        with self._lock:
            return self._drop(key)

    def drop_where(self, condition: Callable[[K], bool]) -> None:
        """Drops the values whose keys fulfil the condition."""
        with self._lock:
            for key in [key for key in self._values if condition(key)]:
                self._drop(key)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weights.clear()
            self._total = 0

    def items(self) -> list[tuple[K, V]]:
        """Returns the items, the least recently used first."""
        with self._lock:
            return list(self._values.items())

    def _store(self, key: K, value: V) -> None:
        weight = 1 if self._weigh is None else self._weigh(value)
        if weight > self._capacity:
            return
        self._values[key] = value
        self._total += weight
        if self._weigh is not None:
            self._weights[key] = weight
        while self._total > self._capacity:
            self._drop(next(iter(self._values)))

    def _drop(self, key: K) -> V | None:
        if key not in self._values:
            return None
        self._total -= self._weights.pop(key, 1)
        return self._values.pop(key)
