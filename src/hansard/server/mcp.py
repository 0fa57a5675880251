"""Tools of the Model Context Protocol that list, search and read the conversations of one view.

Over HTTP every request is independent: its key selects a view, and the tools have access to that view only. So no
session can outlive a key, and nothing that a model sends can leave the view.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import Field, create_model
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from hansard import __version__
from hansard.connection import connect
from hansard.errors import HansardError, ValidationError
from hansard.model import DEFAULT_TENANT, Conversation, Message
from hansard.search.hits import Hit
from hansard.server.context import ServerContext
from hansard.server.endpoints import JSON, Endpoint, HttpResponse, NoQuery
from hansard.server.pipeline import Pipeline
from hansard.server.problems import HttpError
from hansard.server.request import Request
from hansard.store import Store
from hansard.store.search_context import MOST_AROUND
from hansard.store.search_modes import Grouping, WordMatch

T = TypeVar("T")
PATH = "/mcp"
_INSTRUCTIONS = (
    "Past conversations, read only. Search them, or list them, newest first; then read one, from its end backwards."
)
_EXCERPT = 400
_SHOWN = 256
"""Characters of an id that are written to the audit log: a model may send ids of any length."""
# `Auth` has already checked the host and the origin.
_TRUST = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class ToolView(NamedTuple):
    """What the tools have access to during one request."""

    store: Store
    audit_ids: dict[str, str]
    """The tools add the ids that they use, for the audit log."""


_VIEW: ContextVar[ToolView] = ContextVar("hansard_mcp_view")
Limit = Annotated[int, Field(ge=1, le=100)]
Around = Annotated[int, Field(ge=0, le=MOST_AROUND)]


async def list_conversations(limit: Limit = 20, after: str | None = None) -> dict[str, Any]:
    """Lists conversations, newest first. `after` takes the `next_cursor` of the page before."""
    store, audit_ids = _VIEW.get()
    audit_ids["tool"] = "list_conversations"
    page = await _reported(store.list_conversations(limit=limit, after=after))
    return {"conversations": [_plain_conversation(each) for each in page.items], "next_cursor": page.next_cursor}


async def read_conversation(conversation_id: str, limit: Limit = 50, before: str | None = None) -> dict[str, Any]:
    """Reads the newest messages of a conversation, oldest first. `before` takes `first_cursor`, to go back."""
    store, audit_ids = _VIEW.get()
    audit_ids.update(tool="read_conversation", conversation_id=conversation_id[:_SHOWN])
    # Backwards from the end, so that a page can continue where the last one ended.
    found = await _reported(store.get_messages(conversation_id, order="desc", limit=limit, after=before))
    if not found and await _reported(store.get_conversation(conversation_id)) is None:
        raise ToolError(f"there is no conversation {conversation_id[:_SHOWN]!r}")
    messages = found[::-1]
    first = messages[0].cursor if messages else None
    return {"messages": [_plain_message(each) for each in messages], "has_more": found.has_more, "first_cursor": first}


async def search_conversations(
    query: str,
    conversation_id: str | None = None,
    *,
    match: WordMatch = "auto",
    around: Around = 0,
    group_by: Grouping | None = None,
    limit: Limit = 10,
    after: str | None = None,
) -> dict[str, Any]:
    """Finds messages by a question, words, "phrases", prefix*, -not, a OR b; the best first. `after`: `next_cursor`.

    `match`: `all` words, `any`, `auto` for a question, or `part` for pieces of words and numbers. `around` adds
    messages before and after each hit. `group_by` returns the best conversations, with their best passages.
    """
    store, audit_ids = _VIEW.get()
    audit_ids.update(tool="search_conversations", conversation_id=(conversation_id or "")[:_SHOWN])
    hits = await _reported(
        store.search(
            query,
            conversation_id=conversation_id,
            match=match,
            around=around,
            group_by=group_by,
            limit=limit,
            cursor=after,
        )
    )
    return {"hits": [_plain_hit(each) for each in hits], "next_cursor": hits.next_cursor, "complete": hits.complete}


@cache
def server() -> MCPServer[Any]:
    """Returns the MCP server, created once: building the tool schemas takes longer than a call."""
    functions = (list_conversations, read_conversation, search_conversations)
    return MCPServer(
        "hansard",
        instructions=_INSTRUCTIONS,
        version=__version__,
        tools=[_tool(each) for each in functions],
        log_level="WARNING",
        subscriptions=False,
    )


def _tool(function: Callable[..., Any]) -> Tool:
    """Returns a read-only tool that refuses unknown arguments."""
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    tool = Tool.from_function(function, annotations=hints)
    known = tool.fn_metadata.arg_model
    strict = create_model(known.__name__, __base__=known)
    strict.model_config["extra"] = "forbid"
    strict.model_rebuild(force=True)
    tool.fn_metadata.arg_model = strict
    tool.parameters = strict.model_json_schema(by_alias=True)
    return tool


async def _reported(work: Awaitable[T]) -> T:
    """Reports errors of the store to the model. Details are included only if its own request was wrong."""
    try:
        return await work
    except HansardError as error:
        text = str(error) if error.status < 500 else f"the store failed ({error.code})"
        raise ToolError(text) from error


def _plain_conversation(conversation: Conversation) -> dict[str, Any]:
    wanted = ("id", "title", "summary", "agent_id", "message_count", "last_message_at")
    return {name: _plain(getattr(conversation, name)) for name in wanted}


def _plain_message(message: Message) -> dict[str, Any]:
    shown = {"id": message.id, "role": message.role, "text": message.text, "at": _plain(message.created_at)}
    return shown | ({"by": message.participant.display_name or message.participant.id} if message.participant else {})


def _plain_hit(hit: Hit) -> dict[str, Any]:
    place = {"conversation_id": hit.conversation.id, "title": hit.conversation.title}
    shown = place | _plain_message(hit.message) | {"text": hit.cut(_EXCERPT).marked()}
    passages = [[_plain_message(message) for message in passage.messages] for passage in hit.passages]
    return shown | ({"passages": passages} if passages else {})


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


ToolRequest = Request[NoQuery, bytes]


async def use_tools(request: ToolRequest) -> HttpResponse:
    """Lets a model use the tools. Authorized, counted and audited like a route of the API."""
    app = server().streamable_http_app(
        streamable_http_path=request.scope["path"],
        stateless_http=True,
        json_response=True,
        transport_security=_TRUST,
    )
    # The session manager of this application; the next request creates another.
    sessions = server().session_manager
    before = _VIEW.set(ToolView(request.store, request.extra_ids))
    try:
        async with sessions.run():
            return await _collect_response(app, request)
    finally:
        _VIEW.reset(before)


_ENDPOINT = Endpoint(name="use_tools", method="POST", path=PATH, handler=use_tools, scope="read")


class McpOverHttp(Pipeline[ToolRequest]):
    """`/mcp`, with the same isolation, limits and audit as the API and the scope `read`."""

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context, (_ENDPOINT,))

    def make_request(self, scope: Scope, receive: Receive, send: Send) -> ToolRequest:
        request: ToolRequest = Request(self.context, 0, scope, receive, send)
        request.endpoint = _ENDPOINT  # set before authentication, so that failed attempts are audited under this name
        return request

    def find(self, request: ToolRequest) -> tuple[Endpoint, tuple[str, ...]]:
        return _ENDPOINT, ()

    async def decode(self, request: ToolRequest) -> None:
        if request.method != "POST":
            # GET and DELETE are for sessions, and there are none.
            raise HttpError(405, ValidationError("use POST: there are no sessions"), ((b"allow", b"POST"),))
        request.body = await request.stream.whole()


async def _collect_response(app: ASGIApp, request: ToolRequest) -> HttpResponse:
    """Returns the response of the application, so that it can be audited before it is sent."""
    sent: list[Event] = []
    events = iter([{"type": "http.request", "body": request.body, "more_body": False}])

    async def receive_event() -> Event:
        return next(events, None) or await request.stream.receive()

    async def keep_event(event: Event) -> None:
        sent.append(event)

    await app(request.scope, receive_event, keep_event)
    headers = dict(sent[0]["headers"])
    media_type = headers.get(b"content-type", JSON.encode()).decode()
    return HttpResponse(
        b"".join(event.get("body", b"") for event in sent[1:]), sent[0]["status"], media_type=media_type
    )


async def run_stdio(url: str, tenant: str | None, user: str | None) -> None:
    """Serves the tools on stdin and stdout until stdin ends."""
    async with connect(url) as store:
        view = store.tenant(tenant or DEFAULT_TENANT)
        _VIEW.set(ToolView(view if user is None else view.user(user), {}))
        await server().run_stdio_async()
