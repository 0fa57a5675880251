"""Templates into HTML. Everything that a template writes is escaped, unless it was made by `markdown` or a template.

A message is a pure function of what it shows, and is remembered by a digest of that: rendering messages takes longer
than all the rest of a page.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from hansard import __version__
from hansard.cache import Cache
from hansard.server.web import content, fragments, links, static_files

_MOST_BYTES = 24_000_000
"""Of HTML that is remembered."""
_LARGEST = _MOST_BYTES // 8
"""Of one message. A larger one would push all others out."""
_OVERHEAD = 200
"""Bytes that an entry takes beside its text."""
# In bytes: a character takes one, two or four, as the widest one in the text does.
html_cache: Cache[bytes, str] = Cache(_MOST_BYTES, lambda text: sys.getsizeof(text) + _OVERHEAD)
_encode = msgspec.json.Encoder(enc_hook=str).encode  # JSON, for integers of any size


def render(template: str, **values: Any) -> str:
    return named(template).render(values)


def cached(shown: object, write: Callable[[], str]) -> Markup:
    """What `write` makes, which depends on what is shown and on nothing else."""
    key = hashlib.blake2b(_encode(shown), digest_size=20).digest()
    html = html_cache.get(key)
    if html is None:
        html = write()
        if sys.getsizeof(html) <= _LARGEST:
            html_cache.put(key, html)
    return Markup(html)


@cache
def named(template: str) -> Template:
    return _environment().get_template(template)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hansard.server.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(version=__version__, query=links.query, files=static_files)
    environment.filters.update(
        segment=links.segment, time=fragments.time, count=count, size=content.size_of, cost=fragments.cost, short=short
    )
    return environment


def count(number: int) -> str:
    return f"{number:,}"


def short(number: float) -> str:
    """A number in few characters: 12.3k."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:,.0f}"
