"""Signing in and out: with a key of the server, or with a provider of OpenID Connect.

A sign-in with a provider leaves the site and comes back to `/sign-in/callback`. A cookie binds the two: it is deleted
there, and nothing is kept in the server. The session is then the provider's token, in the cookie of keys.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from msgspec import Struct

from hansard.errors import Unauthenticated, Unavailable, ValidationError
from hansard.server.addresses import CALLBACK
from hansard.server.auth import Auth
from hansard.server.endpoints import Caller, Headers, HttpResponse
from hansard.server.oidc import OidcProvider, SignInAttempt
from hansard.server.web import cookies, error_texts
from hansard.server.web.page_request import PageRequest, decode_form, html_response, read_form, redirect

ATTEMPT = cookies.OURS + "sign_in"
HOST_ATTEMPT = cookies.HOST + ATTEMPT
_MINUTES_10 = 600
_MOST_PATH = 1500
"""The longest path to return to: a cookie has at most 4,096 bytes."""

AnyPageRequest = PageRequest[Any, Any]
Handler = Callable[[AnyPageRequest], Awaitable[HttpResponse]]


class SignInForm(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    to: str = ""


class SignOutForm(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class StartQuery(Struct, frozen=True, forbid_unknown_fields=True):
    to: str = ""


class Started(Struct, frozen=True):
    """The content of the cookie between the start of a sign-in and its callback."""

    attempt: SignInAttempt
    to: str


class SignIn:
    """The pages that sign in and out. They are found before a caller is authenticated."""

    def __init__(self, auth: Auth, redirect_uri: str | None) -> None:
        self._auth = auth
        self._redirect_uri = redirect_uri
        self._handlers: dict[tuple[str, bytes], Handler] = {
            ("POST", b"/sign-in"): self._with_key,
            ("POST", b"/sign-out"): self._out,
        }
        if auth.oidc is not None:
            self._handlers[("GET", b"/sign-in/oidc")] = self._start
            self._handlers[("GET", CALLBACK.encode())] = self._finish

    def find(self, request: AnyPageRequest) -> Handler | None:
        return self._handlers.get((request.method, request.raw_path))

    def page(self, request: AnyPageRequest, problem: str | None, to: str, status: int = 401) -> HttpResponse:
        """Renders the page that asks a person to sign in."""
        seed, headers = cookies.seed_of(request)
        shown = None if problem is None else error_texts.translate(problem)[0]
        return html_response(
            "sign_in.html",
            status,
            headers,
            root=request.root_link,
            colours=request.colours,
            proof=cookies.proof_of(request, seed),
            needs_key=self._auth.needs_key,
            provider=None if self._auth.oidc is None else self._auth.oidc.name,
            problem=shown,
            to=to,
        )

    # With a key

    async def _with_key(self, request: AnyPageRequest) -> HttpResponse:
        request.sign_action = "sign_in"
        form: SignInForm = await read_form(request, SignInForm)
        try:
            request.caller = await cookies.caller_of_key(self._auth, request, form.key.strip())
        except Unauthenticated as error:
            return self.page(request, str(error), form.to)
        return redirect("./" + _inside(form.to), *cookies.signed_in(request, form.key.strip(), form.to))

    # With a provider

    @property
    def _oidc(self) -> OidcProvider:
        assert self._auth.oidc is not None
        return self._auth.oidc

    async def _start(self, request: AnyPageRequest) -> HttpResponse:
        """Redirects to the provider."""
        request.sign_action = "start_sign_in"
        to = decode_form(request.scope["query_string"], StartQuery)[0].to
        started = Started(
            SignInAttempt(*(secrets.token_urlsafe(32) for _ in range(3))), to if len(to) <= _MOST_PATH else ""
        )
        try:
            where = await self._oidc.authorization_url(started.attempt, self._callback_of(request))
        except Unavailable as error:
            return self.page(request, str(error), to, error.status)
        value = base64.urlsafe_b64encode(msgspec.json.encode(started)).decode()
        return redirect(where, self._attempt_cookie(request, value, _MINUTES_10))

    async def _finish(self, request: AnyPageRequest) -> HttpResponse:
        """Answers the callback: sets the session, or says on the page why not."""
        request.sign_action = "sign_in"
        started = _started_of(request)
        answer = _callback_query(request)
        if started is None or not _is_equal(answer.get("state", ""), started.attempt.state):
            return self.page(
                request, "this sign-in was not begun in this browser, or more than 10 minutes ago: sign in again", ""
            )
        try:
            token = await self._redeem(request, answer, started.attempt)
            request.caller = await self._caller_of(request, token)
        except (Unauthenticated, Unavailable) as error:
            return self.page(request, str(error), started.to, error.status)
        return redirect(
            request.root_link + _inside(started.to),
            self._attempt_cookie(request, "", 0),
            *self._session(request, token, request.caller),
        )

    async def _redeem(self, request: AnyPageRequest, answer: dict[str, str], attempt: SignInAttempt) -> str:
        if answer.get("error") == "access_denied":
            raise Unauthenticated(f"the sign-in with {self._oidc.name} was cancelled")
        if "code" not in answer:
            raise Unauthenticated(f"{self._oidc.name} refused the sign-in ({answer.get('error', 'no code')[:100]})")
        return await self._oidc.redeem(answer["code"], attempt, self._callback_of(request))

    async def _caller_of(self, request: AnyPageRequest, token: str) -> Caller:
        """Returns the caller of a token, by the way that every later request takes."""
        if not cookies.is_storable(token):
            raise Unauthenticated(
                f"the token of {self._oidc.name} is too large for a cookie: its provider must issue fewer claims"
            )
        caller = await cookies.caller_of_key(self._auth, request, token)
        if "read" not in caller.scopes:
            raise Unauthenticated("your account may not read here: it has no scope 'read'")
        return caller

    def _session(self, request: AnyPageRequest, token: str, caller: Caller) -> Headers:
        """Returns headers that set the session until the token ends."""
        assert caller.until is not None
        seconds = max(1, int((caller.until - datetime.now(UTC)).total_seconds()))
        return cookies.signed_in_below(request, token, self._path_of(request), seconds)

    def _attempt_cookie(self, request: AnyPageRequest, value: str, seconds: int) -> tuple[bytes, bytes]:
        path = self._path_of(request)
        name = HOST_ATTEMPT if request.is_https and path == "/" else ATTEMPT
        return cookies.cookie(request, name, value, path=path, seconds=seconds)

    # Addresses

    def _callback_of(self, request: AnyPageRequest) -> str:
        """Returns the address that the provider redirects to. It must have been registered there."""
        if self._redirect_uri is not None:
            return self._redirect_uri
        host = request.headers.get(b"host", b"").decode("latin-1")
        if not host:
            raise ValidationError("the request names no host")
        return f"{'https' if request.is_https else 'http'}://{host}{request.scope.get('root_path', '')}{CALLBACK}"

    def _path_of(self, request: AnyPageRequest) -> str:
        """Returns the path of the first page, as the browser sees it."""
        return urlsplit(self._callback_of(request)).path.removesuffix(CALLBACK) or "/"

    # Signing out

    async def _out(self, request: AnyPageRequest) -> HttpResponse:
        request.sign_action = "sign_out"
        await read_form(request, SignOutForm)
        ended = cookies.signed_out(request)
        where = await self._provider_sign_out(request)
        if where is None:
            return redirect("./", *ended)
        # Not a redirect: browsers apply the policy `form-action 'self'` to the redirects of a form, too.
        leave = (b"refresh", f"0; url={where}".encode())
        values = {"root": request.root_link, "colours": request.colours, "provider": self._oidc.name, "where": where}
        return html_response("signed_out.html", 200, (*ended, leave), **values)

    async def _provider_sign_out(self, request: AnyPageRequest) -> str | None:
        """Returns where to sign out of the provider; None if the session is not one of its tokens."""
        token = cookies.key_of(request)
        if self._auth.oidc is None or token is None:
            return None
        try:
            await self._oidc.verifier.claims(token)
            return await self._oidc.sign_out_url(token, self._callback_of(request).removesuffix(CALLBACK) + "/")
        except (Unauthenticated, Unavailable):
            return None  # signing out of this server must work while the provider does not answer


def _inside(to: str) -> str:
    """Returns a path to return to, encoded. It follows a relative link, so it cannot lead to another site."""
    return quote(to.lstrip("/\\"), safe="/%?&=+~:,;@!$'()*-._")


def _started_of(request: AnyPageRequest) -> Started | None:
    value = request.cookies.get(HOST_ATTEMPT, request.cookies.get(ATTEMPT, ""))
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(value.encode("latin-1")), type=Started)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        return None


def _callback_query(request: AnyPageRequest) -> dict[str, str]:
    """Returns the parameters of the callback. Providers may add some that are not used here."""
    try:
        return dict(parse_qsl(request.scope["query_string"].decode("latin-1"), max_num_fields=100))
    except ValueError as error:
        raise ValidationError(f"the answer of the provider cannot be read: {error}") from error


def _is_equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())
