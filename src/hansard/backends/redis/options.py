"""The options of a Redis URL: address, credentials and durability."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.urls import Url

_PORT = 6379
_OPTIONS = ("prefix", "timeout", "wait_replicas", "wait_timeout", "tls_ca", "tls_cert", "tls_key", "db")

Address = tuple[str, int]


class RedisOptions(Struct, frozen=True, kw_only=True):
    """How to reach a server, or the first nodes of a cluster."""

    addresses: tuple[Address, ...] = ()
    socket: str | None = None
    cluster: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: dict[str, Any] | None = None
    prefix: str = "hansard"
    timeout: float = 30.0
    """Seconds for one round trip."""
    wait_replicas: int = 0
    """How many replicas must have a write before it is acknowledged."""
    wait_timeout: int = 1000
    """Milliseconds to wait for them."""

    @property
    def where(self) -> str:
        """Returns the address for error messages, without the password."""
        names = self.socket or ",".join(f"{host}:{port}" for host, port in self.addresses)
        return f"Redis at {names}" + (f", database {self.db}" if self.db else "")


def options_of(url: Url) -> RedisOptions:
    """`redis://user:password@host:6379/0`, `rediss://…`, `redis+unix:///path`, `redis+cluster://host1:6379,host2:6379`."""
    numbers = {name: url.number(name) for name in ("timeout", "wait_replicas", "wait_timeout")}
    given = {name: value for name, value in numbers.items() if value is not None}
    files = {name: url.option(f"tls_{name}") for name in ("ca", "cert", "key")}
    prefix, db = url.option("prefix") or "hansard", url.option("db")
    url.finish(_OPTIONS)
    if not re.fullmatch(r"[\w.:/-]+", prefix):
        raise ValidationError(f"prefix={prefix!r}: letters, digits and any of _ . : / -")
    username, password, hosts = url.credentials()
    unix, cluster = url.scheme == "redis+unix", url.scheme == "redis+cluster"
    if unix and (hosts or not url.path.strip("/")):
        raise ValidationError("redis+unix:// names a socket: write for example 'redis+unix:///run/redis.sock'")
    return RedisOptions(
        addresses=() if unix else tuple(_address(host) for host in (hosts or "localhost").split(",")),
        socket=url.path if unix else None,
        cluster=cluster,
        db=_database(db if unix else db or url.path.strip("/"), cluster=cluster),
        username=username,
        password=password,
        tls=_tls(files) if url.scheme == "rediss" or any(files.values()) else None,
        prefix=prefix,
        **given,
    )


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    name, number = (host, port) if colon else (text, str(_PORT))
    if not name or not number.isascii() or not number.isdigit() or not 0 < int(number) < 65536:
        raise ValidationError(f"{text!r} is not a host and a port: write for example 'localhost:6379'")
    return name.strip("[]"), int(number)


def _database(text: str | None, *, cluster: bool) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise ValidationError(f"{text!r} is not the number of a database: write for example 'redis://localhost:6379/0'")
    if cluster and int(text):
        raise ValidationError("a Redis Cluster has only database 0: separate stores by ?prefix=")
    return int(text)


def _tls(files: dict[str, str | None]) -> dict[str, Any]:
    return {"ssl_ca_certs": files["ca"], "ssl_certfile": files["cert"], "ssl_keyfile": files["key"]}
