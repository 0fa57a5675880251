"""Templates into HTML. Everything that a template writes is escaped, unless it was made by `markdown` or a template.

A piece that is a pure function of what it shows is remembered by a digest of that: a page that is looked at again, or
scrolled, costs little more than reading what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from hansard import __version__
from hansard.web import content, files, visits
from hansard.web.memory import Memory, digest

_MOST_BYTES = 24_000_000
"""Of HTML that is remembered."""
memory = Memory(_MOST_BYTES)
_MACROS = ("message.html", "hit.html")
"""Templates that are a macro of the name `piece`: a page has many of them, and a macro costs less to begin."""
_encode = msgspec.json.Encoder(enc_hook=str).encode  # JSON, for integers of any size


def render(template: str, **values: Any) -> str:
    return named(template).render(values)


def remembered(template: str, shown: object, values: Callable[[], Mapping[str, Any]]) -> Markup:
    """The template with these values, which depend on what is shown and on nothing else."""
    key = key_of(template, shown)
    return recalled(key) or kept(key, template, values())


def key_of(template: str, shown: object) -> bytes:
    """What a piece is remembered by."""
    return digest(_encode((template, shown)))


def recalled(key: bytes) -> Markup | None:
    html = memory.get(key)
    return None if html is None else Markup(html)


def kept(key: bytes, template: str, values: Mapping[str, Any]) -> Markup:
    html = _writer(template)(**values)
    memory.put(key, html)
    return Markup(html)


@cache
def named(template: str) -> Template:
    return _environment().get_template(template)


@cache
def _writer(template: str) -> Callable[..., str]:
    found = named(template)
    return found.module.piece if template in _MACROS else found.render  # type: ignore[attr-defined]


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hansard.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(version=__version__, query=visits.query, files=files)
    environment.filters.update(
        segment=visits.segment, time=time, day=day, count=count, size=content.size_of, cost=cost, short=short
    )
    return environment


def time(moment: datetime, style: str = "ago") -> Markup:
    """A time in UTC, which the script shows in the reader's zone."""
    moment = moment.astimezone(UTC)
    shown = moment.isoformat(" ", "minutes")[:16]
    return Markup(f'<time datetime="{moment.isoformat()}" data-style="{escape(style)}">{shown} UTC</time>')


def day(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%-d %B %Y")


def count(number: int) -> str:
    return f"{number:,}"


def short(number: float) -> str:
    """A number in few characters: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:,.0f}"


def cost(amount: float) -> str:
    if not amount:
        return "0"
    return f"{amount:,.2f}" if amount >= 0.1 else f"{amount:.4f}"
