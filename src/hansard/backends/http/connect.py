"""Opens a server's URL: `https://host/prefix?key_file=…&timeout=…`, with the key in `$HANSARD_KEY` or a file."""

from __future__ import annotations

import os
from pathlib import Path

from hansard.backends.http.backend import HttpBackend
from hansard.errors import NotFound, ValidationError
from hansard.urls import Url

_OPTIONS = ("key_file", "timeout")


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> HttpBackend:
    """Connects, and asks the server for the capabilities of its storage."""
    if "@" in url.netloc:
        raise ValidationError("a key does not belong in a URL, which is logged and shown: use $HANSARD_KEY")
    file, timeout = url.option("key_file"), url.number("timeout")
    url.finish(_OPTIONS)
    if not url.netloc:
        raise ValidationError(f"{url.text!r} names no server: write for example 'https://hansard.example'")
    backend = HttpBackend(
        f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}",
        key=os.environ.get("HANSARD_KEY") if file is None else _read(file),
        timeout=timeout or 30,
    )
    try:
        await backend.open()
    except BaseException:
        await backend.close()
        raise
    return backend


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotFound(f"the key file cannot be read: {error.strerror}: {file}") from error
