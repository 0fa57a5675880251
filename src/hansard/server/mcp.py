"""Conversations as tools of the Model Context Protocol: to list, to search and to read, fixed to one view.

Over HTTP every request stands alone: the key that it brings opens a view, and the tools see that view and no other. So
there is no session that could outlive a key, and nothing that a model says can leave the view.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools.base import Tool
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from msgspec import Struct
from pydantic import Field, create_model
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Event

from hansard import __version__
from hansard.connect import connect
from hansard.errors import HansardError, TimedOut, ValidationError
from hansard.model import DEFAULT_TENANT, Conversation, Message
from hansard.search.hits import Hit
from hansard.server.bodies import Body, Gone
from hansard.server.calls import JSON, Answer, Endpoint
from hansard.server.exchanges import Exchange, failed, left
from hansard.server.parts import Parts
from hansard.server.problems import Refused
from hansard.store import Store

T = TypeVar("T")
PATH = "/mcp"
_INSTRUCTIONS = (
    "Past conversations, read only. Search them, or list them, newest first; then read one, from its end backwards."
)
_EXCERPT = 400
_SHOWN = 256
"""Characters of an id that the audit log keeps: a model may make up any."""
# The gate has looked at the host and the origin already.
_TRUST = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class View(NamedTuple):
    """What the tools see while one request is answered."""

    store: Store
    noted: dict[str, str]
    """What a call is about is written here, for the audit."""


_VIEW: ContextVar[View] = ContextVar("hansard_mcp_view")
Limit = Annotated[int, Field(ge=1, le=100)]


async def list_conversations(limit: Limit = 20, after: str | None = None) -> dict[str, Any]:
    """Lists conversations, newest first. `after` takes the `next_cursor` of the page before."""
    store, noted = _VIEW.get()
    noted["tool"] = "list_conversations"
    page = await _told(store.list_conversations(limit=limit, after=after))
    return {"conversations": [_head(each) for each in page.items], "next_cursor": page.next_cursor}


async def read_conversation(conversation_id: str, limit: Limit = 50, before: str | None = None) -> dict[str, Any]:
    """Reads the newest messages of a conversation, oldest first. `before` takes `first_cursor`, to go back."""
    store, noted = _VIEW.get()
    noted.update(tool="read_conversation", conversation_id=conversation_id[:_SHOWN])
    # Backwards from the end, so that a page can go on where the last one ended.
    found = await _told(store.get_messages(conversation_id, order="desc", limit=limit, after=before))
    if not found and await _told(store.get_conversation(conversation_id)) is None:
        raise ToolError(f"there is no conversation {conversation_id[:_SHOWN]!r}")
    messages = found[::-1]
    first = messages[0].cursor if messages else None
    return {"messages": [_said(each) for each in messages], "has_more": found.has_more, "first_cursor": first}


async def search_conversations(
    query: str, conversation_id: str | None = None, limit: Limit = 10, after: str | None = None
) -> dict[str, Any]:
    """Finds messages by words, "phrases", prefix*, -not, a OR b; the best first. `after` takes `next_cursor`."""
    store, noted = _VIEW.get()
    noted.update(tool="search_conversations", conversation_id=(conversation_id or "")[:_SHOWN])
    hits = await _told(store.search(query, conversation_id=conversation_id, limit=limit, cursor=after))
    return {"hits": [_found(each) for each in hits], "next_cursor": hits.next_cursor, "complete": hits.complete}


@cache
def server() -> MCPServer[Any]:
    """The tools, made once: their schemas take longer to make than a call takes. They see the view of the request."""
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
    """A tool that only reads, and that refuses arguments which it does not know."""
    hints = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
    tool = Tool.from_function(function, annotations=hints)
    known = tool.fn_metadata.arg_model
    strict = create_model(known.__name__, __base__=known)
    strict.model_config["extra"] = "forbid"
    strict.model_rebuild(force=True)
    tool.fn_metadata.arg_model = strict
    tool.parameters = strict.model_json_schema(by_alias=True)
    return tool


async def _told(work: Awaitable[T]) -> T:
    """An error of the store is told to the model, if it is about what the model asked."""
    try:
        return await work
    except HansardError as error:
        text = str(error) if error.status < 500 else f"the store failed ({error.code})"
        raise ToolError(text) from error


def _head(conversation: Conversation) -> dict[str, Any]:
    wanted = ("id", "title", "summary", "agent_id", "message_count", "last_message_at")
    return {name: _plain(getattr(conversation, name)) for name in wanted}


def _said(message: Message) -> dict[str, Any]:
    shown = {"id": message.id, "role": message.role, "text": message.text, "at": _plain(message.created_at)}
    return shown | ({"by": message.participant.display_name or message.participant.id} if message.participant else {})


def _found(hit: Hit) -> dict[str, Any]:
    place = {"conversation_id": hit.conversation.id, "title": hit.conversation.title}
    return place | _said(hit.message) | {"text": hit.cut(_EXCERPT).marked()}


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


class Asked(Struct, frozen=True):
    exchange: Exchange
    view: Store
    given: bytes
    receive: Receive


async def use_tools(asked: Asked) -> Answer:
    """Lets a model use the tools. Not a route of the API, but let in, counted and audited as one."""
    app = server().streamable_http_app(
        streamable_http_path=asked.exchange.scope["path"],
        stateless_http=True,
        json_response=True,
        transport_security=_TRUST,
    )
    # That of this application: the next request makes another.
    sessions = server().session_manager
    before = _VIEW.set(View(asked.view, asked.exchange.more))
    try:
        async with sessions.run():
            return await _collected(app, asked)
    finally:
        _VIEW.reset(before)


_ENDPOINT = Endpoint(method="POST", path=PATH, handler=use_tools, scope="read")


class McpOverHttp:
    """`/mcp`: the walls, the limits and the audit are those of the API, the scope is `read`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._store = parts.store
        self._gate = parts.gate
        self._watchers = parts.watchers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, send, time.perf_counter())
        exchange.endpoint = _ENDPOINT
        body = self._parts.body(receive, exchange.headers)
        try:
            answer = await self._answer(exchange, body, receive)
            exchange.received = body.size
            self._watchers.answered(exchange, answer.status)
        except Gone:
            left(exchange, self._watchers)
            return
        except Exception as error:
            answer = failed(exchange, error, self._watchers)
        await exchange.send(answer, body.gone)

    async def _answer(self, exchange: Exchange, body: Body, receive: Receive) -> Answer:
        exchange.caller = caller = await self._gate.admit(exchange.headers, exchange.scope.get("client"))
        self._gate.allow(caller, _ENDPOINT)
        view = self._gate.view(self._store, caller, exchange.headers)
        exchange.tenant, exchange.user = view.tenant_id, view.user_id
        if exchange.method != "POST":
            # There is no session that could be listened to or ended.
            raise Refused(405, ValidationError("ask by POST: each request stands alone"), ((b"allow", b"POST"),))
        body.charge = partial(self._gate.charge, caller)
        asked = Asked(exchange, view, await body.whole(), receive)
        try:
            return await self._parts.answers.wait_for(use_tools(asked))
        except TimeoutError as error:
            raise TimedOut("the store did not answer in time", outcome="not_applied") from error


async def _collected(app: ASGIApp, asked: Asked) -> Answer:
    """What the application answers to a body, held back until it was audited."""
    sent: list[Event] = []
    events = iter([{"type": "http.request", "body": asked.given, "more_body": False}])

    async def give() -> Event:
        return next(events, None) or await asked.receive()

    async def take(event: Event) -> None:
        sent.append(event)

    await app(asked.exchange.scope, give, take)
    headers = dict(sent[0]["headers"])
    media_type = headers.get(b"content-type", JSON.encode()).decode()
    return Answer(b"".join(event.get("body", b"") for event in sent[1:]), sent[0]["status"], media_type=media_type)


async def run_stdio(url: str, tenant: str | None, user: str | None) -> None:
    """Serves the tools on stdin and stdout, until stdin ends."""
    async with connect(url) as store:
        view = store.tenant(tenant or DEFAULT_TENANT)
        _VIEW.set(View(view if user is None else view.user(user), {}))
        await server().run_stdio_async()
