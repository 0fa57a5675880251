"""A storage under test, which is opened repeatedly, in both modes of the API.

Tests are plain functions. A `Driver` has the methods of `hansard.sync.Store`; in the mode `blocking` it is the
blocking API, in the mode `async` it runs the async API on an event loop of its own, one call after another. So one
test proves both, and a third party needs no plugin for async tests. Concurrent calls go through
`Driver.together` (tasks or threads) and `Driver.scenario` (async code on the store's own loop).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, cast

from hansard import sync
from hansard.backends import schemes
from hansard.blocking import Runner, run_to_end
from hansard.contract.backend import Backend
from hansard.contract.types import Context
from hansard.store import Store

Mode = Literal["async", "blocking"]
MODES: tuple[Mode, ...] = ("async", "blocking")
Factory = Callable[[bool], Awaitable[Backend]]
"""Opens the storage. If the argument is true, its methods must not suspend, where it supports that."""

T = TypeVar("T")
_END = object()


class OnLoop(Runner):
    """Drives the async API from plain test code, on one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.Runner()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.call(coroutine)

    def iterate(self, iterator: AsyncIterator[T], *, waits: bool) -> Iterator[T]:
        async def step() -> Any:
            return await anext(iterator, _END)

        try:
            while (item := self.call(step())) is not _END:
                yield cast(T, item)
        finally:
            self.call(cast(Any, iterator).aclose())

    def close(self) -> None:
        self._loop.close()


class Driver(sync.Store):
    """A store under test, called without `await` in both modes."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs one coroutine of the backend or of the async store."""
        return self._runner.call(coroutine)

    def context(self) -> Context:
        """Returns the context (tenant, user, time) for calling the backend directly."""
        return self._inner._view.context()

    def again(self, **options: Any) -> Driver:
        """Returns another Store on the same open backend, for example with other limits."""
        return self.over_backend(self.backend, **options)

    def over_backend(self, backend: Backend, **options: Any) -> Driver:
        """Returns another Store on a backend that wraps this one's, with the same event loop."""
        options.setdefault("clock", self._inner._view.clock)
        return Driver(Store(backend, **options), self._runner)

    def scenario(self, play: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Runs async code with the async store, on an event loop in both modes."""
        run = self._runner.call if isinstance(self._runner, OnLoop) else self._runner.thread.run
        return run(play(self._inner))

    def together(self, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
        """Makes these calls concurrently, as tasks or in threads; returns results and exceptions in their order."""
        if isinstance(self._runner, OnLoop):
            return self.run(self._gather(calls))
        with ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(call, self) for call in calls]
            return [future.exception() or future.result() for future in futures]

    async def _gather(self, calls: Sequence[Callable[[Any], Any]]) -> list[Any]:
        return await asyncio.gather(*(call(self._inner) for call in calls), return_exceptions=True)

    def dispose(self) -> None:
        """Closes the store, even if it is closed already, and its event loop."""
        self.close()
        if isinstance(self._runner, OnLoop):
            self._runner.close()


class Target:
    """A storage under test, by the URL that opens it or by a function that does.

    `folder` is the folder of its files, if they can be read without the backend: then the suite also reads them
    directly, and damages them.
    """

    def __init__(self, where: str | Factory, *, folder: Path | None = None) -> None:
        self.where = where
        self.folder = folder
        self._made: Path | None = None
        self._opened: list[Driver] = []

    @classmethod
    def temporary(cls, url: str) -> Self:
        """A storage in a new folder, which `discard` removes. In the URL, `{folder}` is replaced by its path."""
        folder = Path(tempfile.mkdtemp(prefix="hansard-"))
        target = cls(url.format(folder=folder))
        target._made = folder
        return target

    @property
    def url(self) -> str | None:
        """The URL; None when other processes cannot open the storage."""
        return self.where if isinstance(self.where, str) else None

    def open(self, mode: Mode = "blocking", **options: Any) -> Driver:
        """Opens the storage, again if it is open already; the options are those of `hansard.Store`."""
        runner = OnLoop() if mode == "async" else Runner()
        try:
            driver = self._open(runner, options)
        except BaseException:
            runner.thread.stop()
            if isinstance(runner, OnLoop):
                runner.close()
            raise
        self._opened.append(driver)
        return driver

    def _open(self, runner: Runner, options: dict[str, Any]) -> Driver:
        if isinstance(runner, OnLoop):
            return Driver(Store(runner.call(self._backend(blocking=False)), **options), runner)
        direct = isinstance(self.where, str) and schemes.opens_directly(self.where)
        backend = (run_to_end if direct else runner.thread.run)(self._backend(blocking=True))
        return Driver._around(backend, runner, options)

    async def _backend(self, *, blocking: bool) -> Backend:
        if isinstance(self.where, str):
            return await schemes.open_backend(self.where, blocking=blocking)
        return await self.where(blocking)

    def close(self) -> None:
        """Closes every store that was opened."""
        while self._opened:
            self._opened.pop().dispose()

    def discard(self) -> None:
        """Closes every store, and removes a temporary folder."""
        self.close()
        if self._made is not None:
            shutil.rmtree(self._made)
            self._made = None

    # Files

    def raw(self) -> bytes:
        """Returns the content of all files, read without the store, which should be closed."""
        assert self.folder is not None
        return b"\n".join(path.read_bytes() for path in self._files())

    def damage(self, old: bytes, new: bytes) -> bool:
        """Replaces bytes in the files by as many others; returns False when no file contains them."""
        assert len(old) == len(new)
        found = False
        for path in self._files():
            content = path.read_bytes()
            if old in content:
                found = True
                path.write_bytes(content.replace(old, new))
        return found

    def _files(self) -> list[Path]:
        assert self.folder is not None
        return sorted(path for path in self.folder.rglob("*") if path.is_file())
