"""The servers that a URL names, of which one accepts writes.

The driver would let a silent server, such as a machine without power, use up the time for all of them. So each gets
its share of `connect_timeout`, and the server that was used last is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hansard.backends.postgres.connection import PostgresConnection, connect
from hansard.backends.postgres.errors import DRIVER, is_lost
from hansard.backends.postgres.options import PostgresOptions


class Hosts:
    def __init__(self, options: PostgresOptions, dsns: Sequence[str]) -> None:
        self._options = options
        self._dsns = list(dsns)

    async def connect(self, queries: Mapping[str, str]) -> PostgresConnection:
        """Connects to the first server that answers and has the `target_session_attrs` of the URL."""
        timeout = self._options.connect_timeout / len(self._dsns)
        failures: list[BaseException] = []
        for dsn in list(self._dsns):
            try:
                link = await connect(self._options, dsn, queries, timeout)
            except DRIVER as error:
                # A server that refuses the login would be the right one: that is no reason to ask another.
                if len(self._dsns) == 1 or not is_lost(error):
                    raise
                failures.append(error)
            else:
                self._prefer(dsn)
                return link
        raise ConnectionError("; ".join(f"{error}" or "no answer in time" for error in failures)) from failures[-1]

    def _prefer(self, dsn: str) -> None:
        if self._dsns[0] != dsn:
            self._dsns.remove(dsn)
            self._dsns.insert(0, dsn)


def direct_hosts(options: PostgresOptions) -> Hosts:
    """The servers for what needs a session of its own; through the pooler if nothing else can be reached."""
    return Hosts(options, options.direct_dsns or options.dsns)
