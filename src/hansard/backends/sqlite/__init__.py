"""The embedded default. Begin with `backend.py`; `engine.py` says how writes are grouped."""

from __future__ import annotations

from pathlib import Path

from hansard.backends.sqlite.backend import SqliteBackend
from hansard.errors import ValidationError
from hansard.urls import Url

__all__ = ["SqliteBackend", "open_backend"]


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> SqliteBackend:
    """`sqlite:///relative.db`, `sqlite:////absolute.db`; `?durability=full|normal|off`, `?inline=true`."""
    durability = url.choice("durability", ("full", "normal", "off"), "full")
    inline = url.flag("inline")
    url.finish(("durability", "inline"))
    if url.netloc:
        raise ValidationError(
            f"{url.text!r} has two slashes: write 'sqlite:///{url.netloc}{url.path}' for a relative path"
        )
    name = url.path.removeprefix("/")
    if not name:
        raise ValidationError(f"{url.text!r} names no file: write for example 'sqlite:///chats.db'")
    if name == ":memory:":
        raise ValidationError("SQLite in memory is not offered: use 'memory://'")
    backend = SqliteBackend(Path(name), durability=durability, blocking=blocking or inline, upgrade=upgrade)
    if upgrade:
        try:
            await backend.upgrade_index()
        except BaseException:
            await backend.close()
            raise
    return backend
