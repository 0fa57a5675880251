"""Two branches of a conversation side by side, after the messages that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from markupsafe import Markup
from msgspec import Struct

from hansard.model import Branch, Conversation, Message
from hansard.server.endpoints import HttpResponse, Id
from hansard.server.web import branch_path, headings, transcript
from hansard.server.web.conversation import ONE, base_of
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes
from hansard.server.web.transcript import TranscriptContext

routes = PageRoutes()

_MOST = 60
"""Messages of each branch that are shown: its newest."""


class CompareQuery(Struct, frozen=True, forbid_unknown_fields=True):
    left: Id | None = None
    right: Id | None = None


class ComparedBranch(Struct, frozen=True):
    """One branch: what only it has, and whether more of that is not shown."""

    id: str
    html: Markup
    count: int
    has_older: bool
    shared: Message | None


@routes.page(ONE + "/compare")
async def see_branches_compared(request: PageRequest[CompareQuery, NoForm]) -> HttpResponse:
    """Two branches side by side."""
    conversation = await request.conversation()
    branches = await request.store.list_branches(conversation.id) if request.store.capabilities.branches else []
    left = request.query.left or conversation.branch
    right = request.query.right or next((each.id for each in branches if each.id != left), left)
    sides = await asyncio.gather(
        _side(request, conversation, branches, left, right), _side(request, conversation, branches, right, left)
    )
    return request.render(
        "branch_comparison.html",
        conversation=conversation,
        heading=await headings.heading_of(request.store, conversation),
        base=base_of(request, conversation),
        branches=branches,
        sides=sides,
        shared=next((side.shared for side in sides if side.shared is not None), None),
    )


async def _side(
    request: PageRequest[CompareQuery, NoForm],
    conversation: Conversation,
    branches: Sequence[Branch],
    branch: str,
    other: str,
) -> ComparedBranch:
    found = await request.store.get_messages(conversation.id, last=_MOST, branch=branch, blobs="refs")
    own = [each for each in found if not branch_path.contains(branches, other, each)]
    shared = [each for each in found if branch_path.contains(branches, other, each)]
    context = TranscriptContext(conversation, base_of(request, conversation))
    html = await transcript.render_off_loop(own, partial(transcript.render_items, own, context))
    return ComparedBranch(branch, html, len(own), found.has_more and not shared, shared[-1] if shared else None)
