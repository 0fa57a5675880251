"""The version and settings of a server, read once when a store is opened, and by `check`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from msgspec import Struct

from hansard.backends.redis.keys import RedisKeys
from hansard.backends.redis.nodes import Nodes
from hansard.contract.backend import Durability
from hansard.errors import Corrupt, Denied, FormatMismatch, Unavailable, Unsupported
from hansard.model import Problem

OLDEST = (6, 2)
FORMAT = 1
"""The version of the layout of keys and values: see docs/backends/redis.md."""
_log = logging.getLogger("hansard.redis")


class RedisServer(Struct, frozen=True):
    """One server, by its own information."""

    info: Mapping[str, str]
    settings: Mapping[str, str] | None
    """None if we are not permitted to read them."""

    @property
    def durability(self) -> Durability:
        """Returns what an acknowledged write survives.

        Only a log that is synced before the answer survives the machine.
        """
        settings = self.settings or {}
        synced = settings.get("appendonly") == "yes" and settings.get("appendfsync") == "always"
        return "machine" if synced else "process"

    def problems(self) -> Iterator[Problem]:
        where = "server"
        policy = (self.settings or {}).get("maxmemory-policy", self.info.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            yield Problem(
                where,
                f"maxmemory-policy is {policy!r}: when memory runs out, Redis drops parts of conversations. "
                "Set it to 'noeviction'",
            )
        for name, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
            if self.info.get(name, "ok") != "ok":
                yield Problem(where, f"the last write of the {what} failed ({name}:{self.info[name]})")


async def inspect(nodes: Nodes) -> list[RedisServer]:
    """Reads the information of every server that holds data."""
    infos = await nodes.everywhere(("INFO",))
    settings: list[Mapping[str, str] | None] = []
    try:
        for answer in await nodes.everywhere(("CONFIG", "GET", "*")):
            pairs = zip(answer[::2], answer[1::2], strict=True)
            settings.append({name.decode(): value.decode("utf-8", "replace") for name, value in pairs})
    except (Denied, Unavailable, FormatMismatch):
        # Hosted Redis services often forbid CONFIG. Then we claim no more than we know.
        settings = [None] * len(infos)
    return [RedisServer(_fields(info), setting) for info, setting in zip(infos, settings, strict=True)]


def _fields(info: bytes) -> dict[str, str]:
    pairs = (segment.partition(":") for segment in info.decode("utf-8", "replace").splitlines() if ":" in segment)
    return {name: value.strip() for name, _, value in pairs}


async def prepare(nodes: Nodes, keys: RedisKeys) -> list[RedisServer]:
    """Refuses a server that is too old and a keyspace of another program; marks an empty one as ours."""
    servers = await inspect(nodes)
    for server in servers:
        _refuse_old(server)
        if not nodes.is_cluster and server.info.get("cluster_enabled") == "1":
            raise Unsupported("the server is a node of a Redis Cluster: connect with 'redis+cluster://'")
        for problem in server.problems():
            _log.warning("%s", problem.what)
    await _claim(nodes, keys)
    return servers


def _refuse_old(server: RedisServer) -> None:
    version = server.info.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < OLDEST:
        wanted = ".".join(str(number) for number in OLDEST)
        raise Unsupported(f"the server is Redis {version or 'of an unknown version'}: Hansard needs {wanted} or newer")


async def _claim(nodes: Nodes, keys: RedisKeys) -> None:
    found = await _format(nodes, keys)
    if found is None:
        await _refuse_foreign(nodes, keys)
        await nodes.ask(keys.format, ("SET", keys.format, FORMAT, "NX"), write=True)
        found = await _format(nodes, keys)
    if found != str(FORMAT).encode():
        text = (found or b"").decode("utf-8", "replace")
        newer = text.isdigit() and int(text) > FORMAT
        raise FormatMismatch(
            f"{keys.format!r} says format {text!r}: "
            + ("install the newer version of Hansard that wrote it" if newer else "another program wrote it"),
            found=text,
            wanted=str(FORMAT),
        )


async def _format(nodes: Nodes, keys: RedisKeys) -> bytes | None:
    try:
        found: bytes | None = await nodes.ask(keys.format, ("GET", keys.format), write=True)
    except Corrupt as error:
        raise FormatMismatch(
            f"{keys.format!r} was written by another program: {error}", found="another type"
        ) from error
    return found


async def _refuse_foreign(nodes: Nodes, keys: RedisKeys) -> None:
    """Refuses a prefix with keys but without our format key: another program uses it."""
    name = await nodes.any_key(f"{keys.prefix}:*")
    # Another process may have claimed the prefix, and begun to fill it, a moment ago.
    if name is not None and await _format(nodes, keys) is None:
        raise FormatMismatch(
            f"there are keys under {keys.prefix + ':'!r} that Hansard did not write, such as {name!r}: "
            "choose another ?prefix=",
            found="another program",
            wanted="no keys",
        )
