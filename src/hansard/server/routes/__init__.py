"""The routes below `/api/v1`, by what they are about. `ENDPOINTS` is all of them: add a module's `ROUTES` here."""

from __future__ import annotations

from hansard.server.calls import Endpoint
from hansard.server.routes import admin, blobs, branches, conversations, lifecycle, messages, records

ENDPOINTS: tuple[Endpoint, ...] = (
    *conversations.ROUTES,
    *messages.ROUTES,
    *branches.ROUTES,
    *records.ROUTES,
    *blobs.ROUTES,
    *lifecycle.ROUTES,
    *admin.ROUTES,
)
