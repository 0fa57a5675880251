"""The parts of a store's URL, and suggestions for misspelt names."""

from __future__ import annotations

import re

from hansard.errors import ValidationError

_SECRET = re.compile(r"(?<=://)([^/@?]*?):[^/@?]*(?=@)|(?<=[?&])(password|direct_url)=[^&]*")

_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Url:
    """The parts of a store's URL. Options are removed one by one, so that unknown ones are detected."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise ValidationError(f"a URL is text, not a {type(text).__name__}")
        scheme, colon, rest = text.partition(":")
        if not colon:
            raise ValidationError(f"{text!r} is not a URL: write for example 'sqlite:///chats.db' or 'memory://'")
        self.text = shown(text)
        """The URL for messages, without its password."""
        self.scheme = scheme.lower()
        try:
            from urllib.parse import parse_qsl, unquote, urlsplit  # imported here: it is slow to import

            # urlsplit reads unknown schemes as if they had no host or query. A "#" belongs to the path.
            parts = urlsplit("http:" + rest, allow_fragments=False)
        except ValueError as error:
            raise ValidationError(f"{self.text!r} is not a URL: {error}") from error
        self.netloc = parts.netloc
        self.path = unquote(parts.path)
        self._options = dict(parse_qsl(parts.query, keep_blank_values=True))

    def credentials(self) -> tuple[str | None, str | None, str]:
        """Returns the user name and the password before the hosts, and the hosts."""
        from urllib.parse import unquote

        user, _, hosts = self.netloc.rpartition("@")
        name, _, password = user.partition(":")
        return unquote(name) or None, unquote(password) or None, hosts

    def option(self, name: str) -> str | None:
        return self._options.pop(name, None)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.option(name) or default
        if value not in choices:
            raise ValidationError(f"{name}={value!r} in {self.text!r}: one of {', '.join(choices)}")
        return value

    def number(self, name: str) -> int | None:
        value = self.option(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise ValidationError(f"{name}={value!r} in {self.text!r}: a whole number of at least 1")
        return int(value)

    def flag(self, name: str) -> bool:
        return self.choice(name, (*_TRUE, *_FALSE), "false") in _TRUE

    def finish(self, known: tuple[str, ...]) -> None:
        """Refuses options that were not read."""
        for name in self._options:
            raise ValidationError(f"unknown option {name!r} in {self.text!r}{suggest(name, known)}")


def shown(text: str) -> str:
    """Returns a URL without its secrets."""
    return _SECRET.sub(lambda found: f"{found[1] or ''}:…" if found[2] is None else f"{found[2]}=…", text)


def suggest(word: str, known: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": known are {', '.join(known)}" if known else ": there are none"
