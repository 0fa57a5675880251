"""The actions of the page: write, chat, rename, archive, branch, edit, delete, export. Each has its own form."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.model import MAIN, Kind, Message, Participant
from hansard.server.endpoints import NDJSON, HttpResponse, Id, NoQuery
from hansard.server.web import branch_path, chat
from hansard.server.web.conversation import ONE
from hansard.server.web.links import query, segment
from hansard.server.web.message_page import MESSAGE
from hansard.server.web.page_request import SANDBOX_HEADERS, NoForm, PageRequest, PageRoutes
from hansard.server.web.sample_data import load_sample
from hansard.server.web.words import say

routes = PageRoutes()

_YES = "yes"


class NewConversationForm(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    id: Id | None = None
    title: str | None = None
    user: Id | None = None
    agent: Id | None = None
    later: Literal["yes"] | None = None
    """The page asks for the answer, and shows it while it arrives."""


class RenameForm(Struct, frozen=True, forbid_unknown_fields=True):
    title: str | None = None


class ArchiveForm(Struct, frozen=True, forbid_unknown_fields=True):
    archived: Literal["yes", "no"]


class ConfirmForm(Struct, frozen=True, forbid_unknown_fields=True):
    """Deletions require a confirmation."""

    sure: Literal["yes"] | None = None


class MessageForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A new message and its author; with `ask`, the model answers.

    The script sends an `id`, so that a message is stored once however often it is sent.
    """

    text: str
    id: Id | None = None
    role: Literal["user", "assistant", "system", "agent"] = "user"
    participant: Id | None = None
    name: str | None = None
    kind: Kind = "user"
    branch: Id | None = None
    ask: Literal["yes"] | None = None


class SwitchForm(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id


class EditForm(Struct, frozen=True, forbid_unknown_fields=True):
    """`branch` keeps the old text on its branch; `place` changes the message everywhere."""

    text: str
    how: Literal["branch", "place"] = "branch"


def _require_confirmation(form: ConfirmForm) -> None:
    if form.sure != _YES:
        raise ValidationError("nothing was deleted: tick the box to confirm")


def _conversation_path(request: PageRequest[Any, Any], **after: object) -> str:
    return f"c/{segment(request.path[0])}{query(**after)}"


@routes.form("/begin")
async def do_begin(request: PageRequest[NoQuery, NewConversationForm]) -> HttpResponse:
    """Starts a conversation."""
    form = request.body
    made = await request.store.create_conversation(form.id, title=form.title, user_id=form.user, agent_id=form.agent)
    await request.store.append_message(made.id, "user", form.text)
    if form.later is None:
        await chat.reply(request.store, request.services.model, made.id, form.text, form.agent)
    return request.redirect(f"c/{segment(made.id)}")


@routes.form(ONE + "/say")
async def do_say(request: PageRequest[NoQuery, MessageForm]) -> HttpResponse:
    """Appends a message, and asks the model if `ask` is set."""
    form = request.body
    who = None
    if form.participant is not None:
        who = Participant(form.kind, form.participant, form.name)
    conversation = await request.conversation()
    if form.branch is not None and form.branch != conversation.branch:
        await request.store.switch_branch(conversation.id, form.branch)
    await request.store.append_message(conversation.id, form.role, form.text, id=form.id, participant=who, create=False)
    if form.ask is not None:
        await chat.reply(request.store, request.services.model, conversation.id, form.text, conversation.agent_id)
    return request.redirect(_conversation_path(request) + "#end")


@routes.form(ONE + "/rename")
async def do_rename(request: PageRequest[NoQuery, RenameForm]) -> HttpResponse:
    """Changes the title of a conversation."""
    await request.store.update_conversation(request.path[0], title=request.body.title)
    return request.redirect(_conversation_path(request))


@routes.form(ONE + "/archive")
async def do_archive(request: PageRequest[NoQuery, ArchiveForm]) -> HttpResponse:
    """Archives or unarchives a conversation."""
    await request.store.update_conversation(request.path[0], archived=request.body.archived == _YES)
    return request.redirect(_conversation_path(request))


@routes.form(ONE + "/delete")
async def do_delete(request: PageRequest[NoQuery, ConfirmForm]) -> HttpResponse:
    """Deletes a conversation and everything derived from it."""
    _require_confirmation(request.body)
    conversation = await request.conversation()
    receipt = await request.store.delete_conversation(conversation.id)
    request.services.forget()
    what = say("The conversation “{title}”", title=conversation.title or conversation.id)
    return request.render("receipt.html", receipt=receipt, what=what)


@routes.form(MESSAGE + "/delete")
async def do_delete_message(request: PageRequest[NoQuery, ConfirmForm]) -> HttpResponse:
    """Deletes a message from every branch."""
    _require_confirmation(request.body)
    receipt = await request.store.delete_message(request.path[0], request.path[1])
    return request.render("receipt.html", receipt=receipt, what=say("The message {id}", id=request.path[1]))


@routes.form(MESSAGE + "/edit")
async def do_edit(request: PageRequest[NoQuery, EditForm]) -> HttpResponse:
    """Changes the text of a message, on a new branch or everywhere."""
    id, message_id = request.path
    message = await request.store.get_message(id, message_id, blobs="refs")
    if not isinstance(message.content, str) or message.blobs:
        raise ValidationError("only plain text can be edited here: this content is structured")
    if request.body.how == "place":
        await request.store.update_message(id, message_id, content=request.body.text)
        return request.redirect(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")
    source = await source_branch(request, message)
    await request.store.branch(id, before=message_id, source=source)
    await request.store.append_message(id, message.role, request.body.text, participant=message.participant)
    return request.redirect(_conversation_path(request) + "#end")


@routes.form(MESSAGE + "/branch")
async def do_branch(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Creates a branch after a message and makes it active."""
    id, message_id = request.path
    message = await request.store.get_message(id, message_id, blobs="refs")
    await request.store.branch(id, at=message_id, source=await source_branch(request, message))
    return request.redirect(_conversation_path(request) + "#end")


async def source_branch(request: PageRequest[Any, Any], message: Message) -> str | None:
    """Returns the branch to start from: the active one if it contains the message, else the message's own."""
    branches = await request.store.list_branches(request.path[0])
    active = next((each.id for each in branches if each.active), MAIN)
    return active if branch_path.contains(branches, active, message) else message.branch


@routes.form(ONE + "/switch")
async def do_switch(request: PageRequest[NoQuery, SwitchForm]) -> HttpResponse:
    """Makes a branch the active one."""
    await request.store.switch_branch(request.path[0], request.body.branch)
    return request.redirect(_conversation_path(request))


@routes.form(MESSAGE + "/pin")
async def do_pin(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Pins or unpins a message."""
    id, message_id = request.path
    message = await request.store.get_message(id, message_id, blobs="refs")
    await request.store.update_message(id, message_id, pinned=not message.pinned)
    return request.redirect(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")


@routes.page(ONE + "/export")
async def see_export(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The conversation as a file in the export format."""
    conversation = await request.conversation()
    lines = request.store.export(conversation_ids=[conversation.id])
    name = (b"content-disposition", b'attachment; filename="conversation.jsonl"')
    return HttpResponse(lines, 200, (*SANDBOX_HEADERS, name), NDJSON)


@routes.form("/sample")
async def do_fill(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Stores the sample data."""
    await load_sample(request.store)
    return request.redirect("")
