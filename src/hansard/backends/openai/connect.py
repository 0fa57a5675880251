"""Opens `openai+conversations://host/v1?index=…` and `openai+threads://…`: address, key, index, mode."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, cast

from openai import AsyncOpenAI, DefaultAsyncHttpx2Client

from hansard.backends.openai.backend import OpenAiBackend
from hansard.backends.openai.conversations import RemoteConversations
from hansard.backends.openai.mirror import MirrorPair, Mode
from hansard.backends.openai.mirror_state import MirrorStates
from hansard.backends.openai.remote import Remote
from hansard.backends.openai.threads import RemoteThreads
from hansard.errors import NotFound, Unsupported, ValidationError
from hansard.urls import Url

_OPTIONS = ("index", "mode", "pull", "key_file", "timeout", "scheme")
_INDEX = "sqlite:///hansard-openai.db"
_HERE = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_REMOTES: dict[str, Callable[[AsyncOpenAI, str], Remote]] = {
    "openai+conversations": RemoteConversations,
    "openai+threads": RemoteThreads,
}


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> OpenAiBackend:
    """Opens the index; the API is called only when needed."""
    if "@" in url.netloc:
        raise ValidationError("a key does not belong in a URL, which is logged and shown: use $OPENAI_API_KEY")
    index_url = url.option("index") or _INDEX
    if index_url.startswith("openai+"):
        raise ValidationError(f"the index {index_url!r} is a mirror itself: it must be another kind of store")
    mode = url.choice("mode", ("delta", "snapshot"), "delta")
    pulls = url.choice("pull", ("on", "off"), "on") == "on"
    file, timeout = url.option("key_file"), url.number("timeout")
    scheme = url.choice("scheme", ("auto", "http", "https"), "auto")
    url.finish(_OPTIONS)
    client = _client(url, file, timeout, scheme)
    # The index is any other backend, so it is opened by the layer that knows them all.
    from hansard.backends.schemes import open_backend as open_index

    try:
        index = await open_index(index_url, upgrade=upgrade)
    except BaseException:
        await client.close()
        raise
    if not index.capabilities.records or not index.capabilities.keeps:
        await client.close()
        await index.close()
        raise Unsupported(f"the index {index_url!r} must be a store that stores records", capability="records")
    states = MirrorStates(index)
    try:
        mark = await states.mark(datetime.now(UTC))
    except BaseException:
        await client.close()
        await index.close()
        raise
    mirror = MirrorPair(index, _REMOTES[url.scheme](client, mark), states, mark, cast(Mode, mode), pulls=pulls)
    return OpenAiBackend(mirror, client)


def _client(url: Url, file: str | None, timeout: int | None, scheme: str) -> AsyncOpenAI:
    key = os.environ.get("OPENAI_API_KEY") or os.environ.get("HANSARD_KEY") if file is None else _read(file)
    options: dict[str, Any] = {"timeout": timeout or 60, "api_key": key or "none"}
    if url.netloc:
        if scheme == "auto":
            scheme = "http" if _HERE.fullmatch(url.netloc) else "https"
        options["base_url"] = f"{scheme}://{url.netloc}{url.path.rstrip('/') or '/v1'}"
    elif not key:
        raise ValidationError(f"{url.text!r} needs a key: set $OPENAI_API_KEY, or key_file=…")
    return AsyncOpenAI(http_client=DefaultAsyncHttpx2Client(verify=_trust()), **options)


@cache
def _trust() -> ssl.SSLContext:
    """Cached: reading the system's certificates takes longer than most calls."""
    return ssl.create_default_context()


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotFound(f"the key file cannot be read: {error.strerror}: {file}") from error
