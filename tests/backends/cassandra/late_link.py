"""A connection to a coordinator that was stopped: it runs a conditional batch long after nobody waits any longer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hansard.backends.cassandra.connection import Link, Row, Statement
from hansard.errors import TimedOut, Unavailable


class LateLink(Link):
    """Loses the batch that writes the chosen row, and runs it so many requests later."""

    row = ""
    """The statement that the batch begins with, such as `swap_head`; nothing is lost without one."""
    wait = 0
    fails = False
    """After so many requests, the batch does not run yet, but all requests fail."""
    late: Sequence[Statement] | None = None
    has_landed: bool | None = None
    """Whether the condition of the late batch still held."""

    async def land(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            self.has_landed = await super().swap(late)

    async def _pass(self) -> None:
        if self.late is None:
            return
        if self.wait:
            self.wait -= 1
        elif self.fails:
            raise Unavailable("no node answers", outcome="unknown")
        else:
            await self.land()

    async def swap(self, statements: Sequence[Statement]) -> bool:
        if self.row and statements[0][0] == self.row:
            self.row, self.late = "", statements
            raise TimedOut("the coordinator did not answer", outcome="unknown")
        await self._pass()
        return await super().swap(statements)

    async def read(self, name: str, *arguments: Any, serial: bool = False) -> list[Row]:
        try:
            await self._pass()
        except Unavailable as error:
            raise Unavailable(str(error), outcome="not_applied") from error
        return await super().read(name, *arguments, serial=serial)

    async def put(self, name: str, *arguments: Any) -> None:
        await self._pass()
        await super().put(name, *arguments)

    async def put_together(self, statements: Sequence[Statement]) -> None:
        await self._pass()
        await super().put_together(statements)
