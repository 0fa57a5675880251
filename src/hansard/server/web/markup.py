"""Renders templates. Values are escaped, except HTML from `markdown`, `fragments` and other templates.

Rendering takes longer than the rest of a page. The HTML of a message, a search hit, a conversation and the frame of a
page depends only on what they show, so it is cached by a digest of that.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from typing import Any, cast

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from jinja2.ext import Extension
from markupsafe import Markup, escape

from hansard import __version__
from hansard.cache import Cache
from hansard.server.web import fragments, links, quantities, static_files, words

_MOST_BYTES = 24_000_000
"""Size of the cache."""
_MOST_FRAMES = 500
_LARGEST = _MOST_BYTES // 8
"""Size of the largest cached message. A larger one would evict all others."""
_OVERHEAD = 200
"""Bytes of an entry besides its text."""
# In bytes: a character takes one, two or four, depending on the widest one in the text.
html_cache: Cache[bytes, str] = Cache(_MOST_BYTES, lambda text: sys.getsizeof(text) + _OVERHEAD)
frame_cache: Cache[bytes, str] = Cache(_MOST_FRAMES)
"""The frames of pages: navigation and footer, without title and content."""
_SAID = re.compile(r"""\{\{ say\((["'])([^"'{}]*)\1\) \}\}""")
"""A text without values in a template."""


def _as_json(value: object) -> str:
    if isinstance(value, Markup | int):  # integers of any size
        return str(value)
    raise NotImplementedError


_encode = msgspec.json.Encoder(enc_hook=_as_json).encode


def render(template: str, **values: Any) -> str:
    return named(template).render(values)


def render_blocks(template: str, values: dict[str, Any]) -> dict[str, Markup]:
    """Renders the blocks of a template by themselves, without the template that it extends."""
    found = named(template)
    context = found.new_context(values)
    return {name: Markup("".join(write(context))) for name, write in found.blocks.items()}


def cached(shown: object, write: Callable[[], str], into: Cache[bytes, str] = html_cache) -> Markup:
    """Returns the result of `write` from the cache. It must depend only on `shown`, and on the reader's language.

    What JSON cannot express is not cached.
    """
    try:
        key = hashlib.blake2b(_encode((words.language(), shown)), digest_size=20).digest()
    except (TypeError, NotImplementedError):
        return Markup(write())
    html = into.get(key)
    if html is None:
        html = write()
        if sys.getsizeof(html) <= _LARGEST:
            into.put(key, html)
    return Markup(html)


def named(template: str) -> Template:
    """Returns a template in the reader's language."""
    return _translated(template, words.language())


@cache
def _translated(template: str, language: str) -> Template:
    return _environment(language).get_template(template)


class _TranslatedTexts(Extension):
    """Replaces the texts of a template that have no values by their translation, before it is compiled."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        known = cast(Mapping[str, str], self.environment.globals["catalogue"])
        return _SAID.sub(lambda found: escape(known.get(found[2], found[2])), source)


class _Environment(Environment):
    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Returns the names that templates know, as a dict: Jinja's chain of mappings is copied for each template."""
        return {**self.globals, **(d or {})}


@cache
def _environment(language: str) -> Environment:
    environment = _Environment(
        extensions=[_TranslatedTexts],
        loader=PackageLoader("hansard.server.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals["catalogue"] = words.catalogue(language)
    environment.globals.update(version=__version__, query=links.query, files=static_files, words=words)
    environment.globals.update(say=words.say, say_count=words.say_count)
    environment.filters.update(
        segment=links.segment,
        time=fragments.time,
        count=words.number,
        scope_name=words.scope_name,
        size=quantities.size,
        short=quantities.short,
        money=quantities.money,
        duration=quantities.duration,
    )
    return environment
