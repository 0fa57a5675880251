"""What every application of a server needs: REST, OpenAI's wire, the page, the live tail, the tools for models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from hansard.assembly.summaries import Summarizer
from hansard.server.auth import Auth
from hansard.server.deadlines import Deadlines
from hansard.server.relay_sessions import RelaySessions
from hansard.server.settings import Settings
from hansard.server.tail import Shutdown
from hansard.store import Store


class Observer(Protocol):
    """Sees every answer: the audit log, the metrics, the log of requests."""

    def on_response(self, request: Any, status: int, code: str | None) -> None:
        """Called before an answer is sent. `code` is that of its error, if it is one."""


class ServerContext(Struct, frozen=True, kw_only=True):
    store: Store
    auth: Auth
    observers: tuple[Observer, ...]
    settings: Settings
    shutdown: Shutdown
    summarizers: Mapping[str, Summarizer]
    """Those that clients may ask for, by name."""
    body_deadlines: Deadlines
    """How long a client may take to send a body."""
    handler_deadlines: Deadlines
    """How long the store may take."""
    relay_sessions: RelaySessions

    def observe(self, request: Any, status: int, code: str | None = None) -> None:
        for observer in self.observers:
            observer.on_response(request, status, code)
