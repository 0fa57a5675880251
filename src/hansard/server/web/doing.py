"""What can be done on the page: write, chat, rename, archive, branch, edit, delete, export; each a form of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hansard.errors import ValidationError
from hansard.model import MAIN, Kind, Message, Participant
from hansard.server.calls import NDJSON, Answer, NoQuery
from hansard.server.web import chat, lines
from hansard.server.web.conversation import ONE
from hansard.server.web.looks import ALONE, Look, NoForm, do, see
from hansard.server.web.sample import fill
from hansard.server.web.single import MESSAGE
from hansard.server.web.visits import query, segment

Id = Annotated[str, Meta(min_length=1, max_length=256)]
_YES = "yes"


class New(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    id: Id | None = None
    title: str | None = None
    user: Id | None = None
    agent: Id | None = None


class Rename(Struct, frozen=True, forbid_unknown_fields=True):
    title: str | None = None


class Archive(Struct, frozen=True, forbid_unknown_fields=True):
    archived: Literal["yes", "no"]


class Sure(Struct, frozen=True, forbid_unknown_fields=True):
    """A deletion needs a second word."""

    sure: Literal["yes"] | None = None


class Say(Struct, frozen=True, forbid_unknown_fields=True):
    """What is written, as whom; `ask` lets the model answer."""

    text: str
    role: Literal["user", "assistant", "system", "agent"] = "user"
    participant: Id | None = None
    name: str | None = None
    kind: Kind = "user"
    branch: Id | None = None
    ask: Literal["yes"] | None = None


class Switch(Struct, frozen=True, forbid_unknown_fields=True):
    branch: Id


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    """`branch` keeps the old text on its line; `place` changes the message everywhere."""

    text: str
    how: Literal["branch", "place"] = "branch"


def _sure(form: Sure) -> None:
    if form.sure != _YES:
        raise ValidationError("nothing was deleted: tick the box to say that you are sure")


def _here(look: Look[Any, Any], **after: object) -> str:
    return f"c/{segment(look.path[0])}{query(**after)}"


async def do_begin(look: Look[NoQuery, New]) -> Answer:
    """Begins a conversation."""
    form = look.form
    made = await look.store.create_conversation(form.id, title=form.title, user_id=form.user, agent_id=form.agent)
    await look.store.append_message(made.id, "user", form.text)
    await chat.reply(look.store, look.services.model, made.id, form.text, form.agent)
    return look.go(f"c/{segment(made.id)}")


async def do_say(look: Look[NoQuery, Say]) -> Answer:
    """Writes a message, and lets the model answer if asked to."""
    form = look.form
    who = None
    if form.participant is not None:
        who = Participant(form.kind, form.participant, form.name)
    conversation = await look.conversation()
    if form.branch is not None and form.branch != conversation.branch:
        await look.store.switch_branch(conversation.id, form.branch)
    await look.store.append_message(conversation.id, form.role, form.text, participant=who, create=False)
    if form.ask is not None:
        await chat.reply(look.store, look.services.model, conversation.id, form.text, conversation.agent_id)
    return look.go(_here(look) + "#end")


async def do_rename(look: Look[NoQuery, Rename]) -> Answer:
    """Gives a conversation another title."""
    await look.store.update_conversation(look.path[0], title=look.form.title)
    return look.go(_here(look))


async def do_archive(look: Look[NoQuery, Archive]) -> Answer:
    """Puts a conversation away, or takes it out again."""
    await look.store.update_conversation(look.path[0], archived=look.form.archived == _YES)
    return look.go(_here(look))


async def do_delete(look: Look[NoQuery, Sure]) -> Answer:
    """Deletes a conversation with everything derived from it."""
    _sure(look.form)
    conversation = await look.conversation()
    receipt = await look.store.delete_conversation(conversation.id)
    look.services.books.forget()
    return look.show(
        "receipt.html", receipt=receipt, what=f"the conversation “{conversation.title or conversation.id}”"
    )


async def do_delete_message(look: Look[NoQuery, Sure]) -> Answer:
    """Deletes a message, from every branch."""
    _sure(look.form)
    receipt = await look.store.delete_message(look.path[0], look.path[1])
    return look.show("receipt.html", receipt=receipt, what=f"the message {look.path[1]}")


async def do_edit(look: Look[NoQuery, Edit]) -> Answer:
    """Changes what a message says: on a new branch, or everywhere."""
    id, message_id = look.path
    message = await look.store.get_message(id, message_id, blobs="refs")
    if not isinstance(message.content, str) or message.blobs:
        raise ValidationError("only plain text can be edited here: this content has a structure of its own")
    if look.form.how == "place":
        await look.store.update_message(id, message_id, content=look.form.text)
        return look.go(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")
    source = await _line_of(look, message)
    await look.store.branch(id, before=message_id, source=source)
    await look.store.append_message(id, message.role, look.form.text, participant=message.participant)
    return look.go(_here(look) + "#end")


async def do_branch(look: Look[NoQuery, NoForm]) -> Answer:
    """Begins a new line after a message, and makes it active."""
    id, message_id = look.path
    message = await look.store.get_message(id, message_id, blobs="refs")
    await look.store.branch(id, at=message_id, source=await _line_of(look, message))
    return look.go(_here(look) + "#end")


async def _line_of(look: Look[Any, Any], message: Message) -> str | None:
    """The branch to leave: the active one where it reads the message, else the one that the message was written on."""
    branches = await look.store.list_branches(look.path[0])
    active = next((each.id for each in branches if each.active), MAIN)
    return active if lines.reads(branches, active, message) else message.branch


async def do_switch(look: Look[NoQuery, Switch]) -> Answer:
    """Makes a branch the active one."""
    await look.store.switch_branch(look.path[0], look.form.branch)
    return look.go(_here(look))


async def do_pin(look: Look[NoQuery, NoForm]) -> Answer:
    """Pins a message, or unpins it."""
    id, message_id = look.path
    message = await look.store.get_message(id, message_id, blobs="refs")
    await look.store.update_message(id, message_id, pinned=not message.pinned)
    return look.go(f"c/{segment(id)}{query(at=message_id)}#m{message.seq}")


async def see_export(look: Look[NoQuery, NoForm]) -> Answer:
    """The conversation in the export format, as a file."""
    conversation = await look.conversation()
    lines = look.store.export(conversation_ids=[conversation.id])
    name = (b"content-disposition", b'attachment; filename="conversation.jsonl"')
    return Answer(lines, 200, (*ALONE, name), NDJSON)


async def do_fill(look: Look[NoQuery, NoForm]) -> Answer:
    """Stores the sample."""
    await fill(look.store)
    return look.go("")


PAGES = (
    do("/begin", do_begin, New),
    do("/sample", do_fill),
    do(ONE + "/say", do_say, Say),
    do(ONE + "/rename", do_rename, Rename),
    do(ONE + "/archive", do_archive, Archive),
    do(ONE + "/delete", do_delete, Sure),
    do(ONE + "/switch", do_switch, Switch),
    see(ONE + "/export", see_export),
    do(MESSAGE + "/edit", do_edit, Edit),
    do(MESSAGE + "/branch", do_branch),
    do(MESSAGE + "/pin", do_pin),
    do(MESSAGE + "/delete", do_delete_message, Sure),
)
