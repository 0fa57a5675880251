"""Conversations as tools of the Model Context Protocol: to list them and to read them, fixed to one view.

Over HTTP every request stands alone: the key that it brings opens a view, and the tools are made for that view. So
there is no session that could outlive a key, and nothing that a model says can leave the view.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Receive, Scope, Send

from hansard import __version__
from hansard.errors import Denied, HansardError
from hansard.model import DEFAULT_TENANT, Conversation, Message
from hansard.opening import connect
from hansard.server import problems
from hansard.server.gate import Gate
from hansard.store import Store

T = TypeVar("T")
PATH = "/mcp"
_INSTRUCTIONS = "Past conversations, read only. List them, newest first, then read one, from its end backwards."
# The gate has looked at the host and the origin already.
_TRUST = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def tools(store: Store) -> MCPServer[Any]:
    """The tools, for one view of a store."""
    server: MCPServer[Any] = MCPServer(
        "hansard", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING", subscriptions=False
    )

    @server.tool()
    async def list_conversations(limit: int = 20, after: str | None = None) -> dict[str, Any]:
        """Lists conversations, newest first. `after` takes the `next_cursor` of the page before."""
        page = await _told(store.list_conversations(limit=limit, after=after))
        return {"conversations": [_head(each) for each in page.items], "next_cursor": page.next_cursor}

    @server.tool()
    async def read_conversation(conversation_id: str, limit: int = 50, before: str | None = None) -> dict[str, Any]:
        """Reads the newest messages of a conversation, oldest first. `before` takes `first_cursor`, to go back."""
        # Backwards from the end, so that a page can go on where the last one ended.
        found = await _told(store.get_messages(conversation_id, order="desc", limit=limit, after=before))
        messages = found[::-1]
        first = messages[0].cursor if messages else None
        return {"messages": [_said(each) for each in messages], "has_more": found.has_more, "first_cursor": first}

    return server


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


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


class McpOverHttp:
    """`/mcp`: the walls are those of the API, the scope is `read`."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self._store = store
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        try:
            caller = await self._gate.admit(headers, scope.get("client"))
            if "read" not in caller.scopes:
                raise Denied("this needs the scope 'read', which the key does not have")
            view = self._gate.view(self._store, caller, headers)
        except HansardError as error:
            await _refuse(error, send)
            return
        server = tools(view)
        app = server.streamable_http_app(
            streamable_http_path=PATH, stateless_http=True, json_response=True, transport_security=_TRUST
        )
        async with server.session_manager.run():
            await app(scope, receive, send)


async def _refuse(error: HansardError, send: Send) -> None:
    body = problems.encode(error, error.status, "", is_trusted=False)
    headers = [(b"content-type", problems.MEDIA_TYPE), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def run_stdio(url: str, tenant: str | None, user: str | None) -> None:
    """Serves the tools on stdin and stdout, until stdin ends."""
    async with connect(url) as store:
        view = store.tenant(tenant or DEFAULT_TENANT)
        await tools(view if user is None else view.user(user)).run_stdio_async()
