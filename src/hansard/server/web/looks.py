"""What a page is given, and what it gives back.

A page is declared as the routes of the API are, by an `Endpoint`: its scope, its query and its form are types, and what
is declared is guarded, audited and tested.
"""

from __future__ import annotations

import secrets
from functools import cached_property
from html import escape
from typing import Any, Generic, TypeVar
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from msgspec import Struct

from hansard.errors import ConversationNotFound, ValidationError
from hansard.model import Conversation
from hansard.server import parameters
from hansard.server.bodies import Body
from hansard.server.calls import Answer, Caller, Endpoint, Handler, Headers, NoQuery
from hansard.server.gate import Gate
from hansard.server.scopes import Scope
from hansard.server.settings import Settings
from hansard.server.tail import Stopping
from hansard.server.web import cookies, rendering
from hansard.server.web.books import Books
from hansard.server.web.chat import Model
from hansard.server.web.visits import Visit, unsegment
from hansard.store import Store

HTML = "text/html; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
PROOF = "proof"
_PLACE = secrets.token_hex(16)
"""Where a frame leaves room. It can stand nowhere else: nobody knows it."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SAFE: Headers = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
ALONE: Headers = (
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""For what people have stored and is opened by itself: whatever it is, nothing in it runs."""

Q = TypeVar("Q")
F = TypeVar("F")


class Services(Struct, frozen=True):
    """What all pages share."""

    store: Store
    gate: Gate
    settings: Settings
    stopping: Stopping
    model: Model
    books: Books


class Look(Generic[Q, F]):
    """One page, asked for by somebody who may."""

    query: Q
    form: F

    def __init__(self, services: Services, visit: Visit, store: Store, caller: Caller, body: Body) -> None:
        self.services = services
        self.visit = visit
        self.store = store
        """The store as the caller may see it."""
        self.caller = caller
        self.stream = body

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(unsegment(each) for each in self.visit.parameters)

    def may(self, scope: Scope) -> bool:
        return scope in self.caller.scopes

    @cached_property
    def _seed(self) -> tuple[str, Headers]:
        return cookies.seed_of(self.visit)

    @cached_property
    def proof(self) -> str:
        """What every form on the page carries."""
        return cookies.proof_of(self.visit, self._seed[0])

    async def conversation(self) -> Conversation:
        """The conversation that the path names."""
        found = await self.store.get_conversation(self.path[0])
        if found is None:
            raise ConversationNotFound(f"there is no conversation {self.path[0]!r} here")
        return found

    def show(self, template: str, *, status: int = 200, **values: Any) -> Answer:
        """A whole page."""
        more = {"can": self.store.capabilities, "model": self.services.model.name, **values}
        return shown(template, status, self._seed[1], caller=self.caller, may=self.may, **self._around(), **more)

    def frame(self, here: str, title: str, inside: Markup) -> Answer:
        """A whole page around what was made for it. What stands around it is much the same on all of them."""
        facts = {"here": here, **self._around()}

        def write() -> str:
            return rendering.render("frame.html", place=_PLACE, caller=self.caller, may=self.may, **facts)

        frame = rendering.remembered("frame", (facts, sorted(self.caller.scopes), self.caller.user), write)
        before, between, after = str(frame).split(_PLACE)
        page = f"{before}{escape(title)} · Hansard{between}{inside}{after}"
        return Answer(page.encode("utf-8", "replace"), 200, (*SAFE, *self._seed[1]), HTML)

    def _around(self) -> dict[str, Any]:
        """What every page shows around its own."""
        return {
            "colours": self.visit.colours,
            "root": self.visit.root,
            "home": self.visit.home,
            "proof": self.proof,
            "tenant": self.store.tenant_id,
            "chosen": self.visit.chosen,
            "is_signed_in": cookies.key_of(self.visit) is not None and self.services.gate.needs_key,
        }

    def piece(self, template: str, **values: Any) -> Answer:
        """A part of a page, for the script."""
        facts = {"root": self.visit.root, "home": self.visit.home, "may": self.may, "can": self.store.capabilities}
        return shown(template, 200, (), **facts, **values)

    def go(self, where: str) -> Answer:
        """On to another page, given from the tenant's first."""
        return redirect(self.visit.home + where)


def shown(template: str, status: int, headers: Headers, **values: Any) -> Answer:
    return Answer(rendering.render(template, **values).encode("utf-8", "replace"), status, (*SAFE, *headers), HTML)


def redirect(where: str, *headers: tuple[bytes, bytes]) -> Answer:
    return Answer(b"", 303, (*SAFE, (b"location", where.encode("latin-1")), *headers), HTML)


class NoForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A form with nothing but its button."""


def see(path: str, handler: Handler, *, query: type[Struct] = NoQuery, scope: Scope = "read", **more: Any) -> Endpoint:
    return Endpoint(method="GET", path=path, handler=handler, scope=scope, query=query, gives=HTML, **more)


def do(path: str, handler: Handler, form: type[Struct] = NoForm, *, scope: Scope = "write", **more: Any) -> Endpoint:
    return Endpoint(method="POST", path=path, handler=handler, scope=scope, body=form, gives=HTML, **more)


def decode(encoded: bytes, kind: type[Struct]) -> tuple[Any, str | None]:
    """A query string or a form, and its proof. What was left empty was not given."""
    try:
        pairs = parse_qsl(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError as error:
        raise ValidationError(f"what was sent cannot be read: {error}") from error
    proof = next((value for name, value in pairs if name == PROOF), None)
    given = [(name, value.replace("\r\n", "\n")) for name, value in pairs if value and name != PROOF]
    return parameters.decode(urlencode(given).encode(), kind), proof
