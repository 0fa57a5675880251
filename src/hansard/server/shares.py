"""The pages of shares: `/s/{token}`, and `/s/{token}.json`. They need no key, and lead nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hansard import Store
from hansard.errors import HansardError, NotFound
from hansard.exporters.exporter import ExportedConversation, TreeMessage
from hansard.exporters.html import Html
from hansard.exporters.report import ExportReport
from hansard.model import Conversation, Message, SharedConversation
from hansard.server import problems

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_JSON = ".json"
_NOTICE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 1rem/1.6 system-ui, sans-serif; max-width: 34rem; \
margin: 20vh auto; padding: 0 1rem }} h1 {{ font-size: 1.4rem }}</style>
</head>
<body><main><h1>{title}</h1><p>{text}</p></main></body>
</html>
"""
_ENDED = _NOTICE.format(
    title="This share is not here", text="It may have ended. Ask for a new address where you got this one."
)
_FAILED = _NOTICE.format(title="This share cannot be read now", text="Try it again in a while.")


class SharedMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    role: str
    content: object
    format: str
    created_at: str
    author: str | None = None


class SharePages:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, request: Request) -> Response:
        token = request.path_params["token"]
        try:
            shared = await self._store.open_share(token.removesuffix(_JSON))
            if token.endswith(_JSON):
                return Response(_json(shared), headers=HEADERS, media_type="application/json")
            return Response(await _page(shared), headers=HEADERS, media_type=Html.media_type)
        except HansardError as error:
            # A malformed token is one that does not exist.
            failure = error if error.status >= 500 else NotFound("there is no such share: it may have ended")
            if token.endswith(_JSON):
                body = problems.encode(failure, failure.status, "", is_trusted=False)
                return Response(body, failure.status, HEADERS, problems.MEDIA_TYPE)
            return Response(_ENDED if failure.status < 500 else _FAILED, failure.status, HEADERS, Html.media_type)


def _json(shared: SharedConversation) -> bytes:
    messages = [
        SharedMessage(
            each.role,
            each.content,
            each.format,
            each.created_at.isoformat(),
            each.participant.display_name if each.participant else None,
        )
        for each in shared.messages
    ]
    return msgspec.json.encode({"title": shared.title, "shared_at": shared.shared_at, "messages": messages})


async def _page(shared: SharedConversation) -> bytes:
    return b"".join([piece async for piece in Html().write(_only(_Shown(shared)), ExportReport())])


async def _only(shown: ExportedConversation) -> AsyncIterator[ExportedConversation]:
    yield shown


class _Shown:
    """A share, as the exporter of pages takes it. It has no ids, and nothing of the conversation but its title."""

    def __init__(self, shared: SharedConversation) -> None:
        self._shared = shared
        began = shared.messages[0].created_at if shared.messages else shared.shared_at
        title = shared.title or "Conversation"
        self.conversation = Conversation("", title=title, created_at=began, message_count=len(shared.messages))

    async def line(self) -> AsyncIterator[Message]:
        for message in self._shared.messages:
            yield message

    async def tree(self) -> AsyncIterator[TreeMessage]:
        for message in self._shared.messages:
            yield TreeMessage(message, None)
