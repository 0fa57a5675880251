"""Markdown as HTML that can harm nobody.

Three walls: the parser is told that HTML is text, the sanitizer lets only known tags and attributes through, and the
page's policy lets nothing run. Pictures from elsewhere become links: looking at a conversation tells nobody.
Everything is bounded: a text that is too long, or a table that is too large, is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight as pygmentize
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

MOST = 20_000
"""Characters that are rendered as Markdown; beyond, text is shown as it was written."""
_MOST_CODE = 20_000
_MOST_ROWS = 200
_MOST_BRACKETS = 500
_MOST_MARKS = 3_000
_MOST_LINE = 5_000

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "div"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "span": {"class"},
    "div": {"class"},
    "pre": {"class"},
    "ol": {"start"},
    "th": {"class"},
    "td": {"class"},
    "p": {"dir"},
    "li": {"dir"},
    "blockquote": {"dir"},
    "table": {"dir"},
    **{f"h{level}": {"dir"} for level in range(1, 7)},
}
_SCHEMES = {"http", "https", "mailto", "tel"}
_PLAIN = re.compile(r"(?![-+\d\s])[^\\`*_\[\]<>#!|~&\n\r\t\x00]*")
"""A line in which no Markdown can be: most short messages."""
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="k-")
_DIRECTED = ("paragraph_open", "heading_open", "list_item_open", "blockquote_open", "table_open")


def render(text: str) -> str:
    """The text as HTML. The same text is rendered once as long as it is remembered."""
    if len(text) > MOST or _is_costly(text):
        return plain(text)
    if _PLAIN.fullmatch(text):
        return f'<p dir="auto">{escape(text)}</p>'
    return _rendered(text)


def plain(text: str) -> str:
    """The text as it was written."""
    return f'<pre class="plain" dir="auto">{escape(text)}</pre>'


def _is_costly(text: str) -> bool:
    """Tables without end, and marks that a parser must try in every combination: no person writes so."""
    return (
        text.count("[") > _MOST_BRACKETS
        or sum(map(text.count, "*_~`<&\\")) > _MOST_MARKS
        or (text.count("|") > 8 * _MOST_ROWS and text.count("\n") > _MOST_ROWS)
    )


@lru_cache(maxsize=4096)
def _rendered(text: str) -> str:
    # Deep nesting costs the parser more than it tells a reader.
    try:
        html = _PARSER.render(text)
    except RecursionError:
        return plain(text)
    return nh3.clean(
        html.encode("utf-8", "replace").decode(),  # half a character is none
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes=_SCHEMES,
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )


@lru_cache(maxsize=2048)
def code(text: str, language: str) -> str:
    """Code in colours, where its language is known."""
    if not language or len(text) > _MOST_CODE or _longest_line(text) > _MOST_LINE:
        return escape(text)
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return escape(text)
    return str(pygmentize(text, lexer, _FORMATTER))


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")), default=0)


def json(text: str) -> str:
    """JSON in colours."""
    return code(text, "json")


class _Renderer(RendererHTML):
    """HTML with a direction for each block, and nothing that a browser would fetch."""

    def renderToken(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:  # noqa: N802
        token = tokens[idx]
        if token.type in _DIRECTED:
            token.attrSet("dir", "auto")
        if style := token.attrs.pop("style", None):  # the alignment of a column
            token.attrSet("class", str(style).replace("text-align:", "to-"))
        return super().renderToken(tokens, idx, options, env)

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        language = (token.info.split() or [""])[0][:40]
        return f'<pre class="code"><code>{code(token.content, language.lower())}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        return f'<pre class="code"><code>{escape(tokens[idx].content)}</code></pre>\n'

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        words = self.renderInlineAsText(token.children or [], options, env) or "picture"
        return f'<a href="{escape(str(token.attrs.get("src", "")))}">{escape(words)}</a>'


_PARSER = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20}, renderer_cls=_Renderer).enable(
    ["table", "strikethrough"]
)
