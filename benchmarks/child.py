"""Runs work in child processes, for memory peaks of their own and for concurrent writers."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
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
        return _peak_of(status)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _peak_of(status: Path) -> float:
    fields = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


@contextmanager
def peaks_of_children() -> Iterator[list[float]]:
    """Fills a list with the peak memory of each process that this one starts meanwhile, in MiB. Needs Linux."""
    peaks: dict[str, float] = {}
    found: list[float] = []
    end = threading.Event()
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    children.read_text(encoding="ascii")  # where it is missing, a limit of memory would be met without a measurement

    def sample() -> None:
        while not end.wait(0.02):
            for pid in children.read_text(encoding="ascii").split():
                with suppress(OSError, KeyError):  # it may end meanwhile
                    peaks[pid] = _peak_of(Path(f"/proc/{pid}/status"))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join()
        found += peaks.values()


def drive(contender: Contender, coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a contender's coroutine without an arena."""
    return stepped(coroutine) if contender.blocking else asyncio.run(coroutine)
