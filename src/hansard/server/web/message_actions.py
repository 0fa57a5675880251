"""What a reader does to one message: generate an answer again, rate it, label it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.model import Message
from hansard.server.endpoints import HttpResponse, NoQuery
from hansard.server.web import chat
from hansard.server.web.actions import source_branch
from hansard.server.web.conversation import ONE
from hansard.server.web.links import query, segment
from hansard.server.web.message_page import MESSAGE
from hansard.server.web.page_request import NoForm, PageRequest, PageRoutes

routes = PageRoutes()

_NEAR = 50
"""How many messages before an answer are searched for the message that it answers."""


class RegenerateForm(Struct, frozen=True, forbid_unknown_fields=True):
    """With `later`, only the branch is made; the page then asks for the answer, and shows it while it arrives."""

    later: Literal["yes"] | None = None


class RateForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A thumb up or down, with a comment; `none` removes the rating."""

    value: Literal["1", "-1", "none"]
    comment: str | None = None


class LabelForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A label to add, or one to remove."""

    add: str | None = None
    remove: str | None = None


@routes.form(MESSAGE + "/regenerate")
async def do_regenerate(request: PageRequest[NoQuery, RegenerateForm]) -> HttpResponse:
    """Answers the same message again, on a new branch; the old answer stays on its own."""
    id, message_id = request.path
    conversation = await request.conversation()
    answer = await request.store.get_message(id, message_id, blobs="refs")
    if answer.role != "assistant":
        raise ValidationError("only an answer can be generated again")
    source = await source_branch(request, answer)
    near = await request.store.get_messages(id, before=message_id, limit=_NEAR, branch=source, blobs="refs")
    asked: Message | None = next((each for each in reversed(near) if each.role == "user"), None)
    if asked is None:
        raise ValidationError("there is no message of a user before this answer")
    await request.store.branch(id, at=asked.id, source=source)
    if request.body.later is None:
        await chat.reply(request.store, request.services.model, id, asked.text, conversation.agent_id)
    return request.redirect(f"c/{segment(id)}#end")


@routes.form(ONE + "/answer")
async def do_answer(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Asks the model to answer the newest message, which must be a user's."""
    conversation = await request.conversation()
    newest = await request.store.get_messages(conversation.id, last=1, blobs="refs")
    if not newest or newest[0].role != "user":
        raise ValidationError("the newest message is not a user's: there is nothing to answer")
    await chat.reply(request.store, request.services.model, conversation.id, newest[0].text, conversation.agent_id)
    return request.redirect(f"c/{segment(conversation.id)}#end")


@routes.form(MESSAGE + "/rate")
async def do_rate(request: PageRequest[NoQuery, RateForm]) -> HttpResponse:
    """Rates a message, or removes the reader's rating."""
    id, message_id = request.path
    by = request.known_caller.user
    if request.body.value == "none":
        message = await request.store.remove_rating(id, message_id, by=by)
    else:
        message = await request.store.rate(id, message_id, int(request.body.value), by=by, comment=request.body.comment)
    return request.redirect(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")


@routes.form(MESSAGE + "/label")
async def do_label_message(request: PageRequest[NoQuery, LabelForm]) -> HttpResponse:
    """Adds a label to a message, or removes one."""
    id, message_id = request.path
    await _label(request, message_id)
    message = await request.store.get_message(id, message_id, blobs="refs")
    return request.redirect(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")


@routes.form(ONE + "/label")
async def do_label(request: PageRequest[NoQuery, LabelForm]) -> HttpResponse:
    """Adds a label to a conversation, or removes one."""
    await _label(request, None)
    return request.redirect(f"c/{segment(request.path[0])}")


async def _label(request: PageRequest[NoQuery, LabelForm], message_id: str | None) -> None:
    form = request.body
    if (form.add is None) == (form.remove is None):
        raise ValidationError("name one label, to add or to remove")
    if form.add is not None:
        await request.store.add_label(request.path[0], form.add.strip(), message_id=message_id)
    else:
        await request.store.remove_label(request.path[0], form.remove or "", message_id=message_id)
