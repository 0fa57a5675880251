"""The four functions that users implement over their own store, and how they are called."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from hansard.errors import Closed, HansardError, Outcome, Unavailable, ValidationError
from hansard.executor import run_in_thread

T = TypeVar("T")
Token = Any
"""A value's version in the store: an ETag, a generation, a revision. Any value but None."""

_NAMES = ("get", "put", "delete", "list")
PAGE = 1000


class KeyValue(Protocol):
    """A custom store. All four functions are `async def`, or all four are `def`. Any exception means: retry later.

    Keys are text of the characters `a-z 0-9 / - .`, at most 700 of them. Values are bytes.
    """

    def get(self, key: str) -> Awaitable[tuple[bytes, Token] | None] | tuple[bytes, Token] | None:
        """Returns the value and its token, as the last `put` by any client left them; None if there is no such key."""

    def put(self, key: str, value: bytes, expected_token: Token | None) -> Awaitable[Token | None] | Token | None:
        """Stores the value if the key still has this token (None: if there is no such key), in one step.

        Returns the new token, or None if the key has another token and nothing was stored.
        """

    def delete(self, key: str, expected_token: Token | None) -> Awaitable[bool] | bool:
        """Removes the key if it still has this token (None: any token). Returns False if it was not removed."""

    def list(self, prefix: str, after: str, limit: int) -> Awaitable[Sequence[str]] | Sequence[str]:
        """Returns the first `limit` keys, in ascending order, that begin with `prefix` and are greater than `after`."""


class Functions:
    """Calls the four functions, blocking or not, and translates their exceptions."""

    def __init__(self, store: KeyValue, *, in_threads: bool = False) -> None:
        missing = [name for name in _NAMES if not callable(getattr(store, name, None))]
        if missing:
            raise ValidationError(f"a custom store needs the functions {_NAMES}; missing: {', '.join(missing)}")
        colours = {inspect.iscoroutinefunction(getattr(store, name)) for name in _NAMES}
        if len(colours) > 1:
            raise ValidationError("get, put, delete and list must be all async or all blocking")
        if in_threads and True in colours:
            raise ValidationError("in_threads is for blocking functions: these are async already")
        self._store = store
        self._in_threads = in_threads
        self.never_suspends = not in_threads and True not in colours
        self.is_closed = False

    def check_open(self) -> None:
        if self.is_closed:
            raise Closed("this store was closed")

    async def _call(self, name: str, outcome: Outcome, *args: Any) -> Any:
        self.check_open()
        function = getattr(self._store, name)
        try:
            if self._in_threads:
                return await run_in_thread(function, *args)
            answer = function(*args)
            return await answer if inspect.isawaitable(answer) else answer
        except HansardError:
            raise
        except Exception as error:
            raise Unavailable(f"{name}({args[0]!r}) of the store failed: {error!r}", outcome=outcome) from error

    async def get(self, key: str) -> tuple[bytes, Token] | None:
        found: tuple[bytes, Token] | None = await self._call("get", "not_applied", key)
        return found

    async def put(self, key: str, value: bytes, expected: Token | None) -> Token | None:
        return await self._call("put", "unknown", key, value, expected)

    async def delete(self, key: str, expected: Token | None = None) -> bool:
        return bool(await self._call("delete", "unknown", key, expected))

    async def page(self, prefix: str, after: str = "", limit: int = PAGE) -> Sequence[str]:
        keys: Sequence[str] = await self._call("list", "not_applied", prefix, after, limit)
        return keys

    async def keys(self, prefix: str, after: str = "", limit: int = PAGE) -> AsyncGenerator[str, None]:
        """Yields all keys with this prefix, reading `limit` at a time."""
        while page := await self.page(prefix, after, limit):
            for key in page:
                yield key
            if len(page) < limit:
                return
            after = page[-1]

    async def pause(self, seconds: float) -> None:
        """Waits for another thread or process."""
        if self.never_suspends:
            time.sleep(seconds)  # noqa: ASYNC251  (no event loop is blocked)
        else:
            await asyncio.sleep(seconds)

    async def all(self, calls: Iterable[Awaitable[T]]) -> list[T]:
        """Returns the answers of independent calls, made concurrently if the functions are async."""
        if self.never_suspends:
            return [await call for call in calls]
        return list(await asyncio.gather(*calls))
