"""What every entrance of a server needs: the API, the WebSockets, the tools for models."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from starlette.types import Receive

from hansard.assembly.summaries import Summarizer
from hansard.server.bodies import Body
from hansard.server.deadlines import Deadlines
from hansard.server.gate import Gate
from hansard.server.relays import Relays
from hansard.server.settings import Settings
from hansard.server.tail import Stopping
from hansard.server.watchers import Watchers
from hansard.store import Store


class Parts(Struct, frozen=True, kw_only=True):
    store: Store
    gate: Gate
    watchers: Watchers
    settings: Settings
    stopping: Stopping
    summarizers: Mapping[str, Summarizer]
    """Those that clients may ask for, by name."""
    bodies: Deadlines
    """How long a client may take to send a body."""
    answers: Deadlines
    """How long the store may take."""
    relays: Relays

    def body(self, receive: Receive, headers: dict[bytes, bytes]) -> Body:
        return Body(receive, headers, self.settings.max_body_bytes, self.bodies)
