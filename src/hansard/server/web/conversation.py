"""The page of a conversation: its end, or a part around a message, older and newer messages, and a live tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
from markupsafe import Markup
from msgspec import Struct

from hansard.model import MAIN, Branch, Conversation, Message, Messages, Summary
from hansard.server import tail
from hansard.server.endpoints import HttpResponse, Id, NoQuery
from hansard.server.web import branch_path, content, headings, markup, transcript, words
from hansard.server.web.links import query, segment
from hansard.server.web.page_request import PAGE_HEADERS, SANDBOX_HEADERS, NoForm, PageRequest, PageRoutes
from hansard.server.web.transcript import TranscriptContext
from hansard.server.web.words import escape_html, say_html

ONE = "/c/{conversation_id}"
routes = PageRoutes()

PAGE = 40
FIRST = 20
"""Messages on the first page: more than fit on a screen. The script loads more before the reader needs them."""
_NEIGHBOURS = 20
"""Messages on either side of a slice that are searched for the counterparts of its calls and results."""


class ShowQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages to show: around a message, before or after a cursor; by default, the last ones."""

    branch: Id | None = None
    at: Id | None = None
    before: str | None = None
    after: str | None = None


class PageTailQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: str | None = None
    branch: Id | None = None


class MessageSlice(Struct, frozen=True):
    """Consecutive messages, and whether there are more on either side."""

    messages: Sequence[Message]
    branch: str | None
    has_older: bool
    has_newer: bool


@routes.page(ONE)
async def see_conversation(request: PageRequest[ShowQuery, NoForm]) -> HttpResponse:
    """A conversation: its end, or a part around a message."""
    conversation = await request.conversation()
    shown_slice, branches, summaries = await asyncio.gather(
        _slice(request), _branches(request), request.store.list_summaries(conversation.id)
    )
    shown = shown_slice.branch or conversation.branch
    base = base_of(request, conversation)
    neighbours = await neighbours_of(request, shown_slice)
    oldest = await _oldest(request, shown_slice)
    heading = headings.heading_from(conversation, oldest)
    transcript_context = TranscriptContext(
        conversation, base, request.may("write"), branches, _visible_summaries(summaries, shown, branches), neighbours
    )
    values: dict[str, Any] = {
        "conversation": conversation,
        "heading": heading,
        "base": base,
        "shown": shown,
        "shown_slice": shown_slice,
        "beginning": oldest[0] if oldest else None,
    }
    if request.wants_fragment:
        make = partial(_transcript, shown_slice, transcript_context)
        return request.fragment(await transcript.render_off_loop(shown_slice.messages, make))
    inside = await _content(request, transcript_context, values)
    return request.render_around("conversations", heading, inside)


async def _content(
    request: PageRequest[ShowQuery, NoForm], transcript_context: TranscriptContext, values: dict[str, Any]
) -> Markup:
    """Renders the messages and what surrounds them, or returns what was rendered before from the same values."""
    shown_slice: MessageSlice = values["shown_slice"]
    messages, conversation = shown_slice.messages, transcript_context.conversation
    more = {
        "home": request.home,
        "proof": request.proof,
        "may_write": transcript_context.may_write,
        "model": request.services.model.name,
        "is_live": request.store.capabilities.watch != "none",
    }

    def write() -> str:
        made = {
            "controls": _controls(request, values) if transcript_context.may_write else {},
            "transcript": _transcript(shown_slice, transcript_context),
            "people": _people(messages, conversation),
            "labels": conversation.labels,
            "members": conversation.members,
            "metadata": _metadata(conversation),
            "branches": _tree(transcript_context.branches),
        }
        last = messages[-1].cursor if messages else None
        return markup.render("conversation.html", **values, **more, **made, last=last)

    where = (
        values["heading"],
        values["beginning"],
        values["shown"],
        shown_slice.branch,
        shown_slice.has_older,
        shown_slice.has_newer,
    )
    shown = ("conversation", transcript_context, where, more, list(messages))
    return await transcript.render_off_loop(messages, partial(markup.cached, shown, write))


_SHOWN_ELSEWHERE = ("hansard.labels", "hansard.members")
_MOST_METADATA = 20
_BASE, _TITLE = Markup("<base>"), Markup("<title>")
"""Mark the places of a conversation's address and title in its forms. Values are escaped, so none can contain them."""


