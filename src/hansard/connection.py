"""From a URL to a Store: `hansard.connect`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hansard.backends import schemes
from hansard.limits import Limits
from hansard.store import Store, checks
from hansard.store.core import Clock, Titler, utc_now

if TYPE_CHECKING:
    from hansard.search.reranker import Reranker
    from hansard.search.vectors import Embedder


class Connecting:
    """A store about to be opened: await it, or use it with `async with`, which also closes it."""

    def __init__(self, open_store: Callable[[], Awaitable[Store]]) -> None:
        self._open = open_store
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return self._open().__await__()

    async def __aenter__(self) -> Store:
        self._store = await self._open()
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._store is not None
        await self._store.close()


def connect(
    url: str | None = None,
    *,
    limits: Limits | None = None,
    auto_title: bool | Titler = False,
    clock: Clock = utc_now,
    embedder: Embedder | None = None,
    reranker: Reranker | None = None,
    lazy: bool = False,
    blobs: str | None = None,
) -> Connecting:
    """Opens a store: `async with hansard.connect("sqlite:///chats.db") as store`, or `store = await hansard.connect()`.

    Without a URL it opens `$HANSARD_URL`, else `sqlite:///hansard.db`. `auto_title=True` titles new conversations by
    the first text of a user; pass a function of the first messages, which may be async, for better titles. With an
    `embedder`, `search` also finds by meaning; a `reranker` ranks its best hits again. With `lazy=True`, the first call
    opens a storage that is reached over a network, so that a program can start while it is unreachable. `blobs` is a
    bucket for the blobs, `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`; without one, they are in the storage itself.
    """

    async def open_store() -> Store:
        open = schemes.open_lazily if checks.flag(lazy, "lazy") else schemes.open_backend
        backend = await open(schemes.default_url() if url is None else url)
        if blobs is not None:
            backend = await schemes.with_bucket(backend, blobs)
        try:
            return Store(
                backend, limits=limits, auto_title=auto_title, clock=clock, embedder=embedder, reranker=reranker
            )
        except BaseException:
            await backend.close()
            raise

    return Connecting(open_store)
