"""Runs work in child processes, for memory peaks of their own and for concurrent writers."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.arena import stepped
from benchmarks.contenders import Contender

T = TypeVar("T")


# Spawned, not forked: a child must not inherit open stores, locks or a grown heap.
SPAWN = get_context("spawn")


def pool(workers: int, prepare: Callable[..., None] | None = None, *arguments: Any) -> ProcessPoolExecutor:
    """Returns a pool of child processes, each of which first runs `prepare(*arguments)`."""
    return ProcessPoolExecutor(workers, mp_context=SPAWN, initializer=prepare, initargs=arguments)


def in_child(function: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """Runs a module-level function in a child. Returns its result and the child's peak memory in MiB."""
    with pool(1) as one:
        return one.submit(_with_peak, function, arguments).result()


def _with_peak(function: Callable[..., T], arguments: tuple[object, ...]) -> tuple[T, float]:
    result = function(*arguments)
    return result, peak_memory()


def peak_memory() -> float:
    """Returns the peak memory of this process in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux, a child starts with the peak of its parent.
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def drive(contender: Contender, coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a contender's coroutine without an arena."""
    return stepped(coroutine) if contender.blocking else asyncio.run(coroutine)
