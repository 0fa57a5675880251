"""The words of the page in the reader's language.

English texts stand in the templates, in the script and in Python, each inside `say(…)` or `say_count(…)`. A language is
a file `languages/CODE.json` that maps each English text to its translation; a text that it lacks stays English. Stored
content is shown as it is; `error_texts` translates the messages of errors.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from markupsafe import Markup, escape

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "de": "Deutsch"}
"""The languages of the page, each by its own name."""
_WITH_COMMA = ("de",)
"""Languages with a comma before decimals and points between thousands."""
_is_special = re.compile("[&<>\"']").search
_COMMAS = str.maketrans(",.", ".,")
SCRIPTS = ("hansard.js", "import.js")
_SAID = re.compile(r"""\bsay(?:Count)?\(\s*((?:"[^"\n]*"(?:,\s*)?)+)""")
_TEXT = re.compile(r'"([^"\n]*)"')
_language: ContextVar[str] = ContextVar("language", default=ENGLISH)


def use(language: str) -> None:
    """Sets the language of the request that is being answered."""
    _language.set(language)


def language() -> str:
    return _language.get()


def say(text: str, /, **values: Any) -> str:
    """Returns a text in the reader's language. Names in braces are replaced by values, which are escaped."""
    if not values:
        return catalogue(_language.get()).get(text, text)
    return Markup(say_html(text).format(**{name: escape(value) for name, value in values.items()}))


def say_count(one: str, many: str, count: int, /, **values: Any) -> str:
    """Returns the text for that number, with `{n}` replaced by it."""
    text = one if count == 1 else many
    if values:
        return say(text, n=number(count), **values)
    return Markup(say_html(text).replace("{n}", number(count)))


def say_html(text: str, /) -> str:
    """Returns a text in the reader's language, escaped. Callers replace the names in braces by escaped values."""
    return _escaped(_language.get(), text)


@cache
def _escaped(language: str, text: str) -> str:
    return html.escape(catalogue(language).get(text, text))


def scope_name(scope: str) -> str:
    """Returns the name of a scope of keys or of messages."""
    match scope:
        case "read":
            return say("read")
        case "write":
            return say("write")
        case "admin":
            return say("admin")
        case "channel":
            return say("channel")
        case "dm":
            return say("direct message")
        case "thread":
            return say("thread")
    return scope


def escape_html(text: str) -> str:
    """Returns a text escaped. Most texts have nothing to escape, which is faster to find out."""
    return html.escape(text) if _is_special(text) else text


def number(value: float, decimals: int = 0) -> str:
    """Returns a number with the separators of the reader's language."""
    text = f"{value:,}" if type(value) is int and not decimals else f"{value:,.{decimals}f}"
    return text.translate(_COMMAS) if _language.get() in _WITH_COMMA else text


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Returns the translations of a language. English has none: its texts are the keys."""
    if language == ENGLISH:
        return {}
    file = files("hansard.server.web") / "languages" / f"{language}.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, str])


@cache
def script_catalogue(language: str) -> str | None:
    """Returns the translations that the script needs, as JSON; None for English."""
    if language == ENGLISH:
        return None
    known = catalogue(language)
    return msgspec.json.encode({text: known[text] for text in script_texts() if text in known}).decode()


@cache
def script_texts() -> tuple[str, ...]:
    """Returns the English texts of the scripts."""
    folder = files("hansard.server.web") / "static"
    said = (found[1] for name in SCRIPTS for found in _SAID.finditer((folder / name).read_text("utf-8")))
    return tuple(dict.fromkeys(text for each in said for text in _TEXT.findall(each)))


def chosen_of(cookie: str | None, accepted: str) -> str:
    """Returns the reader's language: of the cookie, else the first one of `Accept-Language` that the page has."""
    if cookie in LANGUAGES:
        return cookie
    return next((code for code in _preferred(accepted) if code in LANGUAGES), ENGLISH)


@lru_cache(500)
def _preferred(accepted: str) -> list[str]:
    """Returns the primary codes of an `Accept-Language` header, the most wanted first."""
    wanted = []
    for at, each in enumerate(accepted.split(",")[:20]):
        name, _, rest = each.strip().partition(";")
        weight = re.fullmatch(r"\s*q=([01](?:\.\d{0,3})?)\s*", rest)
        wanted.append((-float(weight[1]) if weight else -1.0, at, name.strip().lower().partition("-")[0]))
    return [code for weight, _, code in sorted(wanted) if weight < 0]
