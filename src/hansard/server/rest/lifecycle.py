"""Routes for usage, statistics, checks, erasure, purging, export and import."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from hansard.contract.backend import Capabilities
from hansard.errors import Conflict, Corrupt, FormatMismatch, NotFound, Unsupported, ValidationError
from hansard.exporters import exporter_named, exporters
from hansard.exporters.registry import OWN
from hansard.limits import Limits
from hansard.model import Problem, Receipt, Report, Stats, UsageRow
from hansard.server.endpoints import NDJSON, HttpResponse, Id, NoQuery, Routes
from hansard.server.parameters import json_object
from hansard.server.problems import HttpError
from hansard.server.request import Request

routes = Routes()


class About(Struct, frozen=True):
    """The server, and the caller's view of it."""

    version: str
    tenant: str
    user: str | None
    scopes: list[str]
    capabilities: Capabilities
    limits: Limits


class UsageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    since: date | None = None
    until: date | None = None


class UsageRows(Struct, frozen=True):
    items: list[UsageRow]


class Problems(Struct, frozen=True):
    """Problems that a check found; empty if there are none."""

    items: list[Problem]


class PurgeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """`before` or `older_than_seconds`; without either, no conversation is deleted."""

    before: datetime | None = None
    older_than_seconds: Annotated[int, Meta(ge=0, le=10**11)] | None = None
    by: Literal["last_message", "updated"] = "last_message"
    dry_run: bool = False


class ExportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Without `format`, the export format. The parameters after it choose conversations."""

    conversation_ids: list[Id] | None = None
    user_id: Id | None = None
    agent_id: Id | None = None
    format: str = OWN
    metadata: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    model: str | None = None
    label: Id | None = None
    rating: float | None = None


class ImportQuery(Struct, frozen=True, forbid_unknown_fields=True):
    on_conflict: Literal["skip", "error"] = "skip"
    verify: bool = False


@routes.get("/about")
async def about(request: Request[NoQuery, None]) -> About:
    """The server's version, capabilities and limits, and the caller's tenant, user and scopes."""
    from hansard import __version__

    store = request.store
    scopes = sorted(request.known_caller.scopes)
    return About(__version__, store.tenant_id, store.user_id, scopes, _capabilities(request), store.limits)


def _capabilities(request: Request[NoQuery, None]) -> Capabilities:
    """Returns the capabilities of the storage, with the limits of this server applied."""
    found, most = request.store.capabilities, request.context.settings.max_messages
    return structs.replace(found, atomic_batch=most if found.atomic_batch is None else min(found.atomic_batch, most))


@routes.get("/usage")
async def usage(request: Request[UsageQuery, None]) -> UsageRows:
    """Tokens and cost by day, user, agent and model. `since` is inclusive, `until` is not."""
    since, until = (None if day is None else day.isoformat() for day in (request.query.since, request.query.until))
    return UsageRows(await request.store.usage(since=since, until=until))


@routes.get("/stats")
async def stats(request: Request[NoQuery, None]) -> Stats:
    """Statistics of the tenant."""
    return await request.store.stats()


@routes.get("/check", scope="admin")
async def check(request: Request[NoQuery, None]) -> Problems:
    """Checks all data of the tenant, and returns the problems."""
    return Problems(await request.store.check())


@routes.post("/users/{user_id}/erase", scope="admin")
async def erase_user(request: Request[NoQuery, None]) -> Receipt:
    """Erases a user: owned conversations, the user's messages in others, records and usage. Idempotent."""
    return await request.store.erase_user(request.path[0])


@routes.post("/purge", scope="admin")
async def purge(request: Request[NoQuery, PurgeBody]) -> Receipt:
    """Deletes the tenant's conversations whose last message or, with `by` "updated", whose last change is older.

    For a conversation without messages, its creation counts. `dry_run` only counts them.
    """
    body = request.body
    if body.before is not None and body.older_than_seconds is not None:
        raise ValidationError("send `before` or `older_than_seconds`, not both")
    age = None if body.older_than_seconds is None else timedelta(seconds=body.older_than_seconds)
    return await request.store.purge(body.before or age, by=body.by, dry_run=body.dry_run)


_TYPES = tuple(dict.fromkeys(exporter.media_type for exporter in exporters() if exporter.media_type != NDJSON))
_FILE_HEADERS = (
    # A page of stored content is a file to save, not a page of this server.
    (b"content-disposition", b"attachment"),
    (b"content-security-policy", b"sandbox; default-src 'none'"),
)


@routes.get("/export", produces=NDJSON, also_produces=_TYPES, errors=(NotFound, Unsupported))
async def export(request: Request[ExportQuery, None]) -> HttpResponse:
    """Exports the tenant, or some conversations, or those of one user or agent, as lines of the export format.

    `format` chooses another format: openai, preference, sharegpt, chatml, markdown, html, csv, parquet, chatgpt or
    librechat. `metadata` is a JSON object whose keys must have equal values; `since` and `until` select by the time of
    the last message, `model` by who answered, `label` and `rating` as in the list of conversations.
    """
    query = request.query
    media_type = NDJSON if query.format == OWN else exporter_named(query.format).media_type
    given = structs.asdict(query) | {"metadata": json_object(query.metadata, "metadata")}
    return HttpResponse(request.store.export(**given), 200, _FILE_HEADERS, media_type)


@routes.post("/import", consumes=NDJSON, errors=(Conflict, Corrupt, FormatMismatch))
async def import_(request: Request[ImportQuery, None]) -> Report:
    """Imports an export as it arrives, in constant memory. Can be repeated; an interrupted import is resumed."""
    try:
        return await request.store.import_(_lines(request), **structs.asdict(request.query))
    except (Corrupt, FormatMismatch) as error:
        # The client's file is damaged, not the store, so the client gets the message.
        raise HttpError(422, error) from error


async def _lines(request: Request[ImportQuery, None]) -> AsyncIterator[bytes]:
    async for group in request.stream.lines():
        for line in group:
            yield line
