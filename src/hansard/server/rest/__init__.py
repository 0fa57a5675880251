"""The routes under `/api/v1`. `ENDPOINTS` contains the `routes` of every module."""

from __future__ import annotations

from hansard.server.endpoints import Endpoint
from hansard.server.rest import (
    admin,
    backend,
    blobs,
    branches,
    conversations,
    imports,
    lifecycle,
    members,
    messages,
    prompts,
    ratings,
    records,
    search,
    shares,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *conversations.routes,
    *messages.routes,
    *branches.routes,
    *ratings.routes,
    *members.routes,
    *shares.routes,
    *prompts.routes,
    *search.routes,
    *records.routes,
    *blobs.routes,
    *lifecycle.routes,
    *imports.routes,
    *admin.routes,
    *backend.routes,
)
