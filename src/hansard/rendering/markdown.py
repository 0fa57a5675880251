"""Renders Markdown as safe HTML.

There are three layers of protection: only known parser events are written, and HTML is shown as text; the sanitizer
allows only known tags and attributes; and the page's content security policy runs no scripts of messages. Texts without
links and formulas become constant tags around escaped text; the sanitizer, which takes longer than the rest, is spared
for them, because it would return the same. External images become links, so that reading a conversation sends no
requests. Texts that are too long, too deeply nested or have too many elements are shown as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape, unescape
from typing import Any

import nh3
import pyromark
from pyromark import Options

from hansard.rendering import highlight, maths

MOST = 20_000
"""Characters that are rendered as Markdown; longer texts are shown as plain text."""
_MOST_EVENTS = 8_000
_DEEPEST = 40

_TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a", "span", "div"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
    *maths.TAGS,
}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "code": {"class"},
    "span": {"class"},
    "div": {"class"},
    "pre": {"class"},
    "ol": {"dir", "start"},
    "ul": {"dir"},
    "th": {"class"},
    "td": {"class"},
    "blockquote": {"dir"},
    "table": {"dir"},
    "math": {"class", "display"},
    "mo": {"stretchy"},
}
_SCHEMES = {"http", "https", "mailto", "tel"}
SANITIZER: dict[str, Any] = {
    "tags": _TAGS,
    "attributes": _ATTRIBUTES,
    "url_schemes": _SCHEMES,
    "link_rel": "noopener noreferrer nofollow",
    "strip_comments": True,
}
_CLEANER = nh3.Cleaner(**SANITIZER)
_OPTIONS = Options.ENABLE_TABLES | Options.ENABLE_STRIKETHROUGH | Options.ENABLE_TASKLISTS | Options.ENABLE_MATH
_TAG = re.compile(r"(?<!\]\()(?<!\]: )(?<!\\)<(?!(?i:https?|mailto|tel):[^\s<>]*>|[^\s<>@]+@[^\s<>@]+>)")
"""A `<` that may begin HTML, but not one around a link target or an autolink. Other schemes are treated as tags, such
as XML's `<soap:Body>`."""
_LESS = "\ufdd0"
"""Replaces that `<` during parsing. It is one of Unicode's noncharacters for internal use."""
_URL = re.compile(
    r"https?://[^\s\"<>\\^`{|}\ufdd0\u3000-\u3003\u3008-\u3011\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]+"
)

_BEGINS = re.compile(r"^[ \t]*(?:#{1,6}|[-*+]|>+)[ \t]+", re.MULTILINE)
_RULE = re.compile(r"\|(?:[ \t]*:?-+:?[ \t]*\|)+")
"""The delimiter row of a table."""
_CELL = re.compile(r"(?:\s*\|)+\s*")

_EMPHASIS = re.compile(r"(?<![\w*])\*([^\s*](?:[^*\n]{0,80}[^\s*])?)\*(?![\w*])")
_LINE = r"[^\W\d_][\w ,.;:?!'\"()/%=\u2018-\u201d\u2013\u2014\u2026-]*+(?<! )"
_WORDS = re.compile(rf"{_LINE}(?:\n\n?{_LINE})*+")
"""Lines of words and common punctuation that begin with a letter, so that no Markdown can be in them, except for
underscores and URLs."""
_rewritten = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0]").search
"""Finds characters that the sanitizer replaces, such as no-break spaces and control characters."""


def render(text: str) -> str:
    """Returns the text as HTML."""
    if len(text) > MOST:
        return plain(text)
    if _WORDS.fullmatch(text) and "_" not in text and "://" not in text and text.count("\n") <= _MOST_EVENTS // 4:
        return _words(text) if "\n" in text else f"<p>{text}</p>\n"
    if not _may_link(text) and (html := _without_links(text)) is not None:
        return html
    whole = text.encode("utf-8", "replace").decode()  # lone surrogates
    whole = whole.replace(_LESS, "\ufffd")
    if "<" in whole:
        whole = _TAG.sub(_LESS, whole)
    writer = _HtmlWriter()
    if not writer.write(pyromark.events(whole, options=_OPTIONS)):
        return plain(text)
    html = "".join(writer.pieces)
    return _CLEANER.clean(html) if writer.has_foreign_html or _rewritten(html) else html


def _words(text: str) -> str:
    """Renders lines of words as paragraphs."""
    return "".join([f"<p>{each}</p>\n".replace("\n", "<br>\n", each.count("\n")) for each in text.split("\n\n")])


def has_table(text: str) -> bool:
    return "|" in text and _RULE.search(text) is not None


