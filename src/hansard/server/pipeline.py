"""The steps of every request: authenticate, find the endpoint, authorize, open the view, decode, handle, respond.

Each application is a subclass of `Pipeline`, which defines how requests are decoded and how errors are worded for its
clients. The order of the steps is fixed here, so no handler runs without all of them.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Iterable
from typing import Any, Generic, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from hansard.errors import HansardError, Outcome, TimedOut, Unauthenticated, Unavailable
from hansard.server import problems
from hansard.server.body import ClientDisconnected
from hansard.server.context import ServerContext
from hansard.server.endpoints import Caller, Endpoint, HttpResponse
from hansard.server.problems import HttpError
from hansard.server.request import Request
from hansard.server.router import Router

_LOG = logging.getLogger("hansard.server")
_CLIENT_LEFT = 499
_encode = msgspec.json.Encoder().encode

C = TypeVar("C", bound=Request[Any, Any])


class Pipeline(ABC, Generic[C]):
    """An application. Subclasses override how single steps work, but not their order."""

    expected: tuple[type[Exception], ...] = (HansardError, HttpError)
    """Exceptions whose message is meant for clients. Others are logged, and the client gets only its request id."""

    def __init__(self, context: ServerContext, endpoints: Iterable[Endpoint]) -> None:
        self.context = context
        self.auth = context.auth
        self.router = Router(endpoints)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return self.serve(self.make_request(scope, receive, send))

    async def serve(self, request: C) -> None:
        """Handles a request and sends its response. Raises nothing."""
        try:
            answer = await self.respond(request)
            request.received = request.stream.size
            self.context.observe(request, answer.status)
            await request.send(answer)
        except ClientDisconnected:
            _LOG.info("the client of %s disconnected", request.request_id)
            if not request.has_started:
                self._observe_disconnect(request)
        except Exception as error:
            if request.has_started:
                # A partial response must not look complete: if it is left unfinished, uvicorn closes the connection.
                _LOG.error("the response to %s was cut off: %r", request.request_id, error)
                return
            await request.send(self.fail(request, error))

    async def respond(self, request: C) -> HttpResponse:
        await self.open(request)
        await self.decode(request)
        return self.encode(request, await self._run_handler(request))

    async def open(self, request: C) -> None:
        """Authenticates the caller, finds and authorizes the endpoint, and opens the view."""
        request.caller = caller = await self.admit(request)
        request.endpoint, request.path = endpoint, _ = self.find(request)
        self.auth.authorize(caller, endpoint)
        request.store = view = self.auth.view(self.context.store, caller, self.view_headers(request))
        request.tenant, request.user = view.tenant_id, view.user_id
        request.stream.charge = self.auth.charge_of(caller)

    async def _run_handler(self, request: C) -> Any:
        assert request.endpoint is not None
        if request.endpoint.is_slow:
            return await request.endpoint.handler(request)
        try:
            return await self.context.handler_deadlines.wait_for(request.endpoint.handler(request))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if request.endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error

    # Steps that applications override

    @abstractmethod
    def make_request(self, scope: Scope, receive: Receive, send: Send) -> C:
        """Creates the request."""

    def admit(self, request: C) -> Coroutine[Any, Any, Caller]:
        """Returns the caller."""
        return self.auth.admit(request.headers, request.scope.get("client"))

    def find(self, request: C) -> tuple[Endpoint, tuple[str, ...]]:
        """Returns the endpoint and the values of its path parameters."""
        return self.router.find(request.method, request.raw_path)

    def view_headers(self, request: C) -> dict[bytes, bytes]:
        """Returns the headers that choose a tenant and a user."""
        return request.headers

    @abstractmethod
    async def decode(self, request: C) -> None:
        """Reads the query and the body."""

    def encode(self, request: C, value: Any) -> HttpResponse:
        """Converts what a handler returned to a response."""
        return value if isinstance(value, HttpResponse) else HttpResponse(_encode(value))

    def error_response(self, request: C, failure: Exception) -> tuple[HttpResponse, str]:
        """Returns the response for a failure, by default a problem document, and its stable error code."""
        error, status, headers = problems.reported(failure)
        if isinstance(error, Unauthenticated):
            headers = ((b"www-authenticate", b"Bearer"),)
        body = problems.encode(error, status, request.request_id, is_trusted=is_trusted(request))
        return HttpResponse(body, status, headers, problems.MEDIA_TYPE), error.code

    # Failures

    def fail(self, request: C, failure: Exception) -> HttpResponse:
        """Returns the response to a request that failed, after the observers were called."""
        answer, code = self.error_response(request, failure)
        if not isinstance(failure, self.expected):
            _LOG.error("request %s failed", request.request_id, exc_info=failure)
        elif answer.status >= 500:
            _LOG.warning("request %s: %s: %s", request.request_id, code, failure)
        try:
            self.context.observe(request, answer.status, code)
        except Unavailable as error:
            _LOG.error("request %s: %s", request.request_id, error)
            answer, _ = self.error_response(request, error)
        return answer

    def _observe_disconnect(self, request: C) -> None:
        """Calls the observers after a disconnect. An error can only be logged: the client is gone."""
        try:
            self.context.observe(request, _CLIENT_LEFT)
        except Unavailable as error:
            _LOG.error("request %s: %s", request.request_id, error)


def is_trusted(request: Request[Any, Any]) -> bool:
    """Whether the client may see the message of a storage failure, which may contain file and host names."""
    return request.caller is not None and request.caller.is_operator
