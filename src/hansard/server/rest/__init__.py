"""The routes below `/api/v1`, by what they are about. `ENDPOINTS` is all of them: add a module's `ROUTES` here."""

from __future__ import annotations

from hansard.server.calls import Endpoint
from hansard.server.rest import (
    admin,
    backend,
    blobs,
    branches,
    conversations,
    lifecycle,
    messages,
    prompts,
    records,
    search,
    tails,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *conversations.ROUTES,
    *messages.ROUTES,
    *branches.ROUTES,
    *prompts.ROUTES,
    *search.ROUTES,
    *tails.ROUTES,
    *records.ROUTES,
    *blobs.ROUTES,
    *lifecycle.ROUTES,
    *admin.ROUTES,
    *backend.ROUTES,
)
PUBLIC = tuple(endpoint for endpoint in ENDPOINTS if endpoint.is_public)
"""Those that the OpenAPI document describes."""
