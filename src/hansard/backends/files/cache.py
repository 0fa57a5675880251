"""What was used last, up to a weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class Lru(Generic[V]):
    """Things by key; the ones not used for long go when all together weigh too much. The last one always stays."""

    def __init__(self, most: int, least: int, drop: Callable[[V], None] | None = None) -> None:
        self._most = most
        self._let_go = drop
        self._least = least
        """What a thing weighs until somebody says more."""
        self._things: OrderedDict[Hashable, V] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self._lock:
            if key in self._things:
                self._things.move_to_end(key)
                return self._things[key]
            thing = self._things[key] = make()
        self.weigh(key, self._least)
        return thing

    def weigh(self, key: Hashable, weight: int) -> None:
        with self._lock:
            if key in self._things:
                self._total += weight - self._weights.get(key, 0)
                self._weights[key] = weight
            while self._total > self._most and len(self._things) > 1:
                self._drop(next(iter(self._things)))

    def forget(self, key: Hashable) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        thing = self._things.pop(key, None)
        if thing is not None and self._let_go is not None:
            self._let_go(thing)
        self._total -= self._weights.pop(key, 0)

    def values(self) -> list[V]:
        with self._lock:
            return list(self._things.values())
