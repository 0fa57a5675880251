"""Turns an id into a file name, and never two ids into the same one.

Names hold only lower-case ASCII, so that no two differ only by case or by Unicode form. `A` becomes `~a`; every other
character that some disk or system treats specially becomes `%xx`, byte by byte. No name begins with a dot or an
underscore, which are reserved for us. A long name is cut and ends in a hash of the whole id.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits

NO_AGENT = "_no_agent"
"""The folder of conversations without an agent."""

COMMON = "_common"
"""The space of records that belong to no user."""

_LONGEST = 120
_KEPT = 80
_PLAIN = {char: char for char in ascii_lowercase + digits + "-_."} | {
    char: "~" + char.lower() for char in ascii_uppercase
}
_NAME = re.compile(r"(?!\.)[a-z0-9._~%-]+")
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in digits)])
"""Windows opens a device for these names, whatever their extension."""


@lru_cache(maxsize=8192)
def escape(id: str) -> str:
    """Returns the file name of an id, without the extension."""
    name = "".join(_PLAIN.get(char) or _bytes(char) for char in id)
    if name[0] in "._" or name.partition(".")[0] in _DEVICES:
        name = _bytes(name[0]) + name[1:]
    if name[-1] == ".":
        name = name[:-1] + _bytes(".")
    if len(name) > _LONGEST:
        # No other name contains "~~": a tilde is always followed by a letter.
        name = f"{name[:_KEPT]}~~{hashlib.sha256(id.encode()).hexdigest()[:40]}"
    return name


def _bytes(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode())


def folder_of(agent_id: str | None) -> str:
    return NO_AGENT if agent_id is None else escape(agent_id)


def is_name(text: str) -> bool:
    """Whether this is a valid folder name: a name that is read from a file must be one."""
    return bool(_NAME.fullmatch(text))


def is_ours(name: str) -> bool:
    """Whether a folder's entry is reserved for us, and is not an escaped id."""
    return name[0] in "._"