def bare(text: str, *, is_table: bool | None = None) -> str:
    """Returns the text without the most common Markdown markup, for previews. `is_table` is for parts of one."""
    if has_table(text) if is_table is None else is_table:
        text = _CELL.sub(" · ", _RULE.sub(" ", text))
    return _EMPHASIS.sub(r"\1", _BEGINS.sub("", text.replace("**", "").replace("~~", "").replace("`", "")))


def plain(text: str) -> str:
    """Returns the text as it was written."""
    return f'<pre class="plain" dir="auto">{escape(text)}</pre>'


# Texts without links, formulas and HTML: most of them


_marked = re.compile(r"[<\[$\x00-\x08\x0b-\x1f\x7f-\xa0\ud800-\udfff\ufdd0]").search
"""Finds what may begin a link, a formula or HTML, and what the parser or the sanitizer would change."""
_PRE = re.compile(r'<pre><code(?: class="language-([^"]*)")?>(.*?)</code></pre>\n', re.DOTALL)
_BREAK = re.compile(
    r"\n(?:(?<![>\n]\n)|(?<=</em>\n)|(?<=</strong>\n)|(?<=</del>\n)|(?<=</code>\n))"
    r"(?!</?(?:p|ul|ol|li|blockquote|table|h[1-6]|hr)\b|\ufdd0|\Z)"
)
"""A line break in a paragraph. The parser also begins lines for blocks."""
_TAGS_AS_SHOWN = (
    (" />", (("<br />", "<br>"), ("<hr />", "<hr>"))),
    ("<del>", (("<del>", "<s>"), ("</del>", "</s>"))),
    ("<ul>", (("<ul>", '<ul dir="auto">'),)),
    ("<ol", (("<ol>", '<ol dir="auto" start="1">'), ("<ol start=", '<ol dir="auto" start='))),
    ("<blockquote>", (("<blockquote>", '<blockquote dir="auto">'),)),
    (
        "<table>",
        (
            ("<table>", '<table dir="auto">'),
            ('<th style="text-align: ', '<th class="to-'),
            ('<td style="text-align: ', '<td class="to-'),
        ),
    ),
)
"""The tags that the parser writes, and how they are shown, each after a text that only then occurs."""


def _may_link(text: str) -> bool:
    """Returns whether a text may have links, formulas or HTML, or characters that would be changed."""
    if _marked(text) or "://" in text:
        return True
    return "&" in text and ("&#" in text or "&NewLine;" in text or "&Tab;" in text)


def _without_links(text: str) -> str | None:
    """Renders a text from the HTML of the parser, in a third of the time; None if it may exceed the limits."""
    html = pyromark.html(text, options=_OPTIONS)
    if len(text) > _MOST_EVENTS // 4 or _may_be_deep(html) or ("&" in text and _rewritten(html)):
        return None
    if "://" in html:  # escaped in the text, as in `https:\/\/`
        return None
    blocks = [_code_block(found) for found in _PRE.finditer(html)] if "<pre>" in html else []
    html = _BREAK.sub("<br>\n", _PRE.sub(_LESS, html) if blocks else html)
    for mark, tags in _TAGS_AS_SHOWN:
        if mark in html:
            for written, shown in tags:
                html = html.replace(written, shown)
    for block in blocks:
        html = html.replace(_LESS, block, 1)
    return html


def _may_be_deep(html: str) -> bool:
    if 3 * html.count("</") <= _DEEPEST - 5:
        return False
    depth = html.count("</em>") + html.count("</strong>") + html.count("</del>")
    depth += 3 * (html.count("</ul>") + html.count("</ol>") + html.count("</blockquote>"))
    return depth > _DEEPEST - 5


def _code_block(found: re.Match[str]) -> str:
    language = (unescape(found[1] or "").split() or [""])[0][:40].lower()
    return f'<pre class="code"><code>{highlight.code(unescape(found[2]), language)}</code></pre>\n'


_SIGNS = {"SoftBreak": "<br>\n", "HardBreak": "<br>\n", "Rule": "<hr>\n"}
_OPEN = {
    "Paragraph": "<p>",
    "HtmlBlock": "<p>",
    "BlockQuote": '<blockquote dir="auto">\n',
    "Item": "<li>",
    "Emphasis": "<em>",
    "Strong": "<strong>",
    "Strikethrough": "<s>",
}
_CLOSE = {
    "Paragraph": "</p>\n",
    "HtmlBlock": "</p>\n",
    "BlockQuote": "</blockquote>\n",
    "Item": "</li>\n",
    "Emphasis": "</em>",
    "Strong": "</strong>",
    "Strikethrough": "</s>",
    "TableHead": "</tr></thead>\n<tbody>",
    "TableRow": "</tr>\n",
    "Table": "</tbody></table>\n",
}
_TASKS = {True: '<span class="task">☑</span> ', False: '<span class="task">☐</span> '}


