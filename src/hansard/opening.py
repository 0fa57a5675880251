"""From a URL to a Store.

A scheme names a module, imported only now, with a function `open_backend(url, blocking=…, upgrade=…)`. Schemes that are
not ours come from the entry points `hansard.backends`, whose objects are such functions.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from hansard.contract.backend import Backend
from hansard.errors import Unsupported, ValidationError
from hansard.limits import Limits
from hansard.store import Store, checks
from hansard.store.core import Clock, Titler, utc_now
from hansard.urls import Url, suggest

if TYPE_CHECKING:
    from hansard.search.vectors import Embedder

DEFAULT_URL = "sqlite:///hansard.db"
_MIRRORS = "openai+"
"""Their index is opened at once, and the far side is only asked when there is something to ask."""


class Scheme(Struct, frozen=True):
    """Where a scheme's backend lives, and the extra that it needs."""

    module: str
    extra: str | None = None
    direct: bool = False
    """In blocking mode it neither opens nor works by suspending."""


SCHEMES = {
    "none": Scheme("hansard.backends.none", direct=True),
    "memory": Scheme("hansard.backends.memory", direct=True),
    "file": Scheme("hansard.backends.files", direct=True),
    "sqlite": Scheme("hansard.backends.sqlite", direct=True),
    "postgresql": Scheme("hansard.backends.postgres", extra="postgres"),
    "postgres": Scheme("hansard.backends.postgres", extra="postgres"),
    "redis": Scheme("hansard.backends.redis", extra="redis"),
    "rediss": Scheme("hansard.backends.redis", extra="redis"),
    "redis+unix": Scheme("hansard.backends.redis", extra="redis"),
    "redis+cluster": Scheme("hansard.backends.redis", extra="redis"),
    "http": Scheme("hansard.backends.http", extra="http"),
    "https": Scheme("hansard.backends.http", extra="http"),
    "openai+conversations": Scheme("hansard.backends.openai", extra="openai"),
    "openai+threads": Scheme("hansard.backends.openai", extra="openai"),
}


class Opener(Protocol):
    def __call__(self, url: Url, *, blocking: bool, upgrade: bool) -> Awaitable[Backend]: ...


async def open_backend(url: str, *, blocking: bool = False, upgrade: bool = False) -> Backend:
    """Opens the storage that a URL names. In blocking mode nothing here suspends if the backend can do without."""
    parts = Url(url)
    opener = _find_opener(parts)
    return await opener(parts, blocking=blocking, upgrade=upgrade)


async def open_lazily(url: str, *, blocking: bool = False) -> Backend:
    """The same, but a storage that is reached over a network is opened by the first call that needs it.

    The scheme and its extra are looked at now.
    """
    parts = Url(url)
    opener = _find_opener(parts)
    if opens_directly(url) or parts.scheme.startswith(_MIRRORS):
        return await opener(parts, blocking=blocking, upgrade=False)
    from hansard.wrappers.lazy import lazy  # only now: few stores are opened so

    return lazy(lambda: opener(Url(url), blocking=blocking, upgrade=False), parts.scheme)


def _find_opener(url: Url) -> Opener:
    scheme = SCHEMES.get(url.scheme)
    if scheme is None:
        return _foreign_opener(url)
    try:
        module = importlib.import_module(scheme.module)
    except ImportError as error:
        if scheme.extra is None:
            raise
        needs = f"{url.scheme}:// needs an extra: pip install 'hansard[{scheme.extra}]'"
        raise Unsupported(f"{needs} ({error})", capability=scheme.extra) from error
    return module.open_backend  # type: ignore[no-any-return]


def _foreign_opener(url: Url) -> Opener:
    from importlib.metadata import entry_points  # only now: it would be a third of `import hansard`

    foreign = {point.name: point for point in entry_points(group="hansard.backends")}
    if url.scheme not in foreign:
        known = (*SCHEMES, *foreign)
        raise ValidationError(f"unknown scheme {url.scheme + '://'!r} in {url.text!r}{suggest(url.scheme, known)}")
    return foreign[url.scheme].load()  # type: ignore[no-any-return]


def opens_directly(url: str) -> bool:
    """Whether a URL opens in blocking mode without an event loop."""
    scheme = SCHEMES.get(Url(url).scheme)
    return scheme is not None and scheme.direct


def default_url() -> str:
    return os.environ.get("HANSARD_URL") or DEFAULT_URL


class Opening:
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
    lazy: bool = False,
) -> Opening:
    """Opens a store: `async with hansard.connect("sqlite:///chats.db") as store`, or `store = await hansard.connect()`.

    Without a URL it is `$HANSARD_URL`, else `sqlite:///hansard.db`. `auto_title=True` titles new conversations by the
    first thing that a user said; a function of the first messages may do better, and may be async. With an `embedder`,
    `search` also finds by meaning. With `lazy=True`, a storage that is reached over a network is opened by the first
    call that needs it, so that a program starts while it is away.
    """

    async def open_store() -> Store:
        open = open_lazily if checks.flag(lazy, "lazy") else open_backend
        backend = await open(default_url() if url is None else url)
        try:
            return Store(backend, limits=limits, auto_title=auto_title, clock=clock, embedder=embedder)
        except BaseException:
            await backend.close()
            raise

    return Opening(open_store)