def _metadata(conversation: Conversation) -> list[tuple[str, str]]:
    """Returns metadata to show, without what is shown elsewhere."""
    given = [(key, value) for key, value in conversation.metadata.items() if key not in _SHOWN_ELSEWHERE]
    return [(key, content.one_line(value)) for key, value in given[:_MOST_METADATA]]


def _controls(request: PageRequest[Any, NoForm], values: dict[str, Any]) -> dict[str, Markup]:
    """Returns the forms of a conversation."""
    conversation: Conversation = values["conversation"]
    branch = values["shown"] if values["shown"] != conversation.branch else None
    is_archived = conversation.archived_at is not None
    forms = _forms(words.language(), request.proof, request.services.model.name, branch, is_archived)
    base, title = escape_html(values["base"]), escape_html(conversation.title or "")
    return {name: Markup(html.replace(_BASE, base).replace(_TITLE, title)) for name, html in forms.items()}


@lru_cache(500)
def _forms(language: str, proof: str, model: str, branch: str | None, is_archived: bool) -> dict[str, str]:
    """Renders the forms of any conversation, in that language."""
    values = {"base": _BASE, "title": _TITLE, "proof": proof, "model": model, "branch": branch}
    blocks = markup.render_blocks("conversation_controls.html", values | {"is_archived": is_archived})
    return {name: str(html) for name, html in blocks.items()}


def _transcript(shown_slice: MessageSlice, context: TranscriptContext) -> Markup:
    """Renders messages, with links to older and newer ones, which the script follows by itself."""
    messages, branch = shown_slice.messages, shown_slice.branch
    items = transcript.render_items(messages, context)
    older = newer = ""
    if shown_slice.has_older and messages:
        to = escape_html(context.base + query(branch=branch, before=messages[0].cursor))
        older = f'<a class="further" data-older rel="prev" href="{to}">{say_html("Older messages")}</a>\n'
    if shown_slice.has_newer and messages:
        to = escape_html(context.base + query(branch=branch, after=messages[-1].cursor))
        newer = f'<a class="further" data-newer rel="next" href="{to}">{say_html("Newer messages")}</a>\n'
    return Markup(f"{older}{items}{newer}")


def base_of(request: PageRequest[Any, Any], conversation: Conversation) -> str:
    return f"{request.home}c/{segment(conversation.id)}"


async def _branches(request: PageRequest[ShowQuery, NoForm]) -> list[Branch]:
    return await request.store.list_branches(request.path[0]) if request.store.capabilities.branches else []


async def _slice(request: PageRequest[ShowQuery, NoForm]) -> MessageSlice:
    query = request.query
    if query.at is not None:
        return await _around(request, query.at)
    read = _reader(request, query.branch)
    if query.before is not None:
        found = await read(before=query.before, limit=PAGE)
        return MessageSlice(found, query.branch, found.has_more, has_newer=True)
    if query.after is not None:
        found = await read(after=query.after, limit=PAGE)
        return MessageSlice(found, query.branch, has_older=True, has_newer=found.has_more)
    found = await read(last=FIRST)
    return MessageSlice(found, query.branch, found.has_more, has_newer=False)


async def _oldest(request: PageRequest[ShowQuery, NoForm], shown_slice: MessageSlice) -> Sequence[Message]:
    """Returns the first messages of the branch."""
    if not shown_slice.has_older:
        return shown_slice.messages
    found: Messages = await _reader(request, shown_slice.branch)(limit=headings.FIRST)
    return found


async def neighbours_of(request: PageRequest[Any, NoForm], shown_slice: MessageSlice) -> list[Message]:
    """Returns the messages next to a slice, if a call or a result of the slice has its counterpart elsewhere."""
    loose = transcript.unpaired_tools(shown_slice.messages)
    read = _reader(request, shown_slice.branch)
    found: list[Message] = []
    if loose.results and shown_slice.has_older:
        found += await read(before=shown_slice.messages[0].cursor, limit=_NEIGHBOURS)
    if loose.calls and shown_slice.has_newer:
        found += await read(after=shown_slice.messages[-1].cursor, limit=_NEIGHBOURS)
    return found


def _reader(request: PageRequest[Any, NoForm], branch: str | None):  # type: ignore[no-untyped-def]
    async def read(**where: object) -> Messages:
        return await request.store.get_messages(request.path[0], branch=branch, blobs="refs", **where)  # type: ignore[arg-type]

    return read


