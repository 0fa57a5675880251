"""One conversation: from its end, or around a message, and on in both directions; and live, as it is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from markupsafe import Markup
from msgspec import Meta, Struct

from hansard.model import MAIN, Branch, Conversation, Message, Messages, Summary
from hansard.server import tail
from hansard.server.calls import Answer
from hansard.server.web import lines, rendering, transcript
from hansard.server.web.looks import ALONE, SAFE, Look, NoForm, see
from hansard.server.web.transcript import Setting
from hansard.server.web.visits import segment

PAGE = 40
FIRST = 20
"""Messages with which a conversation opens: more than a screen has, and the next ones come before they are reached."""
_BEYOND = 20
"""Messages on either side of a stretch in which the other half of a call and its result is looked for."""
Id = Annotated[str, Meta(min_length=1, max_length=256)]


class ShowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to look: around a message, before or after a cursor; else at the end."""

    branch: Id | None = None
    at: Id | None = None
    before: str | None = None
    after: str | None = None


class TailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: str | None = None
    branch: Id | None = None


class Stretch(Struct, frozen=True):
    """Messages in a row, and whether there are more on either side."""

    messages: Sequence[Message]
    branch: str | None
    has_older: bool
    has_newer: bool


async def see_conversation(look: Look[ShowQuery, NoForm]) -> Answer:
    """A conversation, at its end or around a message."""
    conversation = await look.conversation()
    stretch, branches, summaries = await asyncio.gather(
        _stretch(look), _branches(look), look.store.list_summaries(conversation.id)
    )
    shown = stretch.branch or conversation.branch
    base = base_of(look, conversation)
    beyond = await beyond_of(look, stretch)
    setting = Setting(conversation, base, look.may("write"), branches, _of_branch(summaries, shown, branches), beyond)
    values: dict[str, Any] = {
        "conversation": conversation,
        "base": base,
        "shown": shown,
        "stretch": stretch,
        "first": stretch.messages[0].cursor if stretch.messages else None,
        "last": stretch.messages[-1].cursor if stretch.messages else None,
    }
    if look.visit.wants_piece:
        items = await transcript.items_of(stretch.messages, setting)
        return look.piece("stretch.html", transcript=transcript.joined(items), **values)
    inside = await _inside(look, setting, values)
    return look.frame("conversations", conversation.title or conversation.id, inside)


async def _inside(look: Look[ShowQuery, NoForm], setting: Setting, values: dict[str, Any]) -> Markup:
    """The messages, and what stands around them. One who looks again gets what was made."""
    stretch: Stretch = values["stretch"]
    more = {
        "home": look.visit.home,
        "proof": look.proof,
        "may_write": setting.may_write,
        "model": look.services.model.name,
        "is_live": look.store.capabilities.watch != "none",
    }
    where = (stretch.branch, stretch.has_older, stretch.has_newer)
    key = rendering.key_of("talk", (setting, list(stretch.messages), where, values["shown"], more))
    found = rendering.recalled(key)
    if found is not None:
        return found
    items = await transcript.items_of(stretch.messages, setting)
    people, branches = _people(stretch.messages), _tree(setting.branches)
    made = {"transcript": transcript.joined(items), "people": people, "branches": branches}
    return rendering.kept(key, rendering.render("talk.html", **values, **more, **made))


def base_of(look: Look[Any, Any], conversation: Conversation) -> str:
    return f"{look.visit.home}c/{segment(conversation.id)}"


async def _branches(look: Look[ShowQuery, NoForm]) -> list[Branch]:
    return await look.store.list_branches(look.path[0]) if look.store.capabilities.branches else []


async def _stretch(look: Look[ShowQuery, NoForm]) -> Stretch:
    query = look.query
    if query.at is not None:
        return await _around(look, query.at)
    read = _reader(look, query.branch)
    if query.before is not None:
        found = await read(before=query.before, limit=PAGE)
        return Stretch(found, query.branch, found.has_more, has_newer=True)
    if query.after is not None:
        found = await read(after=query.after, limit=PAGE)
        return Stretch(found, query.branch, has_older=True, has_newer=found.has_more)
    found = await read(last=FIRST)
    return Stretch(found, query.branch, found.has_more, has_newer=False)


async def beyond_of(look: Look[Any, NoForm], stretch: Stretch) -> list[Message]:
    """The messages next to a stretch, where one of its calls has its result there, or a result its call."""
    loose = transcript.loose(stretch.messages)
    read = _reader(look, stretch.branch)
    found: list[Message] = []
    if loose.results and stretch.has_older:
        found += await read(before=stretch.messages[0].cursor, limit=_BEYOND)
    if loose.calls and stretch.has_newer:
        found += await read(after=stretch.messages[-1].cursor, limit=_BEYOND)
    return found


