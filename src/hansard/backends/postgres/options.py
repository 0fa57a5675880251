"""The options of a `postgresql://` URL.

    postgresql://user:password@host:5432/database?schema=hansard&pool_size=10
    postgresql://user:password@host1,host2:5433/database

PostgreSQL's own options (`sslmode` and the like) go to the driver. Times are in milliseconds, as in PostgreSQL.
"""

from __future__ import annotations

from typing import NamedTuple
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
    "replicas",
    "poll_interval",
    "rls",
)
_WRITABLE = ("read-write", "primary")
"""The values of `target_session_attrs` for a server that accepts writes; the first is the default for several hosts."""
_LONGEST_NAME = 63
"""Bytes: PostgreSQL truncates longer names without an error."""


class PostgresOptions(Struct, frozen=True, kw_only=True):
    dsns: tuple[str, ...]
    """The URLs for the driver, one for each server."""
    where: str
    """The URL for messages, without its password."""
    replica_dsns: tuple[str, ...]
    """The URLs of replicas that may be read from, if a caller allows that."""
    direct_dsns: tuple[str, ...]
    """The URLs to listen on and migrate through; none if only a pooler can be reached."""
    needs_primary: bool
    """Only a server that accepts writes will do."""
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
    servers = _servers(url)
    direct = url.option("direct_url")
    pooler = url.flag("pooler") or direct is not None
    options = PostgresOptions(
        dsns=servers.dsns,
        where=servers.where,
        replica_dsns=servers.replica_dsns,
        direct_dsns=_direct_dsns(direct) if direct is not None else () if pooler else servers.dsns,
        needs_primary=servers.needs_primary,
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


class _Servers(NamedTuple):
    dsns: tuple[str, ...]
    replica_dsns: tuple[str, ...]
    where: str
    needs_primary: bool


def _servers(url: Url) -> _Servers:
    given = {name: value for name in _DRIVER if (value := url.option(name)) is not None}
    login, at, netloc = url.netloc.rpartition("@")
    path = quote(url.path)
    named = netloc or given.get("host", "")
    hosts = named.split(",")
    if len(hosts) > 1:
        given.setdefault("target_session_attrs", _WRITABLE[0])
    target = given.get("target_session_attrs")
    if len(hosts) == 1 or target == "prefer-standby":  # for which the driver has to see all hosts
        places = [(netloc, given)]
    elif netloc:
        places = [(host, given) for host in hosts]
    else:
        places = [("", own) for own in _options_of_hosts(hosts, given, url)]
    return _Servers(
        dsns=tuple(f"postgresql://{login}{at}{place}{path}{_query(own)}" for place, own in places),
        replica_dsns=tuple(
            f"postgresql://{login}{at}{place}{path}{_query(own)}" for place, own in _replica_places(url, given)
        ),
        where=f"postgresql://{named}{path}",
        needs_primary=target in _WRITABLE,
    )


def _options_of_hosts(hosts: list[str], given: dict[str, str], url: Url) -> list[dict[str, str]]:
    """Returns the options of each of the hosts that `?host=a,b&port=1,2` names. One port may be for all."""
    if "port" not in given:
        return [given | {"host": host} for host in hosts]
    ports = given["port"].split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    if len(ports) != len(hosts):
        raise ValidationError(f"port={given['port']!r} in {url.text!r}: one for all hosts, or one for each")
    return [given | {"host": host, "port": port} for host, port in zip(hosts, ports, strict=True)]


def _replica_places(url: Url, given: dict[str, str]) -> list[tuple[str, dict[str, str]]]:
    """Returns the address and the options of each replica: those of the URL, except where its servers are."""
    names = url.option("replicas")
    if names is None:
        return []
    hosts = names.split(",")
    if not all(hosts):
        raise ValidationError(
            f"replicas={names!r} in {url.text!r}: hosts with commas between them, such as db2,db3:5433"
        )
    rest = {name: value for name, value in given.items() if name not in ("host", "port", "target_session_attrs")}
    return [("", rest | {"host": host}) if host.startswith("/") else (host, rest) for host in hosts]


def _query(given: dict[str, str]) -> str:
    return f"?{urlencode(given)}" if given else ""


def _direct_dsns(text: str) -> tuple[str, ...]:
    url = Url(text)
    if url.scheme not in ("postgresql", "postgres"):
        raise ValidationError(f"direct_url is {url.text!r}: it must be a postgresql:// URL, percent-encoded")
    dsns = _servers(url).dsns
    for name in _OURS:
        url.option(name)  # set by the URL that contains this one
    url.finish(_DRIVER)
    return dsns
