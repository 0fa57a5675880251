"""Who else reads a conversation: its members, and its shares."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from msgspec import Struct

from hansard.model import Share
from hansard.server.endpoints import HttpResponse, Id, NoQuery
from hansard.server.web import headings
from hansard.server.web.conversation import ONE, base_of
from hansard.server.web.links import segment
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes

ACCESS = ONE + "/access"
routes = PageRoutes()

_AGES = {"day": timedelta(days=1), "week": timedelta(days=7), "month": timedelta(days=30), "never": None}


class MemberForm(Struct, frozen=True, forbid_unknown_fields=True):
    user: Id


class ShareForm(Struct, frozen=True, forbid_unknown_fields=True):
    expires: Literal["day", "week", "month", "never"] = "week"
    branch: Id | None = None


class EndShareForm(Struct, frozen=True, forbid_unknown_fields=True):
    share: Id


@routes.page(ACCESS)
async def see_access(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The members and shares of a conversation, and the forms that change them."""
    return await _access(request)


async def _access(request: PageRequest[Any, Any], created: Share | None = None) -> HttpResponse:
    conversation = await request.conversation()
    # Shares are the owner's: a member sees neither them nor the forms.
    is_owner = request.store.user_id in (None, conversation.user_id)
    can_share = request.store.capabilities.records and request.store.capabilities.keeps
    shares = await request.store.list_shares(conversation.id) if is_owner and can_share else []
    return request.render(
        "access.html",
        conversation=conversation,
        heading=await headings.heading_of(request.store, conversation),
        base=base_of(request, conversation),
        is_owner=is_owner,
        can_share=can_share,
        shares=shares,
        created=created,
    )


@routes.form(ACCESS + "/members/add")
async def do_add_member(request: PageRequest[NoQuery, MemberForm]) -> HttpResponse:
    """Lets a user see the conversation and append to it."""
    await request.store.add_member(request.path[0], request.body.user)
    return request.redirect(f"c/{segment(request.path[0])}/access")


@routes.form(ACCESS + "/members/remove")
async def do_remove_member(request: PageRequest[NoQuery, MemberForm]) -> HttpResponse:
    """Ends a membership."""
    await request.store.remove_member(request.path[0], request.body.user)
    return request.redirect(f"c/{segment(request.path[0])}/access")


@routes.form(ACCESS + "/shares/add")
async def do_share(request: PageRequest[NoQuery, ShareForm]) -> HttpResponse:
    """Makes a read-only snapshot, and shows its address, once."""
    form = request.body
    made = await request.store.share(request.path[0], branch=form.branch, expires_at=_AGES[form.expires])
    return await _access(request, made)


@routes.form(ACCESS + "/shares/end")
async def do_unshare(request: PageRequest[NoQuery, EndShareForm]) -> HttpResponse:
    """Ends a share at once."""
    await request.store.unshare(request.path[0], request.body.share)
    return request.redirect(f"c/{segment(request.path[0])}/access")
