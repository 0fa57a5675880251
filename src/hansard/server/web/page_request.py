"""A request of a browser: its position among the pages, its cookies, and the rendering of its response.

Links are relative, so that pages work behind any path prefix of a proxy without configuration. Browsers resolve links
against the encoded path, so links are built from that: an id with a slash is one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup, escape
from msgspec import Struct
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from hansard.errors import ConversationNotFound, ValidationError
from hansard.model import DEFAULT_TENANT, Conversation
from hansard.server import body, parameters
from hansard.server.context import ServerContext
from hansard.server.endpoints import H, Headers, HttpResponse, Routes, Scope
from hansard.server.request import Request
from hansard.server.web import cookies, markup, words
from hansard.server.web.chat import PageModel
from hansard.server.web.conversation_facts import FactsReader
from hansard.server.web.links import unsegment
from hansard.server.web.usage_totals import UsageTotals

TENANT = b"/t/"
COLOURS = cookies.OURS + "colours"
LANGUAGE = cookies.OURS + "language"
HTML = "text/html; charset=utf-8"
FORM = "application/x-www-form-urlencoded"
PROOF = "proof"
_MOST_FORM_BYTES = 4_000_000
_TITLE, _INSIDE = Markup("<!-- title -->"), Markup("<!-- inside -->")
"""Mark the places of title and content in a cached frame. Values are escaped, so none of them can contain them."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS: Headers = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
SANDBOX_HEADERS: Headers = (
    (b"content-security-policy", b"sandbox; default-src 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers for stored content that is opened by itself: no script in it is executed."""

Q = TypeVar("Q")
F = TypeVar("F")


class NoForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A form without fields."""


class PageRoutes(Routes):
    """Declares pages (GET) and forms (POST). Handlers take `PageRequest[Query, Form]`."""

    def page(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self.get(path, **({"body": None, "produces": HTML} | facts))

    def form(self, path: str, **facts: Any) -> Callable[[H], H]:
        return self.post(path, **({"produces": HTML} | facts))


class WebServices(Struct, frozen=True):
    """Objects that all pages share."""

    model: PageModel
    totals: UsageTotals
    facts: FactsReader

    def forget(self) -> None:
        """Clears what was added up, after a deletion."""
        self.totals.clear()
        self.facts.clear()


class PageRequest(Request[Q, F]):
    """One request of a browser."""

    def __init__(
        self, services: WebServices, context: ServerContext, scope: AsgiScope, receive: Receive, send: Send
    ) -> None:
        super().__init__(context, 0, scope, receive, send)
        self.services = services
        self.raw_path = self.raw_path or b"/"
        self.root_link = "../" * (self.raw_path.count(b"/") - 1) or "./"
        """Relative link to the first page."""
        self.home = self.root_link
        """Relative link to the first page of the chosen tenant."""
        self.chosen_tenant: str | None = None
        """The tenant in the path, which an operator has chosen."""
        self.sign_action: str | None = None
        """`start_sign_in`, `sign_in` or `sign_out`, which are not among the endpoints."""
        if self.raw_path.startswith(TENANT):
            self._read_tenant()

    def _read_tenant(self) -> None:
        segment, slash, rest = self.raw_path[len(TENANT) :].partition(b"/")
        self.chosen_tenant = unsegment(parameters.unquote(segment, "the tenant"))
        self.home = f"{self.root_link}t/{segment.decode('latin-1')}/"
        self.raw_path = b"/" + rest if slash else b""

    @property
    def action(self) -> str | None:
        return self.sign_action or super().action

    @property
    def path_and_query(self) -> str:
        """The requested path and query, relative to the first page."""
        sent: bytes = self.scope.get("raw_path") or self.scope["path"].encode()
        query = self.scope["query_string"]
        path = sent[len(self.scope.get("root_path", "")) :].lstrip(b"/")
        return (path + (b"?" + query if query else b"")).decode("latin-1")

    @cached_property
    def cookies(self) -> Mapping[str, str]:
        return cookies.own_cookies(self.headers)

    @property
    def colours(self) -> str | None:
        """`light` or `dark`, if the reader has chosen; None for the system's setting."""
        chosen = self.cookies.get(COLOURS)
        return chosen if chosen in ("light", "dark") else None

    @property
    def language(self) -> str:
        accepted = self.headers.get(b"accept-language", b"").decode("latin-1")
        return words.chosen_of(self.cookies.get(LANGUAGE), accepted)

    @property
    def chosen_language(self) -> tuple[str, tuple[bytes, bytes]] | None:
        """Where to go, and the cookie to set, if the query chooses a language: `?lang=de`."""
        if b"lang=" not in self.scope["query_string"]:
            return None
        pairs = parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        chosen = next((value for name, value in pairs if name == "lang"), None)
        if chosen is None:
            return None
        if chosen not in words.LANGUAGES:
            raise ValidationError(f"lang is {chosen[:20]!r}: the page has {', '.join(words.LANGUAGES)}")
        rest = urlencode([(name, value) for name, value in pairs if name != "lang"])
        path = self.path_and_query.partition("?")[0]
        return self.root_link + path + (f"?{rest}" if rest else ""), cookies.cookie(
            self, LANGUAGE, chosen, path="/", seconds=cookies.YEAR
        )

    @property
    def is_https(self) -> bool:
        """Whether the browser seems to use TLS. A client can forge this, but it only makes cookies stricter."""
        return self.scope.get("scheme") == "https" or self.headers.get(b"x-forwarded-proto") == b"https"

    @property
    def wants_fragment(self) -> bool:
        """Whether the script requests a fragment instead of a whole page."""
        return self.headers.get(b"hansard-piece") == b"1"

    def may(self, scope: Scope) -> bool:
        return scope in self.known_caller.scopes

    async def conversation(self) -> Conversation:
        """Returns the conversation of the path."""
        found = await self.store.get_conversation(self.path[0])
        if found is None:
            raise ConversationNotFound(f"there is no conversation {self.path[0]!r} here")
        return found

    # Pages

    @cached_property
    def _seed(self) -> tuple[str, Headers]:
        return cookies.seed_of(self)

    @cached_property
    def proof(self) -> str:
        """The proof that every form on the page contains."""
        return cookies.proof_of(self, self._seed[0])

    def _around(self) -> dict[str, Any]:
        """Returns the values that the frame of every page shows."""
        return self._navigation() | {"tenant": self.store.tenant_id, "can": self.store.capabilities}

    def _navigation(self) -> dict[str, Any]:
        """Returns those values that need no store."""
        return {
            "colours": self.colours,
            "root": self.root_link,
            "home": self.home,
            "proof": self.proof,
            "chosen": self.chosen_tenant,
            "is_signed_in": cookies.key_of(self) is not None and self.context.auth.needs_key,
            "model": self.services.model.name,
            "caller": self.caller,
        }

    def render(self, template: str, *, status: int = 200, **values: Any) -> HttpResponse:
        """Renders a whole page: the blocks of its template inside the frame. The same values are rendered once.

        The answer to a form may show a secret, such as a new key: it is not cached.
        """
        around = self._around()
        if self.method == "POST":
            return self._response(self._page(template, around, values), status)
        page = markup.cached((template, around, values), lambda: self._page(template, around, values))
        return self._response(page, status)

    def _page(self, template: str, around: dict[str, Any], values: dict[str, Any]) -> str:
        blocks = markup.render_blocks(template, around | {"may": self.may} | values)
        here, scripts = blocks.get("here", Markup("")), blocks.get("scripts", Markup(""))
        return self._framed(around, here, scripts, blocks["title"], blocks["main"])

    def _response(self, page: str, status: int = 200) -> HttpResponse:
        return HttpResponse(page.encode("utf-8", "replace"), status, (*PAGE_HEADERS, *self._seed[1]), HTML)

    def render_error(self, status: int, headers: Headers, **values: Any) -> HttpResponse:
        """Renders an error, with the navigation if the caller is known."""
        if self.caller is None:
            links = {"root": self.root_link, "home": self.home, "colours": self.colours}
            return html_response("error_without_caller.html", status, headers, **links, **values)
        tenant = self.chosen_tenant or self.caller.tenant or DEFAULT_TENANT
        around = self._navigation() | {"tenant": tenant, "may": self.may}
        return html_response("error.html", status, (*headers, *self._seed[1]), **around, **values)

    def render_around(self, here: str, title: str, inside: Markup) -> HttpResponse:
        """Renders a whole page around HTML."""
        whole = escape(title) + Markup(" &#183; Hansard")
        return self._response(self._framed(self._around(), here, Markup(""), whole, inside))

    def _framed(self, around: dict[str, Any], here: str, scripts: Markup, title: Markup, inside: Markup) -> str:
        """Puts title and content into the frame, which is rendered once for the same values."""
        values = around | {"here": here, "scripts": scripts}
        frame = markup.cached(
            values,
            lambda: markup.render("frame.html", **values, may=self.may, title=_TITLE, made=_INSIDE),
            markup.frame_cache,
        )
        before, _, rest = frame.partition(_TITLE)
        middle, _, after = rest.partition(_INSIDE)
        return f"{before}{title}{middle}{inside}{after}"

    def fragment(self, html: Markup) -> HttpResponse:
        """Returns a part of a page for the script."""
        return HttpResponse(html.encode("utf-8", "replace"), 200, PAGE_HEADERS, HTML)

    def render_fragment(self, template: str, **values: Any) -> HttpResponse:
        """Renders a part of a page for the script."""
        facts = {"root": self.root_link, "home": self.home, "may": self.may, "can": self.store.capabilities}
        return html_response(template, 200, (), **facts, **values)

    def redirect(self, where: str) -> HttpResponse:
        """Redirects to a page, relative to the tenant's first page."""
        return redirect(self.home + where)


def html_response(template: str, status: int, headers: Headers, **values: Any) -> HttpResponse:
    return HttpResponse(
        markup.render(template, **values).encode("utf-8", "replace"), status, (*PAGE_HEADERS, *headers), HTML
    )


def redirect(where: str, *headers: tuple[bytes, bytes]) -> HttpResponse:
    return HttpResponse(b"", 303, (*PAGE_HEADERS, (b"location", where.encode("latin-1")), *headers), HTML)


async def read_form(request: PageRequest[Any, Any], kind: type[Struct]) -> Any:
    """Returns the form of a request, which must have been sent from one of our pages."""
    body.require_type(request.headers, FORM)
    encoded = await request.stream.whole()
    if len(encoded) > _MOST_FORM_BYTES:
        raise ValidationError(f"a form may have {_MOST_FORM_BYTES:,} bytes: use the API for more")
    form, proof = decode_form(encoded, kind)
    cookies.check_form(request, proof)
    return form


def decode_form(encoded: bytes, kind: type[Struct]) -> tuple[Any, str | None]:
    """Decodes a query string or a form, and its proof. Empty fields are treated as missing."""
    try:
        pairs = parse_qsl(encoded.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=1000)
    except ValueError as error:
        raise ValidationError(f"the form cannot be read: {error}") from error
    proof = next((value for name, value in pairs if name == PROOF), None)
    given = [(name, value.replace("\r\n", "\n")) for name, value in pairs if value and name != PROOF]
    return parameters.decode(urlencode(given).encode(), kind), proof
