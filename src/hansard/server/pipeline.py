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

    def __init__(self, parts: ServerContext, endpoints: Iterable[Endpoint]) -> None:
        self.parts = parts
        self.auth = parts.auth
        self.router = Router(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(self.call(scope, receive, send))

    async def serve(self, call: C) -> None:
        """Answers a request, whatever happens."""
        try:
            answer = await self.answer(call)
            call.received = call.stream.size
            self.parts.observe(call, answer.status)
            await call.send(answer)
        except ClientDisconnected:
            _LOG.info("the client of %s left", call.request_id)
            if not call.has_begun:
                self._left(call)
        except Exception as error:
            if call.has_begun:
                # Half an answer must not look whole: leaving it unfinished makes the server close the connection.
                _LOG.error("the answer to %s broke off: %r", call.request_id, error)
                return
            await call.send(self.fail(call, error))

    async def answer(self, call: C) -> HttpResponse:
        await self.open(call)
        await self.decode(call)
        return self.encode(call, await self._run(call))

    async def open(self, call: C) -> None:
        """Lets the caller in, and no further than they may go."""
        call.caller = caller = await self.admit(call)
        call.endpoint, call.path = endpoint, _ = self.find(call)
        self.auth.allow(caller, endpoint)
        call.store = view = self.auth.view(self.parts.store, caller, self.choice(call))
        call.tenant, call.user = view.tenant_id, view.user_id
        call.stream.charge = partial(self.auth.charge, caller)

    async def _run(self, call: C) -> Any:
        assert call.endpoint is not None
        if call.endpoint.is_slow:
            return await call.endpoint.handler(call)
        try:
            return await self.parts.answers.wait_for(call.endpoint.handler(call))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if call.endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error

    # What a dialect decides

    @abstractmethod
    def call(self, scope: Scope, receive: Receive, send: Send) -> C:
        """A request, before anything is known about it."""

    async def admit(self, call: C) -> Caller:
        """Who asks."""
        return await self.auth.admit(call.headers, call.scope.get("client"))

    def find(self, call: C) -> tuple[Endpoint, tuple[str, ...]]:
        """The endpoint, and what stands in the path for its parameters."""
        return self.router.find(call.method, call.address)

    def choice(self, call: C) -> dict[bytes, bytes]:
        """The headers that choose a tenant and a user."""
        return call.headers

    @abstractmethod
    async def decode(self, call: C) -> None:
        """Reads the query and the body."""

    def encode(self, call: C, value: Any) -> HttpResponse:
        """What a handler returned, as an answer."""
        return value if isinstance(value, HttpResponse) else HttpResponse(_encode(value))

    def refusal(self, call: C, failure: Exception) -> tuple[HttpResponse, str]:
        """A failure as the client is told of it, and its stable code: here as a problem document."""
        error, status, headers = problems.reported(failure)
        if isinstance(error, Unauthenticated):
            headers = ((b"www-authenticate", b"Bearer"),)
        body = problems.encode(error, status, call.request_id, is_trusted=is_trusted(call))
        return HttpResponse(body, status, headers, problems.MEDIA_TYPE), error.code

    # What went wrong

    def fail(self, call: C, failure: Exception) -> HttpResponse:
        """The answer to a request that failed. Those who observe have been told of it."""
        answer, code = self.refusal(call, failure)
        if not isinstance(failure, self.expected):
            _LOG.error("request %s failed", call.request_id, exc_info=failure)
        elif answer.status >= 500:
            _LOG.warning("request %s: %s: %s", call.request_id, code, failure)
        try:
            self.parts.observe(call, answer.status, code)
        except Unavailable as error:
            _LOG.error("request %s: %s", call.request_id, error)
            answer, _ = self.refusal(call, error)
        return answer

    def _left(self, call: C) -> None:
        """The client went away in the middle of its request. Nobody is there to be told what goes wrong now."""
        try:
            self.parts.observe(call, _CLIENT_LEFT)
        except Unavailable as error:
            _LOG.error("request %s: %s", call.request_id, error)


def is_trusted(call: Request[Any, Any]) -> bool:
    """Whether the client may know what a failure of the storage names: files and hosts."""
    return call.caller is not None and call.caller.is_operator
