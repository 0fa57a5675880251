"""Work in a process of its own: for memory peaks that nothing else has raised, and for several writers at once."""

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
    """Child processes, each of which first runs `prepare(*arguments)`."""
    return ProcessPoolExecutor(workers, mp_context=SPAWN, initializer=prepare, initargs=arguments)


def in_child(function: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """The result of a module-level function, and the peak memory of the process that ran it, in MiB."""
    with pool(1) as one:
        return one.submit(_with_peak, function, arguments).result()


def _with_peak(function: Callable[..., T], arguments: tuple[object, ...]) -> tuple[T, float]:
    result = function(*arguments)
    return result, peak_memory()


def peak_memory() -> float:
    """The most memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss here: on Linux a child begins with the peak of the process that made it.
        fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(fields["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def drive(contender: Contender, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a contender's coroutine where there is no arena."""
    return stepped(coroutine) if contender.blocking else asyncio.run(coroutine)
