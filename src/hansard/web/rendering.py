"""Templates into HTML. Everything that a template writes is escaped, unless it was made by `markdown` or a template."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from hansard import __version__
from hansard.web import content, files, visits


def render(template: str, **values: Any) -> str:
    return named(template).render(values)


@cache
def named(template: str) -> Template:
    return _environment().get_template(template)


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
