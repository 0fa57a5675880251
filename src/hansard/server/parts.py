"""What every entrance of a server needs: the API, the WebSockets, the tools for models."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from hansard.assembly.summaries import Summarizer
from hansard.server.gate import Gate
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