class _HtmlWriter:
    """Writes the parser's events as HTML, without anything that a browser would fetch.

    Quotes, lists and tables get the text direction of their content, so that their markers are on the right side. The
    style sheet sets the direction of paragraphs.
    """

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.has_foreign_html = False
        """Whether there is more than constant tags and escaped text: attributes from the text, or formulas."""
        self._code: list[str] | None = None
        """The lines of the current code block; None outside of one."""
        self._language = ""
        self._links = 0
        """Number of open links and images, which are not nested in the output."""
        self._words = 0
        """Index in `pieces` where the text of the current link or image begins."""
        self._columns: Sequence[str] = ()
        self._column = 0
        self._cell = "td"

    def write(self, events: Iterable[Any]) -> bool:
        """Writes the events. Returns false, without parsing the rest, if they exceed the limits."""
        add = self.pieces.append
        depth = 0
        for number, event in enumerate(events):
            if isinstance(event, str):
                add(_SIGNS[event])
                continue
            ((kind, what),) = event.items()
            if kind == "Text":
                self._text(what)
            elif kind == "Start":
                depth += 1
                if depth > _DEEPEST or number > _MOST_EVENTS:
                    return False
                name, more = (what, None) if isinstance(what, str) else next(iter(what.items()))
                add(_OPEN.get(name) or self._open(name, more))
            elif kind == "End":
                depth -= 1
                name, more = (what, None) if isinstance(what, str) else next(iter(what.items()))
                add(_CLOSE.get(name) or self._close(name, more))
            elif kind == "Code":
                add(f"<code>{_escaped(what)}</code>")
            elif kind in ("InlineMath", "DisplayMath"):
                self.has_foreign_html = True
                add(maths.render(what.replace(_LESS, "<"), is_block=kind == "DisplayMath"))
            elif kind == "TaskListMarker":
                add(_TASKS[what])
            else:  # HTML, which is shown as text
                self._text(what)
        return True

    def _text(self, text: str) -> None:
        if self._code is not None:
            self._code.append(text.replace(_LESS, "<"))
        elif "://" in text and not self._links:
            self.has_foreign_html = True
            self.pieces.append(_linked(text))
        else:
            self.pieces.append(_escaped(text))

    def _open(self, name: str, more: Any) -> str:
        match name:
            case "Heading":
                return f"<{more['level'].lower()}>"
            case "List":
                return '<ul dir="auto">\n' if more is None else f'<ol dir="auto" start="{more}">\n'
            case "CodeBlock":
                self._code, self._language = [], _language(more)
            case "Link" | "Image":
                self._links += 1
                self.has_foreign_html = True
                self._words = len(self.pieces)
                return _link(more) if self._links == 1 else ""
            case "Table":
                self._columns = more
                return '<table dir="auto">'
            case "TableHead" | "TableRow":
                self._cell, self._column = ("th", 0) if name == "TableHead" else ("td", 0)
                return "<thead><tr>" if name == "TableHead" else "<tr>"
            case "TableCell":
                side = self._columns[self._column]
                self._column += 1
                return f"<{self._cell}>" if side == "None" else f'<{self._cell} class="to-{side.lower()}">'
        return ""

    def _close(self, name: str, more: Any) -> str:
        match name:
            case "Heading":
                return f"</{more.lower()}>\n"
            case "List":
                return "</ol>\n" if more else "</ul>\n"
            case "CodeBlock":
                text, self._code = "".join(self._code or ()), None
                return f'<pre class="code"><code>{highlight.code(text, self._language)}</code></pre>\n'
            case "Link" | "Image":
                self._links -= 1
                is_blank = not any(self.pieces[self._words + 1 :])
                words = ("picture" if name == "Image" else "link") if is_blank else ""
                return words + ("" if self._links else "</a>")
            case "TableCell":
                return f"</{self._cell}>"
        return ""


def _language(kind: Any) -> str:
    info = kind.get("Fenced", "") if isinstance(kind, Mapping) else ""
    return (info.split() or [""])[0][:40].lower()


def _link(more: Mapping[str, str]) -> str:
    to = more["dest_url"] if more["link_type"] != "Email" else f"mailto:{more['dest_url']}"
    title = f' title="{_quoted(more["title"])}"' if more["title"] else ""
    return f'<a href="{_quoted(to)}"{title}>'


def _linked(text: str) -> str:
    """Returns the text with its URLs as links."""
    pieces, end = [], 0
    for found in _URL.finditer(text):
        url = found.group().rstrip(".,;:!?'*_~")
        if url.endswith(")") and url.count(")") > url.count("("):
            url = url[:-1]
        pieces += [_escaped(text[end : found.start()]), f'<a href="{_quoted(url)}">{_escaped(url)}</a>']
        end = found.start() + len(url)
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(_LESS, "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    return escape(text.replace(_LESS, "<"))
