"""The way of a request to a page: find it, let the caller in, decode, show.

What fails on the way becomes a page too: the sign-in for those who are not known, else what went wrong.
"""

from __future__ import annotations

import inspect
import logging
from functools import partial
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs
from starlette.types import Receive, Scope, Send

from hansard.errors import (
    HansardError,
    Outcome,
    TimedOut,
    Unauthenticated,
    Unsupported,
    ValidationError,
)
from hansard.server import bodies
from hansard.server.bodies import Body, Gone
from hansard.server.calls import Answer
from hansard.server.exchanges import fault_of, left
from hansard.server.parts import Parts
from hansard.server.routing import Router
from hansard.server.web import cookies, files
from hansard.server.web.books import Books
from hansard.server.web.chat import Model, configured
from hansard.server.web.looks import FORM, Look, Services, decode, redirect, shown
from hansard.server.web.tree import PAGES
from hansard.server.web.visits import Visit

_LOG = logging.getLogger("hansard.server.web")
_MOST_FORM_BYTES = 4_000_000
_SIGN_IN, _SIGN_OUT = b"/sign-in", b"/sign-out"


class SignIn(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    to: str = ""


class SignOut(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Site:
    """The pages, as an application."""

    def __init__(self, parts: Parts, model: Model | None = None) -> None:
        self._services = Services(
            parts.store, parts.gate, parts.settings, parts.stopping, model or configured(parts.settings), Books()
        )
        self._parts = parts
        self._gate = parts.gate
        self._watchers = parts.watchers
        self._router = Router(PAGES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await files.send(scope, send):
            return
        try:
            visit = Visit(scope, send)
        except Exception as error:
            await _unreadable(send, error)
            return
        body = self._parts.body(receive, visit.headers)
        try:
            answer = await self._answer(visit, body)
            visit.received = body.size
            self._watchers.answered(visit, answer.status)
            await visit.send(answer, body.gone)
        except Gone:
            left(visit, self._watchers)
        except Exception as error:
            if visit.has_begun:
                _LOG.error("the answer to %s broke off: %r", visit.request_id, error)
                return
            await visit.send(self._failed(visit, error), body.gone)

    async def _answer(self, visit: Visit, body: Body) -> Answer:
        if visit.path == b"":
            return redirect(visit.home)
        if visit.method == "POST" and visit.path in (_SIGN_IN, _SIGN_OUT):
            return await self._sign(visit, body)
        visit.caller = caller = await cookies.admit(self._gate, visit)
        endpoint, visit.parameters = self._router.find("GET" if visit.method == "HEAD" else visit.method, visit.path)
        visit.endpoint = endpoint
        self._gate.allow(caller, endpoint)
        chosen = {} if visit.chosen is None else {b"hansard-tenant": quote(visit.chosen, safe="").encode()}
        view = self._gate.view(self._services.store, caller, chosen)
        visit.tenant, visit.user = view.tenant_id, view.user_id
        body.charge = partial(self._gate.charge, caller)
        look: Look[Any, Any] = Look(self._services, visit, view, caller, body)
        look.query = decode(visit.scope["query_string"], endpoint.query)[0]
        if endpoint.body is not None:
            look.form = await self._form(visit, body, endpoint.body)
        try:
            return _headless(visit, await self._parts.answers.wait_for(endpoint.handler(look)))
        except TimeoutError as error:
            outcome: Outcome = "not_applied" if endpoint.scope == "read" else "unknown"
            raise TimedOut("the store did not answer in time", outcome=outcome) from error

    async def _form(self, visit: Visit, body: Body, kind: type[Struct]) -> Any:
        bodies.need_type(visit.headers, FORM)
        encoded = await body.whole()
        if len(encoded) > _MOST_FORM_BYTES:
            raise ValidationError(f"a form may have {_MOST_FORM_BYTES:,} bytes: use the API for more")
        form, proof = decode(encoded, kind)
        cookies.check_form(visit, proof)
        return form

    # Signing in and out

    async def _sign(self, visit: Visit, body: Body) -> Answer:
        visit.entrance = "sign_in" if visit.path == _SIGN_IN else "sign_out"
        if visit.path == _SIGN_OUT:
            await self._form(visit, body, SignOut)
            return redirect("./", *cookies.signed_out(visit))
        form: SignIn = await self._form(visit, body, SignIn)
        try:
            visit.caller = await cookies.holds(self._gate, visit, form.key.strip())
        except Unauthenticated as error:
            return self._sign_in(visit, str(error), form.to)
        to = quote(form.to.lstrip("/\\"), safe="/%?&=+~:,;@!$'()*-._")
        return redirect("./" + to, *cookies.signed_in(visit, form.key.strip(), form.to))

    def _sign_in(self, visit: Visit, problem: str | None, to: str) -> Answer:
        seed, headers = cookies.seed_of(visit)
        proof = cookies.proof_of(visit, seed)
        needs_key = self._gate.needs_key
        values = {"root": visit.root, "proof": proof, "problem": problem, "to": to, "needs_key": needs_key}
        return shown("sign_in.html", 401, headers, colours=visit.colours, **values)

    # What went wrong

    def _failed(self, visit: Visit, failure: Exception) -> Answer:
        error, status, headers = fault_of(visit, failure, self._watchers)
        if isinstance(error, Unauthenticated):
            # Whoever comes without a key is asked for one; the words are for one that does not hold.
            problem = str(error) if cookies.key_of(visit) is not None or not self._gate.needs_key else None
            return self._sign_in(visit, problem, visit.here if visit.method == "GET" else "")
        is_trusted = visit.caller is not None and visit.caller.is_operator
        says_why = is_trusted or status < 500 or isinstance(error, Unsupported)
        kind = type(error)
        detail = str(error) if says_why else inspect.getdoc(kind)
        values = {"root": visit.root, "home": visit.home, "number": status, "title": kind.__name__, "detail": detail}
        return shown("error.html", status, headers, colours=visit.colours, request_id=visit.request_id, **values)


def _headless(visit: Visit, answer: Answer) -> Answer:
    """A stream is not even begun for those who only ask for its head."""
    is_stream = not isinstance(answer.body, bytes)
    return structs.replace(answer, body=b"") if is_stream and visit.method == "HEAD" else answer


async def _unreadable(send: Send, error: Exception) -> None:
    """A path that is not even text."""
    status = error.status if isinstance(error, HansardError) else 500
    _LOG.warning("a request could not be read: %s", error)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"This address cannot be read.\n"})
