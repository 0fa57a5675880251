"""A store that can be away: its backend refuses every call, or never answers, as long as a test wants."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Literal, cast

from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend
from hansard.errors import Unavailable
from hansard.store import Store

State = Literal["there", "away", "hanging"]


class Wire:
    """Sits between a store and its backend."""

    def __init__(self, inner: Backend | None = None) -> None:
        self.inner = inner or MemoryBackend()
        self.state: State = "there"
        self.loses_answers = False
        """The request is carried out, but its reply is lost."""
        self.calls: list[str] = []

    def store(self, **options: Any) -> Store:
        return Store(cast(Backend, self), **options)

    @property
    def capabilities(self) -> Any:
        return self.inner.capabilities

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(found) or name == "close":
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if self.state == "away":
                raise Unavailable("the store is away", outcome="not_applied")
            if self.state == "hanging":
                await asyncio.Event().wait()
            answer = await found(*args, **kwargs)
            if self.loses_answers:
                raise Unavailable("the answer got lost", outcome="unknown")
            return answer

        return call
