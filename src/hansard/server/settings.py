"""The settings of a server, from the command line and the environment."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

MEGABYTE = 1_000_000


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that an operator can configure. By default, the server is only reachable on loopback."""

    host: str = "127.0.0.1"
    """The address to listen on. Outside of loopback, every client needs a key."""
    keys: Path | None = None
    """The file of API keys. As soon as it contains a key, every client needs one."""
    keys_in_store: bool = False
    """API keys are in the store, for all servers that use it, and not in a file."""
    require_key: bool = False
    """Require a key even on loopback, and even if none exists yet."""
    jwks: str | None = None
    """URL or path of the JSON Web Key Set that tokens are verified with."""
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    oidc: str | None = None
    """The issuer that people sign in with on the page, by OpenID Connect."""
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    """None for a public client."""
    oidc_redirect: str | None = None
    """The address of the page's `sign-in/callback`. By default, it is made from the request."""
    oidc_tenant: str | None = None
    """The tenant of everybody who signs in. By default, the claim `hansard_tenant` names it."""
    oidc_user_claim: str | None = None
    """The claim that names the user. By default, `hansard_user`, which may be missing."""
    oidc_scopes: tuple[str, ...] | None = None
    """The scopes of everybody who signs in. By default, they are in the claim `scope`."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the API from a browser. None by default."""
    max_body_bytes: int = 64 * MEGABYTE
    """The largest body that is read as a whole. In streams of lines, the limit applies to each line."""
    max_upload_bytes: int = 2_000 * MEGABYTE
    """The largest file of another program that can be imported. It is kept in a temporary file meanwhile."""
    max_messages: int = 10_000
    """Messages that one request may append. Streams of lines have no limit."""
    body_seconds: float = 60.0
    """How long a client may take to send a body, or the next chunk of a stream."""
    request_seconds: float = 60.0
    """How long the store may take to answer."""
    heartbeat_seconds: float = 15.0
    """Interval of the heartbeats of a live tail, which reveal broken connections."""
    upstream: str | None = None
    """The model endpoint for requests on OpenAI's wire, such as `https://api.openai.com/v1`."""
    upstream_key: str | None = None
    """The key for the model endpoint."""
    model: str | None = None
    """The model of the endpoint that answers on the page. By default, an echo answers."""
    max_relays: int = 100
    """Live sessions that a process may relay at a time."""
    recording_seconds: float = 10.0
    """How long a live session may continue while the store cannot record it."""
    embedder: str | None = None
    """The name of the embedder: see `hansard.search.embedders.by_name`. Without one, search is by words only."""
    audit_log: Path | None = None
    """The file of the audit log."""
    tls_cert: Path | None = None
    """The file of the certificate, with the chain up to its authority."""
    tls_key: Path | None = None
    """The file of the certificate's private key."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of proxies, whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed."""
    otlp: str | None = None
    """The OTLP endpoint that spans are sent to."""
    drain_seconds: float = 10.0
    """How long requests and streams may continue after the signal to stop."""
    backup_to: str | None = None
    """The folder, or the URL of a bucket, for backups on a schedule."""
    backup_seconds: float = 86_400.0
    """The interval of backups."""
    backup_keep: int = 7
    """The number of backups to keep."""
    purge_seconds: float | None = None
    """The interval at which expired data is removed."""
    spool: Path | None = None
    """The folder in which captures on this machine spool messages, for the metrics."""
    metrics_folder: Path | None = None
    """The folder in which several workers add up their metrics. The supervisor sets it."""
