"""What the applications of a server share: REST, OpenAI's wire, the web page, the live tail and MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct

from hansard.assembly.summaries import Summarizer
from hansard.server.auth import Auth
from hansard.server.deadlines import Deadlines
from hansard.server.relay_sessions import RelaySessions
from hansard.server.settings import Settings
from hansard.server.tail import Shutdown
from hansard.server.upload_slots import UploadSlots
from hansard.store import Store


class Observer(Protocol):
    """Is called for every response: the audit log, the metrics, the request log, traces."""

    def on_response(self, request: Any, status: int, code: str | None) -> None:
        """Called before a response is sent. `code` is the error code, if it is an error."""


class ServerContext(Struct, frozen=True, kw_only=True):
    store: Store
    auth: Auth
    observers: tuple[Observer, ...]
    settings: Settings
    shutdown: Shutdown
    summarizers: Mapping[str, Summarizer]
    """The summarizers that clients may choose, by name."""
    body_deadlines: Deadlines
    """Limits how long a client may take to send a body."""
    handler_deadlines: Deadlines
    """Limits how long a handler may take."""
    relay_sessions: RelaySessions
    uploads: UploadSlots
    """Uploads of other programs' files that are received at the same time, each in a temporary file."""
    imports: asyncio.Semaphore
    """Received files that are read at the same time."""

    def observe(self, request: Any, status: int, code: str | None = None) -> None:
        for observer in self.observers:
            observer.on_response(request, status, code)
