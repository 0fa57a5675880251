"""The counters of one worker, and those of all workers together.

Each worker counts in plain dictionaries, which only its event loop uses. With several workers, each writes its counters
to a file in a folder that all share, shortly after they have changed; the one that gets a scrape adds them up. The
file of a worker that died stays, so that no counter ever decreases.
"""

from __future__ import annotations

import asyncio
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

K = TypeVar("K", int, str)
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, float("inf"))
_DELAY = 0.5
"""Seconds from a change until other workers see it."""


class Durations(Struct):
    """Durations of the requests of one route."""

    counts: list[int]
    sum: float = 0.0


def _no_durations() -> Durations:
    return Durations([0] * len(BUCKETS))


class WorkerCounters(Struct):
    """What a worker counts."""

    process: int = 0
    requests: dict[str, dict[int, int]] = {}
    """By action and status."""
    seconds: dict[str, Durations] = {}
    errors: dict[str, int] = {}
    totals: dict[str, int] = {}
    """WorkerCounters without labels."""
    gauges: dict[str, float] = {}
    """Values of this moment, which end with the worker."""

    def count_request(self, action: str, status: int, seconds: float, code: str | None) -> None:
        try:
            statuses, times = self.requests[action], self.seconds[action]
        except KeyError:
            statuses = self.requests[action] = {}
            times = self.seconds[action] = _no_durations()
        statuses[status] = statuses.get(status, 0) + 1
        times.counts[bisect_left(BUCKETS, seconds)] += 1
        times.sum += seconds
        if code is not None:
            self.errors[code] = self.errors.get(code, 0) + 1

    def add(self, other: WorkerCounters) -> None:
        for action, statuses in other.requests.items():
            _add(self.requests.setdefault(action, {}), statuses)
        for action, times in other.seconds.items():
            mine = self.seconds.setdefault(action, _no_durations())
            mine.counts = [one + more for one, more in zip(mine.counts, times.counts, strict=True)]
            mine.sum += times.sum
        _add(self.errors, other.errors)
        _add(self.totals, other.totals)
        if _is_running(other.process):
            for name, value in other.gauges.items():
                larger = name.startswith("oldest")
                self.gauges[name] = max(self.gauges.get(name, 0), value) if larger else self.gauges.get(name, 0) + value


def _add(into: dict[K, int], more: dict[K, int]) -> None:
    for key, count in more.items():
        into[key] = into.get(key, 0) + count


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class SharedCounters:
    """The counters of all workers, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}.json"
        self._is_scheduled = False

    def schedule(self, source: Callable[[], WorkerCounters]) -> None:
        """Writes this worker's counters soon."""
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_later(_DELAY, self.write, source)

    def write(self, source: Callable[[], WorkerCounters]) -> None:
        self._is_scheduled = False
        part = self._own.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(source()))
        part.replace(self._own)

    def others(self) -> Iterator[WorkerCounters]:
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                yield msgspec.json.decode(path.read_bytes(), type=WorkerCounters)
