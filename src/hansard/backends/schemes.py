"""From a URL to a backend.

A scheme names a module, imported on demand, with a function `open_backend(url, blocking=…, upgrade=…)`. Other schemes
come from the entry points `hansard.backends`, whose objects are such functions.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Awaitable
from functools import cache
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from hansard.contract.backend import Backend
from hansard.errors import Unsupported, ValidationError
from hansard.urls import Url, suggest

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DEFAULT_URL = "sqlite:///hansard.db"
_MIRRORS = "openai+"
"""Their index is opened at once; the API is called only when needed."""


class Scheme(Struct, frozen=True):
    """The module of a scheme's backend, and the extra that it needs."""

    module: str
    extra: str | None = None
    direct: bool = False
    """In blocking mode it opens and works without suspending."""


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
    "cassandra": Scheme("hansard.backends.cassandra", extra="cassandra"),
    "http": Scheme("hansard.backends.http", extra="http"),
    "https": Scheme("hansard.backends.http", extra="http"),
    "openai+conversations": Scheme("hansard.backends.openai", extra="openai"),
    "openai+threads": Scheme("hansard.backends.openai", extra="openai"),
}


class Opener(Protocol):
    def __call__(self, url: Url, *, blocking: bool, upgrade: bool) -> Awaitable[Backend]: ...


async def open_backend(url: str, *, blocking: bool = False, upgrade: bool = False) -> Backend:
    """Opens the storage that a URL names. In blocking mode nothing here suspends unless the backend must."""
    parts = Url(url)
    bucket = parts.option("blobs")
    opener = _find_opener(parts)
    backend = await opener(parts, blocking=blocking, upgrade=upgrade)
    return backend if bucket is None else await with_bucket(backend, bucket)


async def with_bucket(backend: Backend, bucket: str) -> Backend:
    """Returns the backend with its blobs in a bucket. Closes it if that cannot be."""
    from hansard.backends.bucket_blobs import bucket_blobs  # imported here: few stores keep blobs elsewhere

    try:
        return bucket_blobs(backend, bucket)
    except BaseException:
        await backend.close()
        raise


async def open_lazily(url: str, *, blocking: bool = False) -> Backend:
    """Like `open_backend`, but the first call opens a storage that is reached over a network.

    The scheme and its extra are checked now.
    """
    parts = Url(url)
    _find_opener(parts)
    if opens_directly(url) or parts.scheme.startswith(_MIRRORS):
        return await open_backend(url, blocking=blocking)
    from hansard.backends.lazy import lazy  # imported here: few stores are opened lazily

    return lazy(lambda: open_backend(url, blocking=blocking), parts.scheme)


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
    foreign = _foreign_schemes(tuple(sys.path))
    if url.scheme not in foreign:
        # Its package may have been installed since.
        _foreign_schemes.cache_clear()
        foreign = _foreign_schemes(tuple(sys.path))
    if url.scheme not in foreign:
        known = (*SCHEMES, *foreign)
        raise ValidationError(f"unknown scheme {url.scheme + '://'!r} in {url.text!r}{suggest(url.scheme, known)}")
    return foreign[url.scheme].load()  # type: ignore[no-any-return]


@cache
def _foreign_schemes(_: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Returns the entry points in the folders of this `sys.path`. Reading them takes longer than opening a store."""
    from importlib.metadata import entry_points  # imported here: it would be a third of `import hansard`

    return {point.name: point for point in entry_points(group="hansard.backends")}


def opens_directly(url: str) -> bool:
    """Returns whether a URL opens in blocking mode without an event loop."""
    scheme = SCHEMES.get(Url(url).scheme)
    return scheme is not None and scheme.direct


def default_url() -> str:
    return os.environ.get("HANSARD_URL") or DEFAULT_URL