async def _around(request: PageRequest[ShowQuery, NoForm], id: str) -> MessageSlice:
    """Returns the messages around a message, on the requested branch or, if it is not there, on its own."""
    message, branches = await asyncio.gather(
        request.store.get_message(request.path[0], id, blobs="refs"), _branches(request)
    )
    branch = request.query.branch
    shown = branch or next((each.id for each in branches if each.active), MAIN)
    if not branch_path.contains(branches, shown, message):
        branch = message.branch
    older, newer = await _sides(request, message, branch)
    return MessageSlice([*older, message, *newer], branch, older.has_more, newer.has_more)


async def _sides(
    request: PageRequest[ShowQuery, NoForm], message: Message, branch: str | None
) -> tuple[Messages, Messages]:
    read = _reader(request, branch)
    older, newer = await asyncio.gather(
        read(before=message.id, limit=PAGE // 2), read(after=message.id, limit=PAGE // 2)
    )
    return older, newer


def _visible_summaries(summaries: Sequence[Summary], shown: str, branches: Sequence[Branch]) -> list[Summary]:
    """Returns the summaries of a branch, including those of shared messages."""
    reach = branch_path.readable_branches(branches, shown)
    return [
        each
        for each in summaries
        if each.branch in reach and ((limit := reach[each.branch]) is None or each.to_seq <= limit)
    ]


class BranchNode(Struct, frozen=True):
    """A branch in the tree of branches."""

    branch: Branch
    depth: int


def _tree(branches: Sequence[Branch]) -> list[BranchNode]:
    """Orders branches as a tree, each below its parent, in linear time."""
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


def _people(messages: Sequence[Message], conversation: Conversation) -> list[Person]:
    """Returns who has written the shown messages: participants, and the user and the agent of the conversation."""
    found: dict[str, Person] = {}
    for message in messages:
        if (who := message.participant) is not None:
            found[who.id] = (who.id, who.display_name or who.id, who.kind)
            continue
        speaker = content.speaker_of(message, conversation)
        if speaker.name in (conversation.user_id, conversation.agent_id):
            found.setdefault(speaker.name, (speaker.name, speaker.name, speaker.kind))
    return list(found.values())


# Live


@routes.page(ONE + "/tail")
async def see_tail(request: PageRequest[PageTailQuery, NoForm]) -> HttpResponse:
    """Streams each new message as HTML."""
    conversation = await request.conversation()
    last = request.headers.get(b"last-event-id")
    after = request.query.after if last is None else last.decode("latin-1")
    cursor = await tail.start_cursor(request.store, conversation.id, after, request.query.branch)
    return HttpResponse(_events(request, conversation, cursor), 200, PAGE_HEADERS, tail.EVENTS, is_live=True)


async def _events(
    request: PageRequest[PageTailQuery, NoForm], conversation: Conversation, cursor: str
) -> AsyncIterator[bytes]:
    yield tail.opened(cursor)
    # Links must be relative to the conversation's page, not to the URL of the tail.
    base = f"{_one_up(request.home)}c/{segment(conversation.id)}"
    transcript_context = TranscriptContext(conversation, base, request.may("write"))
    async for message in tail.follow(
        request.store,
        conversation.id,
        cursor,
        request.query.branch,
        disconnected=request.stream.disconnected,
        is_still_valid=partial(request.context.auth.is_still_valid, request.known_caller),
        shutdown=request.context.shutdown,
        heartbeat=request.context.settings.heartbeat_seconds,
    ):
        if message is None:
            yield tail.event(None)
            continue
        data = {
            "seq": message.seq,
            "status": message.status,
            "html": str(transcript.render_message(message, transcript_context)),
        }
        yield b"id: %s\nevent: message\ndata: %s\n\n" % (message.cursor.encode(), msgspec.json.encode(data))


def _one_up(home: str) -> str:
    return home.removeprefix("../")


@routes.page(ONE + "/raw")
async def see_conversation_json(request: PageRequest[NoQuery, NoForm]) -> HttpResponse:
    """The conversation as JSON, without its messages."""
    body = msgspec.json.format(msgspec.json.encode(await request.conversation()), indent=2)
    return HttpResponse(body + b"\n", 200, SANDBOX_HEADERS, "application/json")
