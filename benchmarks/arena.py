"""Where contenders meet: a folder, an event loop, and the options of the run.

Each contender that a scenario opens gets a folder of its own. Coroutines of blocking contenders are stepped by
hand; those of the others run on one loop that stands still in between, so that lanes do not disturb each other.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from benchmarks.contenders import Contender, NotAvailable, Roster

T = TypeVar("T")
C = TypeVar("C", bound=Contender)

DEFAULT_URL = "sqlite:///{path}.db"


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool = False
    url: str = DEFAULT_URL
    """What ours connects to; `{path}` becomes a fresh file name for each store."""
    folder: str | None = None
    """Where the files of all contenders go; the system's temporary folder when None."""


class Arena:
    def __init__(self, options: Options, roster: Roster) -> None:
        self.options = options
        self.roster = roster
        self._opened: list[Contender] = []

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="hansard-bench-", dir=self.options.folder))
        self._runner = asyncio.Runner()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for contender in list(self._opened):
                self._close(contender)
        finally:
            self._runner.close()
            shutil.rmtree(self.folder)

    def size(self, full: int, *, quick: int) -> int:
        return quick if self.options.quick else full

    def place(self) -> tuple[Path, str]:
        """A fresh path, and the URL of our store there."""
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "store"
        return path, self.options.url.format(path=path)

    def forget(self, place: tuple[Path, str]) -> None:
        """Delete what was kept at a place."""
        shutil.rmtree(place[0].parent)

    def enter(self, *keys: str) -> list[Contender]:
        """Open those that can be had; they stay open until the scenario ends."""
        return [self._open(kind) for kind in self.roster.of(keys)]

    @contextmanager
    def fresh(self, kind: type[C]) -> Iterator[C]:
        """A contender on an empty store, gone afterwards."""
        contender = self._open(kind)
        try:
            yield contender
        finally:
            self._close(contender)
            self.forget((contender.path, contender.url))

    def run(self, contender: Contender, coroutine: Coroutine[Any, Any, T]) -> T:
        return stepped(coroutine) if contender.blocking else self._runner.run(coroutine)

    def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """For scenarios that open stores themselves."""
        return self._runner.run(coroutine)

    def needs_files(self) -> None:
        """For scenarios about files and processes: a URL without a path of ours cannot take part."""
        if "{path}" not in self.options.url:
            raise NotAvailable("needs a store in a folder of the benchmark: a --url with {path}")

    def open_at(self, kind: type[C], url: str) -> C:
        """On a server that a scenario has started; it stays open until the scenario ends."""
        return self._enter(kind(self.place()[0], url))

    def _open(self, kind: type[C]) -> C:
        return self._enter(kind(*self.place()))

    def _enter(self, contender: C) -> C:
        self.run(contender, contender.open())
        self._opened.append(contender)
        return contender

    def _close(self, contender: Contender) -> None:
        self._opened.remove(contender)
        self.run(contender, contender.close())


def stepped(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a blocking contender suspended")