def _reader(look: Look[Any, NoForm], branch: str | None):  # type: ignore[no-untyped-def]
    async def read(**where: object) -> Messages:
        return await look.store.get_messages(look.path[0], branch=branch, blobs="refs", **where)  # type: ignore[arg-type]

    return read


async def _around(look: Look[ShowQuery, NoForm], id: str) -> Stretch:
    """A message in the middle of what surrounds it, on the branch that is asked for or, if need be, on its own."""
    message, branches = await asyncio.gather(look.store.get_message(look.path[0], id, blobs="refs"), _branches(look))
    branch = look.query.branch
    shown = branch or next((each.id for each in branches if each.active), MAIN)
    if not lines.reads(branches, shown, message):
        branch = message.branch
    older, newer = await _sides(look, message, branch)
    return Stretch([*older, message, *newer], branch, older.has_more, newer.has_more)


async def _sides(look: Look[ShowQuery, NoForm], message: Message, branch: str | None) -> tuple[Messages, Messages]:
    read = _reader(look, branch)
    older, newer = await asyncio.gather(
        read(before=message.id, limit=PAGE // 2), read(after=message.id, limit=PAGE // 2)
    )
    return older, newer


def _of_branch(summaries: Sequence[Summary], shown: str, branches: Sequence[Branch]) -> list[Summary]:
    """The summaries of a branch, and of those that it left as far as it shares them."""
    reach = lines.reach(branches, shown)
    return [
        each
        for each in summaries
        if each.branch in reach and ((limit := reach[each.branch]) is None or each.to_seq <= limit)
    ]


class Twig(Struct, frozen=True):
    """A branch in the small tree."""

    branch: Branch
    depth: int


def _tree(branches: Sequence[Branch]) -> list[Twig]:
    """Branches under those that they left. A list of any length is walked once."""
    ids = {each.id for each in branches}
    children: dict[str | None, list[Branch]] = {}
    for each in branches:
        children.setdefault(each.parent if each.parent in ids else None, []).append(each)
    twigs: list[Twig] = []
    waiting = [Twig(each, 0) for each in reversed(children.get(None, []))]
    while waiting:
        twig = waiting.pop()
        twigs.append(twig)
        waiting += [Twig(each, min(twig.depth + 1, 8)) for each in reversed(children.get(twig.branch.id, []))]
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


async def see_tail(look: Look[TailQuery, NoForm]) -> Answer:
    """Each new message as HTML, as it arrives."""
    conversation = await look.conversation()
    last = look.visit.headers.get(b"last-event-id")
    after = look.query.after if last is None else last.decode("latin-1")
    cursor = await tail.begin(look.store, conversation.id, after, look.query.branch)
    return Answer(_events(look, conversation, cursor), 200, SAFE, tail.EVENTS, is_live=True)


async def _events(look: Look[TailQuery, NoForm], conversation: Conversation, cursor: str) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    # The page that listens is the conversation's, not the address of the tail: links are as seen from there.
    base = f"{_one_up(look.visit.home)}c/{segment(conversation.id)}"
    setting = Setting(conversation, base, look.may("write"))
    async for message in tail.follow(
        look.store,
        conversation.id,
        cursor,
        look.query.branch,
        gone=look.stream.gone,
        holds=partial(look.services.gate.holds, look.caller),
        stopping=look.services.stopping,
        heartbeat=look.services.settings.heartbeat_seconds,
    ):
        if message is None:
            yield tail.event(None)
            continue
        data = {"seq": message.seq, "status": message.status, "html": str(transcript.one(message, setting))}
        yield b"id: %s\nevent: message\ndata: %s\n\n" % (message.cursor.encode(), msgspec.json.encode(data))


def _one_up(home: str) -> str:
    return home.removeprefix("../")


async def see_conversation_json(look: Look[TailQuery, NoForm]) -> Answer:
    """The conversation as JSON, without its messages."""
    body = msgspec.json.format(msgspec.json.encode(await look.conversation()), indent=2)
    return Answer(body + b"\n", 200, ALONE, "application/json")


ONE = "/c/{conversation_id}"
PAGES = (
    see(ONE, see_conversation, query=ShowQuery),
    see(ONE + "/tail", see_tail, query=TailQuery),
    see(ONE + "/raw", see_conversation_json),
)
