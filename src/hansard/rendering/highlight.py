"""Syntax highlighting of code and JSON as HTML. The text is escaped, and only spans with a class are added."""

from __future__ import annotations

import re
from html import escape

from hansard.rendering.grammars import BY_LANGUAGE, Grammar

_MOST = 20_000
"""Characters; longer texts are shown without colours."""
_JSON = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?\b(?:\d[\d.eE+-]*|true|false|null)\b')
"""Strings, of which the last may be cut, and other values."""
_COLOURS = (None, "c", "s", "m")
"""The colours of comments, strings and numbers."""
_MARKS = "@$#.<\\"
"""Signs before a name, such as a decorator, a variable of a shell or a tag."""


def code(text: str, language: str) -> str:
    """Highlights code if its language is known."""
    grammar = BY_LANGUAGE.get(language)
    if grammar is None or len(text) > _MOST:
        return escape(text, quote=False)
    pieces, end = [], 0
    for found in grammar.pattern.finditer(text):
        kind = found.lastindex or 0
        colour = _COLOURS[kind] if kind < 4 else _word_colour(found, grammar)
        if colour is not None:
            start, stop = found.span()
            pieces.append(f'{_escaped(text[end:start])}<span class="k-{colour}">{_escaped(found.group())}</span>')
            end = stop
    return "".join([*pieces, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return escape(text, quote=False) if "<" in text or "&" in text or ">" in text else text


def _word_colour(found: re.Match[str], grammar: Grammar) -> str | None:
    """Returns the colour of a word: of a keyword, or of a name, which has a sign before or after it."""
    word, after = found.group(), found.string[found.end() : found.end() + 2].lstrip(" ")
    colour = grammar.colours.get(word)
    if colour is not None or word[0] == "-":
        return colour or "e"
    return "n" if word[0] in _MARKS or (after and after[0] in grammar.name_ends) else None


def json(text: str) -> str:
    """Highlights JSON."""
    if len(text) > _MOST:
        return escape(text)
    pieces, end = [], 0
    for match in _JSON.finditer(text):
        pieces.append(text[end : match.start()])  # only brackets and commas, so there is nothing to escape
        end, value = match.end(), match.group()
        colour = "k-m" if value[0] != '"' else "k-n" if text[end : end + 1] == ":" else "k-s"
        pieces.append(f'<span class="{colour}">{escape(value, quote=False)}</span>')
    return "".join([*pieces, escape(text[end:])])
