"""The messages of errors in the reader's language.

Errors are raised in English, for logs and for the API. The page translates those that readers meet: a file
`languages/CODE.errors.json` maps each message, with `{}` for its values, to its translation. Others stay English.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from hansard.server.web import words


def translate(text: str) -> tuple[str, str]:
    """Returns the message of an error in the reader's language, and the code of the language that it is in."""
    language = words.language()
    for pattern, translation in _patterns(language).items():
        if found := pattern.fullmatch(text):
            return translation.format(*found.groups()), language
    return text, words.ENGLISH


@cache
def _patterns(language: str) -> Mapping[re.Pattern[str], str]:
    return {
        re.compile("(.+)".join(map(re.escape, text.split("{}"))), re.DOTALL): translation
        for text, translation in catalogue(language).items()
    }


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Returns the translated messages of a language. English has none."""
    if language == words.ENGLISH:
        return {}
    file = files("hansard.server.web") / "languages" / f"{language}.errors.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
