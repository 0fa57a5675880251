"""The page: forms and cookies in, HTML out.

What fails becomes a page too: the sign-in for those who are not known, else what went wrong.
"""

from __future__ import annotations

import inspect
import logging
from typing import Any
from urllib.parse import quote

from msgspec import Struct, structs
from starlette.types import Receive, Scope, Send

from hansard.errors import HansardError, Unauthenticated, Unsupported, ValidationError
from hansard.server import body, problems
from hansard.server.context import ServerContext
from hansard.server.endpoints import Caller, Endpoint, HttpResponse
from hansard.server.pipeline import Pipeline, is_trusted
from hansard.server.web import (
    actions,
    admin,
    conversation,
    conversations,
    cookies,
    message,
    overview,
    prompt_explanation,
    search,
    static_files,
)
from hansard.server.web.chat import Echo, PageModel
from hansard.server.web.links import unsegment
from hansard.server.web.page_request import FORM, PageRequest, WebServices, decode, redirect, shown
from hansard.server.web.usage_totals import UsageTotals

PAGES: tuple[Endpoint, ...] = (
    *overview.routes,
    *conversations.routes,
    *conversation.routes,
    *message.routes,
    *search.routes,
    *prompt_explanation.routes,
    *actions.routes,
    *admin.routes,
)
"""Every page. What is declared here is guarded, audited and tested."""
_LOG = logging.getLogger("hansard.server")
_MOST_FORM_BYTES = 4_000_000
_SIGN_IN, _SIGN_OUT = b"/sign-in", b"/sign-out"

AnyPageRequest = PageRequest[Any, Any]


class SignInForm(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    to: str = ""


class SignOutForm(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Site(Pipeline[AnyPageRequest]):
    """The pages, as an application."""

    def __init__(self, parts: ServerContext, model: PageModel | None = None) -> None:
        super().__init__(parts, PAGES)
        self._services = WebServices(model or Echo(), UsageTotals())

    def call(self, scope: Scope, receive: Receive, send: Send) -> AnyPageRequest:
        return PageRequest(self._services, self.parts, scope, receive, send)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if await static_files.send(scope, send):
            return
        try:
            visit = self.call(scope, receive, send)
        except Exception as error:
            await _unreadable(send, error)
            return
        await self.serve(visit)

    async def answer(self, visit: AnyPageRequest) -> HttpResponse:
        if visit.address == b"":
            return redirect(visit.home)
        if visit.method == "POST" and visit.address in (_SIGN_IN, _SIGN_OUT):
            return await self._sign(visit)
        return await super().answer(visit)

    async def admit(self, visit: AnyPageRequest) -> Caller:
        return await cookies.admit(self.auth, visit)

    def find(self, visit: AnyPageRequest) -> tuple[Endpoint, tuple[str, ...]]:
        endpoint, path = self.router.find("GET" if visit.method == "HEAD" else visit.method, visit.address)
        return endpoint, tuple(map(unsegment, path))

    def choice(self, visit: AnyPageRequest) -> dict[bytes, bytes]:
        """The path chooses the tenant: a browser sends no headers of ours."""
        return {} if visit.chosen is None else {b"hansard-tenant": quote(visit.chosen, safe="").encode()}

    async def decode(self, visit: AnyPageRequest) -> None:
        assert visit.endpoint is not None
        visit.query = decode(visit.scope["query_string"], visit.endpoint.query)[0]
        if visit.endpoint.body is not None:
            visit.body = await _form(visit, visit.endpoint.body)

    def encode(self, visit: AnyPageRequest, value: HttpResponse) -> HttpResponse:
        """A stream is not even begun for those who only ask for its head."""
        is_stream = not isinstance(value.body, bytes)
        return structs.replace(value, body=b"") if is_stream and visit.method == "HEAD" else value

    # Signing in and out

    async def _sign(self, visit: AnyPageRequest) -> HttpResponse:
        visit.entrance = "sign_in" if visit.address == _SIGN_IN else "sign_out"
        if visit.address == _SIGN_OUT:
            await _form(visit, SignOutForm)
            return redirect("./", *cookies.signed_out(visit))
        form: SignInForm = await _form(visit, SignInForm)
        try:
            visit.caller = await cookies.holds(self.auth, visit, form.key.strip())
        except Unauthenticated as error:
            return self._sign_in(visit, str(error), form.to)
        to = quote(form.to.lstrip("/\\"), safe="/%?&=+~:,;@!$'()*-._")
        return redirect("./" + to, *cookies.signed_in(visit, form.key.strip(), form.to))

    def _sign_in(self, visit: AnyPageRequest, problem: str | None, to: str) -> HttpResponse:
        seed, headers = cookies.seed_of(visit)
        values = {"root": visit.root_link, "proof": cookies.proof_of(visit, seed), "problem": problem, "to": to}
        needs_key = self.auth.needs_key
        return shown("sign_in.html", 401, headers, colours=visit.colours, needs_key=needs_key, **values)

    # What went wrong

    def refusal(self, visit: AnyPageRequest, failure: Exception) -> tuple[HttpResponse, str]:
        error, status, headers = problems.reported(failure)
        if isinstance(error, Unauthenticated):
            # Whoever comes without a key is asked for one; the words are for one that does not hold.
            problem = str(error) if cookies.key_of(visit) is not None or not self.auth.needs_key else None
            return self._sign_in(visit, problem, visit.here if visit.method == "GET" else ""), error.code
        says_why = is_trusted(visit) or status < 500 or isinstance(error, Unsupported)
        values = {
            "root": visit.root_link,
            "home": visit.home,
            "colours": visit.colours,
            "number": status,
            "title": type(error).__name__,
            "detail": str(error) if says_why else inspect.getdoc(type(error)),
            "request_id": visit.request_id,
        }
        return shown("error.html", status, headers, **values), error.code


async def _form(visit: AnyPageRequest, kind: type[Struct]) -> Any:
    body.need_type(visit.headers, FORM)
    encoded = await visit.stream.whole()
    if len(encoded) > _MOST_FORM_BYTES:
        raise ValidationError(f"a form may have {_MOST_FORM_BYTES:,} bytes: use the API for more")
    form, proof = decode(encoded, kind)
    cookies.check_form(visit, proof)
    return form


async def _unreadable(send: Send, error: Exception) -> None:
    """A path that is not even text."""
    status = error.status if isinstance(error, HansardError) else 500
    _LOG.warning("a request could not be read: %s", error)
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"This address cannot be read.\n"})
