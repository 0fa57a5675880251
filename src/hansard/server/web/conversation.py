"""One conversation: from its end, or around a message, and on in both directions; and live, as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct

from hansard.model import MAIN, Branch, Conversation, Message, Messages, Summary
from hansard.server import tail
from hansard.server.endpoints import HttpResponse, Id, NoQuery
from hansard.server.web import branch_path, markup, transcript
from hansard.server.web.links import segment
from hansard.server.web.page_request import ALONE, SAFE, NoForm, PageRequest, PageRoutes
from hansard.server.web.transcript import TranscriptContext

ONE = "/c/{conversation_id}"
routes = PageRoutes()

PAGE = 40
FIRST = 20
"""Messages with which a conversation opens: more than a screen has, and the next ones come before they are reached."""
_BEYOND = 20
"""Messages on either side of a stretch in which the other half of a call and its result is looked for."""


class ShowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to visit: around a message, before or after a cursor; else at the end."""

    branch: Id | None = None
    at: Id | None = None
    before: str | None = None
    after: str | None = None


class PageTailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: str | None = None
    branch: Id | None = None


class MessageSlice(Struct, frozen=True):
    """Messages in a row, and whether there are more on either side."""

    messages: Sequence[Message]
    branch: str | None
    has_older: bool
    has_newer: bool


@routes.see(ONE)
async def see_conversation(visit: PageRequest[ShowQuery, NoForm]) -> HttpResponse:
    """A conversation, at its end or around a message."""
    conversation = await visit.conversation()
    stretch, branches, summaries = await asyncio.gather(
        _stretch(visit), _branches(visit), visit.store.list_summaries(conversation.id)
    )
    shown = stretch.branch or conversation.branch
    base = base_of(visit, conversation)
    beyond = await beyond_of(visit, stretch)
    setting = TranscriptContext(
        conversation, base, visit.may("write"), branches, _of_branch(summaries, shown, branches), beyond
    )
    values: dict[str, Any] = {
        "conversation": conversation,
        "base": base,
        "shown": shown,
        "stretch": stretch,
        "first": stretch.messages[0].cursor if stretch.messages else None,
        "last": stretch.messages[-1].cursor if stretch.messages else None,
    }
    if visit.wants_piece:
        items = await transcript.items_of(stretch.messages, setting)
        return visit.piece("stretch.html", transcript=transcript.joined(items), **values)
    inside = await _inside(visit, setting, values)
    return visit.frame("conversations", conversation.title or conversation.id, inside)


async def _inside(visit: PageRequest[ShowQuery, NoForm], setting: TranscriptContext, values: dict[str, Any]) -> Markup:
    """The messages, and what stands around them."""
    stretch: MessageSlice = values["stretch"]
    more = {
        "home": visit.home,
        "proof": visit.proof,
        "may_write": setting.may_write,
        "model": visit.services.model.name,
        "is_live": visit.store.capabilities.watch != "none",
    }
    items = await transcript.items_of(stretch.messages, setting)
    people, branches = _people(stretch.messages), _tree(setting.branches)
    made = {"transcript": transcript.joined(items), "people": people, "branches": branches}
    return Markup(markup.render("talk.html", **values, **more, **made))


def base_of(visit: PageRequest[Any, Any], conversation: Conversation) -> str:
    return f"{visit.home}c/{segment(conversation.id)}"


async def _branches(visit: PageRequest[ShowQuery, NoForm]) -> list[Branch]:
    return await visit.store.list_branches(visit.path[0]) if visit.store.capabilities.branches else []


async def _stretch(visit: PageRequest[ShowQuery, NoForm]) -> MessageSlice:
    query = visit.query
    if query.at is not None:
        return await _around(visit, query.at)
    read = _reader(visit, query.branch)
    if query.before is not None:
        found = await read(before=query.before, limit=PAGE)
        return MessageSlice(found, query.branch, found.has_more, has_newer=True)
    if query.after is not None:
        found = await read(after=query.after, limit=PAGE)
        return MessageSlice(found, query.branch, has_older=True, has_newer=found.has_more)
    found = await read(last=FIRST)
    return MessageSlice(found, query.branch, found.has_more, has_newer=False)


async def beyond_of(visit: PageRequest[Any, NoForm], stretch: MessageSlice) -> list[Message]:
    """The messages next to a stretch, where one of its calls has its result there, or a result its call."""
    loose = transcript.loose(stretch.messages)
    read = _reader(visit, stretch.branch)
    found: list[Message] = []
    if loose.results and stretch.has_older:
        found += await read(before=stretch.messages[0].cursor, limit=_BEYOND)
    if loose.calls and stretch.has_newer:
        found += await read(after=stretch.messages[-1].cursor, limit=_BEYOND)
    return found


