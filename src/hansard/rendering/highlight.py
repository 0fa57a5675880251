"""Syntax highlighting of code and JSON as HTML. The text is escaped, and only spans with a class are added.

Highlighting stops after a time limit: for most languages there are texts that keep their lexer busy for minutes. The
rest is shown without colours.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby
from typing import Any

from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

_MOST = 20_000
_MOST_LINE = 1_000
_BLANK = re.compile(r"\s{500}")
"""Long runs of whitespace, on which some lexers take quadratic time."""
_MOST_SECONDS = 0.3
"""CPU time for all code on a page."""
_JSON = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|-?\b(?:\d[\d.eE+-]*|true|false|null)\b')
"""Strings, of which the last may be cut, and other values."""
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
"""Colours by Pygments' short token names; other tokens have none."""
_COLOURS = {kind: _FAMILIES[short] for kind, short in STANDARD_TYPES.items() if short in _FAMILIES}
_LANGUAGES = {
    *("awk", "bash", "batch", "c", "clojure", "cmake", "common-lisp", "console", "cpp", "csharp", "css", "dart"),
    *("diff", "docker", "elixir", "emacs-lisp", "erlang", "fish", "fortran", "fsharp", "glsl", "go", "graphql"),
    *("groovy", "haskell", "html", "http", "ini", "java", "javascript", "json", "jsx", "julia", "kotlin", "less"),
    *("lua", "make", "markdown", "mysql", "nasm", "nginx", "objective-c", "ocaml", "perl", "php", "postgresql"),
    *("powershell", "properties", "protobuf", "pycon", "pytb", "python", "restructuredtext", "ruby", "rust"),
    *("scala", "scheme", "scss", "splus", "sql", "sqlite3", "swift", "terraform", "tex", "toml", "tsx"),
    *("typescript", "vb.net", "vue", "xml", "yaml", "zig"),
}
"""Allowed languages, by Pygments' first alias. A few other lexers do not terminate on some short texts."""
_LEXERS: dict[str, Any] = {}


class Painter:
    """Highlights the code on one page within the time limit."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None
        """When highlighting began: wall-clock time and CPU time."""

    def code(self, text: str, language: str) -> str:
        """Highlights code if its language is known."""
        if not language or len(text) > _MOST or _longest_line(text) > _MOST_LINE or _BLANK.search(text):
            return escape(text, quote=False)
        found = _lexer(language)
        lexer = None if found is None else found()  # before the timer: creating the first lexer of a kind is slow
        return escape(text, quote=False) if lexer is None or self._is_late() else self._coloured(text, lexer)

    def _coloured(self, text: str, lexer: Any) -> str:
        """Returns the text with a span around each coloured token."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        tokens = [*self._in_time(lexer.get_tokens_unprocessed(text))]
        read = "".join(value for _, _, value in tokens)
        if not text.startswith(read):
            return escape(text, quote=False)  # some lexers repeat or reorder text
        pieces = []
        for colour, run in groupby(tokens, lambda token: _COLOURS.get(token[1])):
            words = escape("".join(value for _, _, value in run), quote=False)
            pieces.append(words if colour is None else f'<span class="k-{colour}">{words}</span>')
        return "".join([*pieces, escape(text[len(read) :], quote=False)])

    def _in_time(self, tokens: Iterable[Any]) -> Iterator[Any]:
        for token in tokens:
            if self._is_late():
                break
            yield token

    def _is_late(self) -> bool:
        if self._began is None:
            self._began = (time.perf_counter(), time.thread_time())
        clock, processor = self._began
        # CPU time never exceeds wall-clock time, which is cheaper to read.
        return time.perf_counter() - clock >= _MOST_SECONDS and time.thread_time() - processor >= _MOST_SECONDS


def _lexer(language: str) -> Any:
    """Returns the lexer class of a language, or None. Only known names are cached: users can send any."""
    if language not in _LEXERS:
        try:
            lexer = type(get_lexer_by_name(language))
        except ClassNotFound:
            return None
        if lexer.aliases[0] not in _LANGUAGES:
            return None
        _LEXERS[language] = lexer
    return _LEXERS[language]


def _longest_line(text: str) -> int:
    return max(map(len, text.split("\n")), default=0)


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
