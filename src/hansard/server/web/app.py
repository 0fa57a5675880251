"""The web application. It reads forms and cookies and returns HTML.

Errors are pages too: the sign-in page for unauthenticated requests, else an error page.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any
from urllib.parse import quote

from msgspec import structs
from starlette.types import Receive, Scope, Send

from hansard.errors import HansardError, NotFound, Unauthenticated, Unsupported
from hansard.server import problems
from hansard.server.context import ServerContext
from hansard.server.endpoints import Caller, Endpoint, HttpResponse
from hansard.server.pipeline import Pipeline, is_trusted
from hansard.server.web import (
    access,
    actions,
    admin,
    branch_comparison,
    conversation,
    conversations,
    cookies,
    error_texts,
    imports,
    message_actions,
    message_page,
    overview,
    prompt_explanation,
    search,
    static_files,
    words,
)
from hansard.server.web.chat import Echo, PageModel
from hansard.server.web.conversation_facts import FactsReader
from hansard.server.web.links import unsegment
from hansard.server.web.page_request import PageRequest, WebServices, decode_form, read_form, redirect
from hansard.server.web.sign_in import SignIn
from hansard.server.web.usage_totals import UsageTotals

PAGES: tuple[Endpoint, ...] = (
    *overview.routes,
    *conversations.routes,
    *conversation.routes,
    *message_page.routes,
    *search.routes,
    *imports.routes,
    *prompt_explanation.routes,
    *actions.routes,
    *message_actions.routes,
    *access.routes,
    *branch_comparison.routes,
    *admin.routes,
)
"""Every page. All of them are authorized, audited and covered by the isolation tests."""
_LOG = logging.getLogger("hansard.server")

AnyPageRequest = PageRequest[Any, Any]


class Site(Pipeline[AnyPageRequest]):
    """The pages, as an application."""

    def __init__(self, context: ServerContext, model: PageModel | None = None) -> None:
        super().__init__(context, PAGES)
        self._sign_in = SignIn(self.auth, context.settings.oidc_redirect)
        self._services = WebServices(model or Echo(), UsageTotals(), FactsReader())

    def make_request(self, scope: Scope, receive: Receive, send: Send) -> AnyPageRequest:
        return PageRequest(self._services, self.context, scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await static_files.send(scope, send):
            return
        try:
            request = self.make_request(scope, receive, send)
        except Exception as error:
            await _unreadable(send, error)
            return
        words.use(request.language)
        await self.serve(request)

    async def respond(self, request: AnyPageRequest) -> HttpResponse:
        if request.raw_path == b"":
            return redirect(request.home)
        if request.method in ("GET", "HEAD") and (chosen := request.chosen_language) is not None:
            return redirect(*chosen)
        if (handler := self._sign_in.find(request)) is not None:
            return await handler(request)
        return await super().respond(request)

    async def admit(self, request: AnyPageRequest) -> Caller:
        return await cookies.admit(self.auth, request)

    def find(self, request: AnyPageRequest) -> tuple[Endpoint, tuple[str, ...]]:
        try:
            endpoint, path = self.router.find("GET" if request.method == "HEAD" else request.method, request.raw_path)
        except NotFound as error:
            raise NotFound("there is no such page") from error
        return endpoint, tuple(map(unsegment, path))

    def view_headers(self, request: AnyPageRequest) -> dict[bytes, bytes]:
        """Returns the tenant of the path as a header: browsers do not send our headers."""
        return (
            {} if request.chosen_tenant is None else {b"hansard-tenant": quote(request.chosen_tenant, safe="").encode()}
        )

    async def decode(self, request: AnyPageRequest) -> None:
        assert request.endpoint is not None
        request.query = decode_form(request.scope["query_string"], request.endpoint.query)[0]
        if request.endpoint.body is not None:
            request.body = await read_form(request, request.endpoint.body)

    def encode(self, request: AnyPageRequest, value: HttpResponse) -> HttpResponse:
        """Removes a stream from the response to HEAD, so that it is not started."""
        is_stream = not isinstance(value.body, bytes)
        return structs.replace(value, body=b"") if is_stream and request.method == "HEAD" else value

    # Errors

    def error_response(self, request: AnyPageRequest, failure: Exception) -> tuple[HttpResponse, str]:
        error, status, headers = problems.reported(failure)
        if isinstance(error, Unauthenticated):
            # Without a key, the page only asks for one. The message is for keys that are not valid.
            problem = str(error) if cookies.key_of(request) is not None or not self.auth.needs_key else None
            to = request.path_and_query if request.method == "GET" else ""
            return self._sign_in.page(request, problem, to), error.code
        says_why = is_trusted(request) or status < 500 or isinstance(error, Unsupported)
        detail, language = error_texts.translate(str(error) if says_why else inspect.getdoc(type(error)) or "")
        values = {
            "number": status,
            "title": type(error).__name__,
            "detail": detail,
            "detail_language": language,
            "request_id": request.request_id,
        }
        return request.render_error(status, headers, **values), error.code


async def _unreadable(send: Send, error: Exception) -> None:
    """Answers a request whose path is not valid text."""
    status = error.status if isinstance(error, HansardError) else 500
    _LOG.warning("a request could not be read: %s", error)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"This address cannot be read.\n"})
