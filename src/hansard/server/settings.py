"""How a server is run, as one value: limits, walls, logs. The command line and the environment fill it in."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

MEGABYTE = 1_000_000


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that an operator may decide. The defaults are safe on loopback, and open nothing beyond it."""

    host: str = "127.0.0.1"
    """Where the server listens. Beyond loopback everybody needs a key."""
    keys: Path | None = None
    """The file of API keys. One that holds a key is enough to demand a key of everybody."""
    require_key: bool = False
    """Demand a key even on loopback, and even when there is none yet."""
    jwks: str | None = None
    """Address or path of the JSON Web Key Set by which tokens are checked."""
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    cors_origins: tuple[str, ...] = ()
    """Web pages that a browser may let in. Nobody's, by default."""
    max_body_bytes: int = 64 * MEGABYTE
    """The largest body that is read at once. Streams of lines have no limit but that of each line."""
    max_messages: int = 10_000
    """Messages that one request may append. Streams of lines have no limit."""
    body_seconds: float = 60.0
    """How long a client may take to send a body, or the next piece of a stream."""
    request_seconds: float = 60.0
    """How long the store may take to answer."""
    heartbeat_seconds: float = 15.0
    """A live tail says that it is alive this often, so that a broken connection is noticed."""
    upstream: str | None = None
    """Where the wire of OpenAI passes on what is for a model, such as `https://api.openai.com/v1`."""
    upstream_key: str | None = None
    """The key with which it is asked."""
    model: str | None = None
    """The model there that answers those who write on the page. Without one, an echo does."""
    max_relays: int = 100
    """Live sessions that a process passes on at a time."""
    recording_seconds: float = 10.0
    """How long a live session may go on while the store does not take what is said."""
    embedder: str | None = None
    """What embeds, by name: see `hansard.search.embedders.by_name`. Without one, search knows words alone."""
    audit_log: Path | None = None
    """Where to write who read, wrote and erased what."""
