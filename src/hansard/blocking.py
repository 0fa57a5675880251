"""Runs coroutines from blocking code: directly if they never suspend, else on a loop thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar, cast

from hansard.errors import Closed, Unsupported
from hansard.executor import here

T = TypeVar("T")
Call = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine of a store to its end."""

_DONE = object()


class LoopThread:
    """An event loop on a thread of its own, started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._has_ended = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise Unsupported(
                "a blocking call from code that the store itself runs, such as a summarizer, would deadlock: "
                "make it on a thread of its own, with asyncio.to_thread",
                capability="blocking",
            )
        try:
            return self.submit(coroutine).result()
        except CancelledError:
            raise Closed("this store was closed") from None
        finally:
            if self._has_ended:
                # A late call, such as the closing of an abandoned iterator, must not leave a thread behind.
                self.stop()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        # Under the lock, so that `stop` sees every submitted coroutine.
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="hansard-loop", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def stop(self) -> None:
        """Stops the loop, after cancelling what other threads still wait for."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            self._has_ended = True
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_others(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Runner:
    """Runs one store's coroutines: in the calling thread if the backend allows it."""

    def __init__(self) -> None:
        self.thread = LoopThread()
        self.direct = False

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_to_end(coroutine) if self.direct else self.thread.run(coroutine)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For coroutines that await user code, and so may suspend on any backend."""
        return self.thread.run(coroutine)

    def iterate(self, iterator: AsyncIterator[T], *, waits: bool) -> Iterator[T]:
        call = self.thread.run if waits or not self.direct else run_to_end
        try:
            while (item := call(_next(iterator))) is not _DONE:
                yield cast(T, item)
        finally:
            close = getattr(iterator, "aclose", None)
            # An iterator that has ended, as after closing the store, needs no loop to be closed on.
            if close is not None and getattr(iterator, "ag_frame", iterator) is not None:
                call(close())


def run_to_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends to its end."""
    outer, here.is_stepped = here.is_stepped, True
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    finally:
        here.is_stepped = outer
    coroutine.close()
    raise RuntimeError("a backend with capabilities.blocking has suspended")


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _DONE)
