"""The environment of a scenario: a folder, an event loop, and the options of the run.

Each contender that a scenario opens gets its own folder. Coroutines of blocking contenders are driven without an event
loop; the others run on one loop that is idle in between, so that contenders do not disturb each other.
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
    """The URL of our stores; `{path}` is replaced by a new file name for each."""
    folder: str | None = None
    """The folder for the files of all contenders; None for the system's temporary folder."""
    sizes: tuple[int, ...] = ()
    """How many messages `growth` and `import` use, the smallest first; none for the usual sizes."""
    keep: bool = False
    """Whether the stores of `growth` stay, for the next run."""


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
        """Returns a new path, and the URL of our store there."""
        path = Path(tempfile.mkdtemp(dir=self.folder)) / "store"
        return path, self.options.url.format(path=path)

    def kept(self, name: str) -> tuple[Path, str]:
        """Returns the path of a store that stays when the run ends, and its URL."""
        if self.options.folder is None:
            raise NotAvailable("needs a --folder for the stores that are kept")
        path = Path(self.options.folder) / name
        return path, self.options.url.format(path=path)

    def discard(self, place: tuple[Path, str]) -> None:
        """Deletes the data at a place."""
        shutil.rmtree(place[0].parent)

    def enter(self, *keys: str) -> list[Contender]:
        """Opens the available contenders of these names until the scenario ends."""
        return [self._open(kind) for kind in self.roster.of(keys)]

    @contextmanager
    def fresh(self, kind: type[C]) -> Iterator[C]:
        """Yields a contender with an empty store, which is deleted afterwards."""
        contender = self._open(kind)
        try:
            yield contender
        finally:
            self._close(contender)
            self.discard((contender.path, contender.url))

    def run(self, contender: Contender, coroutine: Coroutine[Any, Any, T]) -> T:
        return stepped(coroutine) if contender.blocking else self._runner.run(coroutine)

    def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, for scenarios that open stores themselves."""
        return self._runner.run(coroutine)

    def require_files(self) -> None:
        """Raises `NotAvailable` for URLs without `{path}`, for scenarios about files and processes."""
        if "{path}" not in self.options.url:
            raise NotAvailable("needs a store in a folder of the benchmark: a --url with {path}")

    def open_at(self, kind: type[C], url: str) -> C:
        """Opens a contender on a server that the scenario has started, until the scenario ends."""
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
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a blocking contender suspended")