def _reader(visit: PageRequest[Any, NoForm], branch: str | None):  # type: ignore[no-untyped-def]
    async def read(**where: object) -> Messages:
        return await visit.store.get_messages(visit.path[0], branch=branch, blobs="refs", **where)  # type: ignore[arg-type]

    return read


async def _around(visit: PageRequest[ShowQuery, NoForm], id: str) -> MessageSlice:
    """A message in the middle of what surrounds it, on the branch that is asked for or, if need be, on its own."""
    message, branches = await asyncio.gather(visit.store.get_message(visit.path[0], id, blobs="refs"), _branches(visit))
    branch = visit.query.branch
    shown = branch or next((each.id for each in branches if each.active), MAIN)
    if not branch_path.reads(branches, shown, message):
        branch = message.branch
    older, newer = await _sides(visit, message, branch)
    return MessageSlice([*older, message, *newer], branch, older.has_more, newer.has_more)


async def _sides(
    visit: PageRequest[ShowQuery, NoForm], message: Message, branch: str | None
) -> tuple[Messages, Messages]:
    read = _reader(visit, branch)
    older, newer = await asyncio.gather(
        read(before=message.id, limit=PAGE // 2), read(after=message.id, limit=PAGE // 2)
    )
    return older, newer


def _of_branch(summaries: Sequence[Summary], shown: str, branches: Sequence[Branch]) -> list[Summary]:
    """The summaries of a branch, and of those that it left as far as it shares them."""
    reach = branch_path.reach(branches, shown)
    return [
        each
        for each in summaries
        if each.branch in reach and ((limit := reach[each.branch]) is None or each.to_seq <= limit)
    ]


class BranchNode(Struct, frozen=True):
    """A branch in the small tree."""

    branch: Branch
    depth: int


def _tree(branches: Sequence[Branch]) -> list[BranchNode]:
    """Branches under those that they left. A list of any length is walked once."""
    ids = {each.id for each in branches}
    children: dict[str | None, list[Branch]] = {}
    for each in branches:
        children.setdefault(each.parent if each.parent in ids else None, []).append(each)
    twigs: list[BranchNode] = []
    waiting = [BranchNode(each, 0) for each in reversed(children.get(None, []))]
    while waiting:
        twig = waiting.pop()
        twigs.append(twig)
        waiting += [BranchNode(each, min(twig.depth + 1, 8)) for each in reversed(children.get(twig.branch.id, []))]
    return twigs


Person = tuple[str, str, str]
"""Id, name, kind."""


def _people(messages: Sequence[Message]) -> list[Person]:
    """Who takes part in what is shown."""
    found = {}
    for message in messages:
        if message.participant is not None:
            who = message.participant
            found[who.id] = (who.id, who.display_name or who.id, who.kind)
    return list(found.values())


# Live


@routes.see(ONE + "/tail")
async def see_tail(visit: PageRequest[PageTailQuery, NoForm]) -> HttpResponse:
    """Each new message as HTML, as it arrives."""
    conversation = await visit.conversation()
    last = visit.headers.get(b"last-event-id")
    after = visit.query.after if last is None else last.decode("latin-1")
    cursor = await tail.begin(visit.store, conversation.id, after, visit.query.branch)
    return HttpResponse(_events(visit, conversation, cursor), 200, SAFE, tail.EVENTS, is_live=True)


async def _events(
    visit: PageRequest[PageTailQuery, NoForm], conversation: Conversation, cursor: str
) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    # The page that listens is the conversation's, not the address of the tail: links are as seen from there.
    base = f"{_one_up(visit.home)}c/{segment(conversation.id)}"
    setting = TranscriptContext(conversation, base, visit.may("write"))
    async for message in tail.follow(
        visit.store,
        conversation.id,
        cursor,
        visit.query.branch,
        gone=visit.stream.gone,
        holds=partial(visit.parts.auth.holds, visit.known_caller),
        stopping=visit.parts.stopping,
        heartbeat=visit.parts.settings.heartbeat_seconds,
    ):
        if message is None:
            yield tail.event(None)
            continue
        data = {"seq": message.seq, "status": message.status, "html": str(transcript.one(message, setting))}
        yield b"id: %s\nevent: message\ndata: %s\n\n" % (message.cursor.encode(), msgspec.json.encode(data))


def _one_up(home: str) -> str:
    return home.removeprefix("../")


@routes.see(ONE + "/raw")
async def see_conversation_json(visit: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The conversation as JSON, without its messages."""
    body = msgspec.json.format(msgspec.json.encode(await visit.conversation()), indent=2)
    return HttpResponse(body + b"\n", 200, ALONE, "application/json")
