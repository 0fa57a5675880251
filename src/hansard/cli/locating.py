"""Where an embedded store lies, and whether there is one: a command that only reads must not make it."""

from __future__ import annotations

from pathlib import Path

from hansard.errors import NotFound
from hansard.urls import Url, shown

SIGN = "hansard.json"
"""What a folder holds that is a store."""


def path_of(url: str) -> Path | None:
    """The file or folder of an embedded store; None for any other store, or where the URL names none."""
    parts = Url(url)
    if parts.scheme == "sqlite" and not parts.netloc:
        name = parts.path.removeprefix("/")
        return Path(name) if name else None
    if parts.scheme == "file":
        from hansard.backends.files.opening import folder_of

        return folder_of(parts)
    return None


def is_missing(url: str) -> bool:
    """Opening it would make a new store."""
    path = path_of(url)
    if path is None:
        return False
    if path.is_dir():
        return not any(path.iterdir())
    return not path.exists() or not path.stat().st_size


def must_exist(url: str) -> None:
    if is_missing(url):
        raise NotFound(f"there is no store at {shown(url)}: check --url and $HANSARD_URL, or append to make one")
