"""The options of a `postgresql://` URL.

    postgresql://user:password@host:5432/database?schema=hansard&pool_size=10

PostgreSQL's own options (`sslmode` and the like) go to the driver. Times are in milliseconds, as in PostgreSQL.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

from msgspec import Struct

from hansard.backends.postgres.queries import DEFAULT_SCHEMA
from hansard.errors import ValidationError
from hansard.urls import Url

_DRIVER = (
    "host",
    "port",
    "user",
    "password",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "target_session_attrs",
)
_OURS = (
    "schema",
    "pool_size",
    "connect_timeout",
    "statement_timeout",
    "durability",
    "pooler",
    "direct_url",
    "poll_interval",
    "rls",
)
_LONGEST_NAME = 63
"""Bytes: PostgreSQL truncates longer names without an error."""


class PostgresOptions(Struct, frozen=True, kw_only=True):
    dsn: str
    """The URL for the driver."""
    where: str
    """The URL for messages, without its password."""
    direct_dsn: str | None
    """The URL to listen on and migrate through; None if only a pooler can be reached."""
    schema: str = DEFAULT_SCHEMA
    pool_size: int = 10
    connect_timeout: float = 10.0
    statement_timeout: float = 30.0
    durability: str = "full"
    pooler: bool = False
    """Each statement may run in another session: none may hold any state."""
    poll_interval: float = 0.5
    rls: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """Returns the settings of our sessions, or of each transaction behind a pooler."""
        settings = {
            "statement_timeout": f"{self.statement_timeout * 1000:.0f}",
            # Every statement of ours has its index, so one plan serves all values: planning each call takes longer than
            # the call. But a plan made while a table was small would scan it until the table is analysed again.
            "plan_cache_mode": "force_generic_plan",
            "enable_seqscan": "off",
            "jit": "off",
        }
        if self.durability == "normal":
            settings["synchronous_commit"] = "off"
        return settings


def parse(url: Url) -> PostgresOptions:
    dsn, where = _dsn(url)
    direct = url.option("direct_url")
    pooler = url.flag("pooler") or direct is not None
    options = PostgresOptions(
        dsn=dsn,
        where=where,
        direct_dsn=_direct_dsn(direct) if direct is not None else None if pooler else dsn,
        schema=_schema(url),
        pool_size=url.number("pool_size") or 10,
        connect_timeout=(url.number("connect_timeout") or 10_000) / 1000,
        statement_timeout=(url.number("statement_timeout") or 30_000) / 1000,
        durability=url.choice("durability", ("full", "normal"), "full"),
        pooler=pooler,
        poll_interval=(url.number("poll_interval") or 500) / 1000,
        rls=url.flag("rls"),
    )
    url.finish((*_OURS, *_DRIVER))
    return options


def _schema(url: Url) -> str:
    schema = url.option("schema") or DEFAULT_SCHEMA
    if len(schema.encode()) > _LONGEST_NAME or "\0" in schema:
        raise ValidationError(f"schema={schema!r}: the name of a schema has at most {_LONGEST_NAME} bytes")
    return schema


def _dsn(url: Url) -> tuple[str, str]:
    """Returns the URL for the driver, and the one for messages."""
    given = {name: value for name in _DRIVER if (value := url.option(name)) is not None}
    path = quote(url.path)
    query = f"?{urlencode(given)}" if given else ""
    host = url.netloc.rpartition("@")[2] or given.get("host", "")
    return f"postgresql://{url.netloc}{path}{query}", f"postgresql://{host}{path}"


def _direct_dsn(text: str) -> str:
    url = Url(text)
    if url.scheme not in ("postgresql", "postgres"):
        raise ValidationError(f"direct_url is {url.text!r}: it must be a postgresql:// URL, percent-encoded")
    dsn, _ = _dsn(url)
    for name in _OURS:
        url.option(name)  # set by the URL that contains this one
    url.finish(_DRIVER)
    return dsn
