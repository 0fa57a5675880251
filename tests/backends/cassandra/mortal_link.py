"""A connection of a process that dies before one of its writes."""

from __future__ import annotations

from collections.abc import Sequence

from hansard.backends.cassandra.connection import Link, Statement


class Died(BaseException):
    """As if the process had been killed: it is no Exception, so nothing is cleared up."""


class MortalLink(Link):
    """Dies before the conditional batch with this number. Subclasses count other statements that write, too."""

    left = -1

    def count(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died

    async def swap(self, statements: Sequence[Statement]) -> bool:
        self.count()
        return await super().swap(statements)
