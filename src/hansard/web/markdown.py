"""Markdown as HTML that can harm nobody.

Three walls: the parser is told that HTML is text, the sanitizer lets only known tags and attributes through, and the
page's policy lets nothing run. Pictures from elsewhere become links: looking at a conversation tells nobody.
Everything is bounded: a text that is too long, or a table that is too large, is shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight as pygmentize
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from hansard.web.memory import Memory, digest

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
_SPACES = r"\t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""All but the one that everybody types: the parser knows which of them it takes off the end of a line."""
_LINE = rf"(?![-+:=|>#\s]|\d{{1,9}}[.)])(?:[^\\`*_\[\]<~&\x00{_SPACES}]|(?<=[^\W_])_(?=[^\W_]))+"
_PLAIN = re.compile(rf"{_LINE}(?:\n+{_LINE})*\n*")
"""Lines in which no Markdown can be: most of what people write."""
_JSON = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?\b(?:\d[\d.eE+-]*|true|false|null)\b')
"""Texts, of which the last may be cut, and other values."""
_BLANK = re.compile(r"\n\n+")
_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    attributes=_ATTRIBUTES,
    url_schemes=_SCHEMES,
    link_rel="noopener noreferrer nofollow",
    strip_comments=True,
)
_memory = Memory(8_000_000)
_LEXERS: dict[str, Any] = {}
_FORMATTER = HtmlFormatter(nowrap=True, classprefix="k-")
_DIRECTED = ("paragraph_open", "heading_open", "list_item_open", "blockquote_open", "table_open")


def render(text: str) -> str:
    """The text as HTML. The same text is rendered once as long as it is remembered."""
    if len(text) > MOST or _is_costly(text):
        return plain(text)
    if _PLAIN.fullmatch(text):
        return _paragraphs(text)
    key = digest(text.encode("utf-8", "surrogatepass"))
    html = _memory.get(key)
    if html is None:
        html = _rendered(text)
        _memory.put(key, html)
    return html


def plain(text: str) -> str:
    """The text as it was written."""
    return f'<pre class="plain" dir="auto">{escape(text)}</pre>'


def _paragraphs(text: str) -> str:
    """What the parser makes of plain lines, without it."""
    return "".join(
        f'<p dir="auto">{"<br>".join(map(str.rstrip, block.split(chr(10))))}</p>'
        for block in _BLANK.split(escape(text, quote=False).strip("\n"))
    )


def _is_costly(text: str) -> bool:
    """Tables without end, and marks that a parser must try in every combination: no person writes so."""
    return (
        text.count("[") > _MOST_BRACKETS
        or sum(map(text.count, "*_~`<&\\")) > _MOST_MARKS
        or (text.count("|") > 8 * _MOST_ROWS and text.count("\n") > _MOST_ROWS)
    )


def _rendered(text: str) -> str:
    # Deep nesting costs the parser more than it tells a reader.
    try:
        html = _PARSER.render(text)
    except RecursionError:
        return plain(text)
    return _CLEANER.clean(html.encode("utf-8", "replace").decode())  # half a character is none


def code(text: str, language: str) -> str:
    """Code in colours, where its language is known."""
    if not language or len(text) > _MOST_CODE or _longest_line(text) > _MOST_LINE:
        return escape(text)
    lexer = _lexer(language)
    return escape(text) if lexer is None else str(pygmentize(text, lexer(stripnl=False, ensurenl=False), _FORMATTER))


def _lexer(language: str) -> Any:
    """The class that reads a language, or None. Names are anybody's: only those that are known are remembered."""
    if language not in _LEXERS:
        try:
            _LEXERS[language] = type(get_lexer_by_name(language))
        except ClassNotFound:
            return None
    return _LEXERS[language]


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")), default=0)


def json(text: str) -> str:
    """JSON as we write it, in colours."""
    if len(text) > _MOST_CODE:
        return escape(text)
    pieces, end = [], 0
    for match in _JSON.finditer(text):
        pieces.append(text[end : match.start()])  # brackets and commas: nothing to escape
        end, value = match.end(), match.group()
        colour = "k-mi" if value[0] != '"' else "k-nt" if text[end : end + 1] == ":" else "k-s2"
        pieces.append(f'<span class="{colour}">{escape(value, quote=False)}</span>')
    return "".join([*pieces, escape(text[end:])])


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
