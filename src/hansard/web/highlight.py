"""Code and JSON in colours, as HTML: everything in it is escaped, and only spans with a class are added."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

_MOST = 20_000
_MOST_LINE = 5_000
_JSON = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?\b(?:\d[\d.eE+-]*|true|false|null)\b')
"""Texts, of which the last may be cut, and other values."""
_FAMILIES = {
    **dict.fromkeys(("k", "kd", "kn", "kr", "kt", "kp", "ow", "gh", "gu"), "k"),
    **dict.fromkeys(("m", "mb", "mf", "mh", "mi", "mo", "il", "kc", "no"), "m"),
    **dict.fromkeys(("s", "s1", "s2", "sa", "sb", "sc", "sd", "se", "sh", "si", "sr", "ss", "sx", "dl", "gi"), "s"),
    **dict.fromkeys(("c", "c1", "ch", "cm", "cp", "cpf", "cs", "go"), "c"),
    **dict.fromkeys(
        ("na", "nb", "bp", "nc", "nd", "ne", "nf", "fm", "ni", "nn", "nt", "nv", "vc", "vg", "vi", "vm"), "n"
    ),
    **dict.fromkeys(("err", "gd", "gr", "gt"), "e"),
}
"""Colours by Pygments' short names of what words are; what is not among them has none."""
_COLOURS = {kind: _FAMILIES[short] for kind, short in STANDARD_TYPES.items() if short in _FAMILIES}
_LEXERS: dict[str, Any] = {}


def code(text: str, language: str) -> str:
    """Code in colours, where its language is known."""
    if not language or len(text) > _MOST or _longest_line(text) > _MOST_LINE:
        return escape(text)
    lexer = _lexer(language)
    return escape(text) if lexer is None else _coloured(text, lexer())


def _coloured(text: str, lexer: Any) -> str:
    """The text with a span around what has a colour."""
    pieces = []
    tokens = lexer.get_tokens_unprocessed(text.replace("\r\n", "\n").replace("\r", "\n"))
    for colour, run in groupby(tokens, lambda token: _COLOURS.get(token[1])):
        words = escape("".join(value for _, _, value in run), quote=False)
        pieces.append(words if colour is None else f'<span class="k-{colour}">{words}</span>')
    return "".join(pieces)


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
    if len(text) > _MOST:
        return escape(text)
    pieces, end = [], 0
    for match in _JSON.finditer(text):
        pieces.append(text[end : match.start()])  # brackets and commas: nothing to escape
        end, value = match.end(), match.group()
        colour = "k-m" if value[0] != '"' else "k-n" if text[end : end + 1] == ":" else "k-s"
        pieces.append(f'<span class="{colour}">{escape(value, quote=False)}</span>')
    return "".join([*pieces, escape(text[end:])])
