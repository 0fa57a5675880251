"""Routes of shares. The shares themselves are pages outside the API: `/s/{token}`."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct, structs

from hansard.errors import ConversationNotFound, Denied, NotFound, Unsupported
from hansard.model import Share
from hansard.server.endpoints import Id, NoQuery, Routes
from hansard.server.request import Request

_ALL = "/conversations/{conversation_id}/shares"
_ERRORS = (ConversationNotFound, Denied, NotFound, Unsupported)
routes = Routes()


class NewShare(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id | None = None
    expires_at: datetime | None = None


class ShareList(Struct, frozen=True):
    items: list[Share]


class ShareEnded(Struct, frozen=True):
    ended: bool


@routes.post(_ALL, status=201, repeat="no", errors=_ERRORS)
async def share(request: Request[NoQuery, NewShare]) -> Share:
    """Makes a read-only snapshot, which anybody with its `token` reads at `/s/{token}`. Only the owner may."""
    return await request.store.share(request.path[0], **structs.asdict(request.body))


@routes.get(_ALL, errors=_ERRORS)
async def list_shares(request: Request[NoQuery, None]) -> ShareList:
    """The shares of a conversation, without their tokens."""
    return ShareList(await request.store.list_shares(request.path[0]))


@routes.delete(_ALL + "/{share_id}", errors=_ERRORS)
async def unshare(request: Request[NoQuery, None]) -> ShareEnded:
    """Ends a share at once; false if there was none."""
    return ShareEnded(await request.store.unshare(*request.path))
