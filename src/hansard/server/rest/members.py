"""Routes of members."""

from __future__ import annotations

from msgspec import Struct

from hansard.errors import Conflict, ConversationNotFound, Denied, QuotaExceeded, Unsupported
from hansard.server.endpoints import NoQuery, Routes
from hansard.server.request import Request

_MEMBER = "/conversations/{conversation_id}/members/{user_id}"
_ERRORS = (Conflict, ConversationNotFound, Denied, QuotaExceeded, Unsupported)
routes = Routes()


class MemberList(Struct, frozen=True):
    items: list[str]


@routes.put(_MEMBER, errors=_ERRORS)
async def add_member(request: Request[NoQuery, None]) -> MemberList:
    """Lets a user see a conversation and append to it, and returns all its members. Only its owner may."""
    return MemberList(list(await request.store.add_member(*request.path)))


@routes.delete(_MEMBER, errors=_ERRORS)
async def remove_member(request: Request[NoQuery, None]) -> MemberList:
    """Ends a membership, and returns the members that are left. Only the owner may, or the member itself."""
    return MemberList(list(await request.store.remove_member(*request.path)))
