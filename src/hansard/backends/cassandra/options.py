"""What a URL says of a cluster: where it is, who asks, and in which keyspace."""

from __future__ import annotations

import re

from msgspec import Struct

from hansard.errors import ValidationError
from hansard.urls import Url

_PORT = 9042
_OPTIONS = ("datacenter", "prefix", "replication", "timeout", "tls_ca")


class CassandraOptions(Struct, frozen=True, kw_only=True):
    """How to reach a cluster. Two stores with the same options share their connections."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    username: str | None = None
    password: str | None = None
    datacenter: str | None = None
    """The one whose nodes are asked; by default that of the first host that answers."""
    replication: int = 3
    """Copies of everything, at most as many as there are nodes, if the keyspace has to be made."""
    timeout: float = 30.0
    """Seconds for one request."""
    tls_ca: str | None = None

    @property
    def where(self) -> str:
        return f"Cassandra at {','.join(self.hosts)}:{self.port}, keyspace {self.keyspace}"


def options_of(url: Url) -> tuple[CassandraOptions, str]:
    """`cassandra://user:password@host1,host2:9042/keyspace?prefix=…`: the options, and the prefix of all keys."""
    datacenter, prefix, tls_ca = url.option("datacenter"), url.option("prefix") or "hansard", url.option("tls_ca")
    replication, timeout = url.number("replication"), url.number("timeout")
    url.finish(_OPTIONS)
    keyspace = url.path.strip("/") or "hansard"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", keyspace):
        raise ValidationError(f"keyspace {keyspace!r}: at most 48 small letters, digits and _, a letter first")
    if not re.fullmatch(r"[\w.:/-]+", prefix):
        raise ValidationError(f"prefix={prefix!r}: letters, digits and any of _ . : / -")
    username, password, hosts = url.credentials()
    names, port = _hosts(hosts or "localhost", url)
    options = CassandraOptions(
        hosts=names,
        port=port,
        keyspace=keyspace,
        username=username,
        password=password,
        datacenter=datacenter,
        replication=replication or 3,
        timeout=float(timeout or 30),
        tls_ca=tls_ca,
    )
    return options, prefix


def _hosts(text: str, url: Url) -> tuple[tuple[str, ...], int]:
    """The driver knows one port for all nodes."""
    names: list[str] = []
    ports: set[str] = set()
    for host in text.split(","):
        name, _, port = host.partition(":")
        names.append(name)
        ports |= {port} if port else set()
    if len(ports) > 1 or not all(names) or not all(port.isdigit() and 0 < int(port) < 65536 for port in ports):
        raise ValidationError(f"{url.text!r}: name hosts and one port for all, as in cassandra://one,two:9042/keyspace")
    return tuple(names), int(ports.pop()) if ports else _PORT
