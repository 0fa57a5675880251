"""The one way of every request, from the socket to the store and back.

Admit the caller, find the endpoint, authorise, open the view, decode, run, answer; and whatever fails on the way
becomes an error in the client's own terms. Each application is a `Pipeline` of its own dialect: it says how to decode a
request and how to word an error. Nothing that a handler is given has passed less than these steps.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import partial
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
    """An application. Subclasses override what their dialect does differently; the order of the steps is fixed here."""

    expected: tuple[type[Exception], ...] = (HansardError, HttpError)
    """Failures that are worded for clients. Any other is logged in full, and the client learns only its request id."""

    def __init__(self, context: ServerContext, endpoints: Iterable[Endpoint]) -> None:
        self.context = context
        self.auth = context.auth
        self.router = Router(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(self.make_request(scope, receive, send))

    async def serve(self, request: C) -> None:
        """Answers a request, whatever happens."""
        try:
            answer = await self.respond(request)
            request.received = request.stream.size
            self.context.observe(request, answer.status)
            await request.send(answer)
        except ClientDisconnected:
            _LOG.info("the client of %s left", request.request_id)
            if not request.has_started:
                self._observe_disconnect(request)
        except Exception as error:
            if request.has_started:
                # Half an answer must not look whole: leaving it unfinished makes the server close the connection.
                _LOG.error("the answer to %s broke off: %r", request.request_id, error)
                return
            await request.send(self.fail(request, error))

    async def respond(self, request: C) -> HttpResponse:
        await self.open(request)
        await self.decode(request)
        return self.encode(request, await self._run_handler(request))

    async def open(self, request: C) -> None:
        """Lets the caller in, and no further than they may go."""
        request.caller = caller = await self.admit(request)
        request.endpoint, request.path = endpoint, _ = self.find(request)
        self.auth.authorize(caller, endpoint)
        request.store = view = self.auth.view(self.context.store, caller, self.view_headers(request))
        request.tenant, request.user = view.tenant_id, view.user_id
        request.stream.charge = partial(self.auth.charge, caller)

    async def _run_handler(self, request: C) -> Any:
        assert request.endpoint is not None
        if request.endpoint.is_slow:
            return await request.endpoint.handler(request)
        try:
            return await self.context.handler_deadlines.wait_for(request.endpoint.handler(request))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if request.endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error

    # What a dialect decides

    @abstractmethod
    def make_request(self, scope: Scope, receive: Receive, send: Send) -> C:
        """A request, before anything is known about it."""

    async def admit(self, request: C) -> Caller:
        """Who asks."""
        return await self.auth.admit(request.headers, request.scope.get("client"))

    def find(self, request: C) -> tuple[Endpoint, tuple[str, ...]]:
        """The endpoint, and what stands in the path for its parameters."""
        return self.router.find(request.method, request.raw_path)

    def view_headers(self, request: C) -> dict[bytes, bytes]:
        """The headers that choose a tenant and a user."""
        return request.headers

    @abstractmethod
    async def decode(self, request: C) -> None:
        """Reads the query and the body."""

    def encode(self, request: C, value: Any) -> HttpResponse:
        """What a handler returned, as an answer."""
        return value if isinstance(value, HttpResponse) else HttpResponse(_encode(value))

    def error_response(self, request: C, failure: Exception) -> tuple[HttpResponse, str]:
        """A failure as the client is told of it, and its stable code: here as a problem document."""
        error, status, headers = problems.reported(failure)
        if isinstance(error, Unauthenticated):
            headers = ((b"www-authenticate", b"Bearer"),)
        body = problems.encode(error, status, request.request_id, is_trusted=is_trusted(request))
        return HttpResponse(body, status, headers, problems.MEDIA_TYPE), error.code

    # What went wrong

    def fail(self, request: C, failure: Exception) -> HttpResponse:
        """The answer to a request that failed. Those who observe have been told of it."""
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
        """The client went away in the middle of its request. Nobody is there to be told what goes wrong now."""
        try:
            self.context.observe(request, _CLIENT_LEFT)
        except Unavailable as error:
            _LOG.error("request %s: %s", request.request_id, error)


def is_trusted(request: Request[Any, Any]) -> bool:
    """Whether the client may know what a failure of the storage names: files and hosts."""
    return request.caller is not None and request.caller.is_operator
