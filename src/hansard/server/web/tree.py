"""Every page. What is declared here is guarded, audited and tested."""

from __future__ import annotations

from hansard.server.calls import Endpoint
from hansard.server.web import admin, conversation, doing, listing, overview, searching, single, why

PAGES: tuple[Endpoint, ...] = (
    *overview.PAGES,
    *listing.PAGES,
    *conversation.PAGES,
    *single.PAGES,
    *searching.PAGES,
    *why.PAGES,
    *doing.PAGES,
    *admin.PAGES,
)
