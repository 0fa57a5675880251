"""What can be done on the page: write, chat, rename, archive, branch, edit, delete, export; each a form of its own."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.model import MAIN, Kind, Message, Participant
from hansard.server.endpoints import NDJSON, HttpResponse, Id, NoQuery
from hansard.server.web import branch_path, chat
from hansard.server.web.conversation import ONE
from hansard.server.web.links import query, segment
from hansard.server.web.message import MESSAGE
from hansard.server.web.page_request import ALONE, NoForm, PageRequest, PageRoutes
from hansard.server.web.sample_data import fill

routes = PageRoutes()

_YES = "yes"


class NewConversationForm(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    id: Id | None = None
    title: str | None = None
    user: Id | None = None
    agent: Id | None = None


class RenameForm(Struct, frozen=True, forbid_unknown_fields=True):
    title: str | None = None


class ArchiveForm(Struct, frozen=True, forbid_unknown_fields=True):
    archived: Literal["yes", "no"]


class ConfirmForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A deletion needs a second word."""

    sure: Literal["yes"] | None = None


class MessageForm(Struct, frozen=True, forbid_unknown_fields=True):
    """What is written, as whom; `ask` lets the model answer."""

    text: str
    role: Literal["user", "assistant", "system", "agent"] = "user"
    participant: Id | None = None
    name: str | None = None
    kind: Kind = "user"
    branch: Id | None = None
    ask: Literal["yes"] | None = None


class SwitchForm(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id


class EditForm(Struct, frozen=True, forbid_unknown_fields=True):
    """`branch` keeps the old text on its line; `place` changes the message everywhere."""

    text: str
    how: Literal["branch", "place"] = "branch"


def _sure(form: ConfirmForm) -> None:
    if form.sure != _YES:
        raise ValidationError("nothing was deleted: tick the box to say that you are sure")


def _here(visit: PageRequest[Any, Any], **after: object) -> str:
    return f"c/{segment(visit.path[0])}{query(**after)}"


@routes.do("/begin")
async def do_begin(visit: PageRequest[NoQuery, NewConversationForm]) -> HttpResponse:
    """Begins a conversation."""
    form = visit.body
    made = await visit.store.create_conversation(form.id, title=form.title, user_id=form.user, agent_id=form.agent)
    await visit.store.append_message(made.id, "user", form.text)
    await chat.reply(visit.store, visit.services.model, made.id, form.text, form.agent)
    return visit.go(f"c/{segment(made.id)}")


@routes.do(ONE + "/say")
async def do_say(visit: PageRequest[NoQuery, MessageForm]) -> HttpResponse:
    """Writes a message, and lets the model answer if asked to."""
    form = visit.body
    who = None
    if form.participant is not None:
        who = Participant(form.kind, form.participant, form.name)
    conversation = await visit.conversation()
    if form.branch is not None and form.branch != conversation.branch:
        await visit.store.switch_branch(conversation.id, form.branch)
    await visit.store.append_message(conversation.id, form.role, form.text, participant=who, create=False)
    if form.ask is not None:
        await chat.reply(visit.store, visit.services.model, conversation.id, form.text, conversation.agent_id)
    return visit.go(_here(visit) + "#end")


@routes.do(ONE + "/rename")
async def do_rename(visit: PageRequest[NoQuery, RenameForm]) -> HttpResponse:
    """Gives a conversation another title."""
    await visit.store.update_conversation(visit.path[0], title=visit.body.title)
    return visit.go(_here(visit))


@routes.do(ONE + "/archive")
async def do_archive(visit: PageRequest[NoQuery, ArchiveForm]) -> HttpResponse:
    """Puts a conversation away, or takes it out again."""
    await visit.store.update_conversation(visit.path[0], archived=visit.body.archived == _YES)
    return visit.go(_here(visit))


@routes.do(ONE + "/delete")
async def do_delete(visit: PageRequest[NoQuery, ConfirmForm]) -> HttpResponse:
    """Deletes a conversation with everything derived from it."""
    _sure(visit.body)
    conversation = await visit.conversation()
    receipt = await visit.store.delete_conversation(conversation.id)
    visit.services.totals.forget()
    return visit.show(
        "receipt.html", receipt=receipt, what=f"the conversation “{conversation.title or conversation.id}”"
    )


@routes.do(MESSAGE + "/delete")
async def do_delete_message(visit: PageRequest[NoQuery, ConfirmForm]) -> HttpResponse:
    """Deletes a message, from every branch."""
    _sure(visit.body)
    receipt = await visit.store.delete_message(visit.path[0], visit.path[1])
    return visit.show("receipt.html", receipt=receipt, what=f"the message {visit.path[1]}")


@routes.do(MESSAGE + "/edit")
async def do_edit(visit: PageRequest[NoQuery, EditForm]) -> HttpResponse:
    """Changes what a message says: on a new branch, or everywhere."""
    id, message_id = visit.path
    message = await visit.store.get_message(id, message_id, blobs="refs")
    if not isinstance(message.content, str) or message.blobs:
        raise ValidationError("only plain text can be edited here: this content has a structure of its own")
    if visit.body.how == "place":
        await visit.store.update_message(id, message_id, content=visit.body.text)
        return visit.go(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")
    source = await _line_of(visit, message)
    await visit.store.branch(id, before=message_id, source=source)
    await visit.store.append_message(id, message.role, visit.body.text, participant=message.participant)
    return visit.go(_here(visit) + "#end")


@routes.do(MESSAGE + "/branch")
async def do_branch(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Begins a new line after a message, and makes it active."""
    id, message_id = visit.path
    message = await visit.store.get_message(id, message_id, blobs="refs")
    await visit.store.branch(id, at=message_id, source=await _line_of(visit, message))
    return visit.go(_here(visit) + "#end")


async def _line_of(visit: PageRequest[Any, Any], message: Message) -> str | None:
    """The branch to leave: the active one where it reads the message, else the one that the message was written on."""
    branches = await visit.store.list_branches(visit.path[0])
    active = next((each.id for each in branches if each.active), MAIN)
    return active if branch_path.reads(branches, active, message) else message.branch


@routes.do(ONE + "/switch")
async def do_switch(visit: PageRequest[NoQuery, SwitchForm]) -> HttpResponse:
    """Makes a branch the active one."""
    await visit.store.switch_branch(visit.path[0], visit.body.branch)
    return visit.go(_here(visit))


@routes.do(MESSAGE + "/pin")
async def do_pin(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Pins a message, or unpins it."""
    id, message_id = visit.path
    message = await visit.store.get_message(id, message_id, blobs="refs")
    await visit.store.update_message(id, message_id, pinned=not message.pinned)
    return visit.go(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")


@routes.see(ONE + "/export")
async def see_export(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The conversation in the export format, as a file."""
    conversation = await visit.conversation()
    lines = visit.store.export(conversation_ids=[conversation.id])
    name = (b"content-disposition", b'attachment; filename="conversation.jsonl"')
    return HttpResponse(lines, 200, (*ALONE, name), NDJSON)


@routes.do("/sample")
async def do_fill(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """Stores the sample."""
    await fill(visit.store)
    return visit.go("")
