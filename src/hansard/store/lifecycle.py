"""A store over time: watch, usage, statistics, check, backup, purge, erasure."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING

from msgspec import structs

from hansard.errors import Denied, ValidationError
from hansard.model import Message, Problem, Receipt, Stats, UsageRow
from hansard.shown import shown
from hansard.store import checks, erasure, watch
from hansard.store.core import StorePart, outcome_unknown_on_failure

if TYPE_CHECKING:
    from pathlib import Path


_OWN_TOOLS = {
    "postgres": ", or use pg_dump",
    "redis": ", or use its snapshots (BGSAVE)",
    "cassandra": ", or use nodetool snapshot",
    "http": ", or back up where the server's store is",
}
"""How else the data of a backend can be backed up."""


class LifecycleMethods(StorePart):
    async def watch(
        self, conversation_id: str | int, *, after: str | None = None, branch: str | None = None
    ) -> AsyncIterator[Message]:
        """Yields each new message as it arrives, from any process, without end.

        A message in progress is yielded again each time it has grown, including the one at the cursor `after`.

        - `conversation_id`: which conversation.
        - `after`: a message id or cursor to start after; None to start with the next message.
        - `branch`: which branch; None follows the active one.
        """
        self._view.require(self.capabilities.watch != "none", "watch", "watch")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        name = checks.optional_id(branch, "branch", self.limits)
        async for message in watch.watch(self._view, id, after, name):
            yield message

    async def erase_user(self, user_id: str | int) -> Receipt:
        """Erases the user `user_id`: owned conversations, messages in others, records and usage. Safe to repeat."""
        user = checks.id_of(user_id, "user_id", self.limits)
        if self._view.user is not None and self._view.user != user:
            raise Denied("a user's view erases only that user")
        if self._view.embeddings is not None:
            self._view.embeddings.indexes.drop(self._view.tenant, user)
        with outcome_unknown_on_failure():
            return await erasure.user(self._view, user)

    async def purge(
        self,
        older_than: datetime | timedelta | None = None,
        *,
        by: erasure.PurgeBy = "last_message",
        dry_run: bool = False,
    ) -> Receipt:
        """Deletes old conversations, and removes everything that has expired or is no longer referred to.

        - `older_than`: a time or an age; conversations without a message since then are deleted. None deletes only what
          has expired or is no longer referred to. An empty conversation counts from its creation.
        - `by`: `"last_message"`; or `"updated"`, with which any change since then keeps a conversation.
        - `dry_run`: count conversations and messages, and delete nothing.
        """
        checks.one_of(by, ("last_message", "updated"), "by")
        context = self._view.context()
        total = Receipt(at=context.now, physically_gone=True)
        checks.flag(dry_run, "dry_run")
        until = None if older_than is None else checks.moment(older_than, context.now, "older_than")
        if dry_run:
            return total if until is None else await erasure.older_than(self._view, until, by, dry_run=True)
        with outcome_unknown_on_failure():
            if until is not None:
                total += await erasure.older_than(self._view, until, by)
            if self._view.walled:
                return total
            swept = await erasure.sweep(self._view)
        total += swept
        return structs.replace(total, physically_gone=total.physically_gone and swept.physically_gone)

    async def backup(self, target: str | PathLike[str]) -> Path:
        """Writes a consistent copy of the whole store to the new file `target`, and returns its path.

        Other processes can read and write meanwhile.
        """
        if self._view.walled:
            raise Denied("a view cannot copy the whole store: use the store that it was made from")
        own = _OWN_TOOLS.get(self.capabilities.name, "")
        text = f"back up: copy it into a SQLite file with copy_to or `hansard copy`{own}"
        self._view.require(self.capabilities.backup, "backup", text)
        from pathlib import Path  # imported late: it is slow to import and rarely needed

        if not isinstance(target, str | PathLike):
            raise ValidationError(f"target must be the path of a new file, not {shown(target)}")
        path = Path(target)
        await self._backend.backup(path)
        return path

    async def usage(self, *, since: date | str | None = None, until: date | str | None = None) -> list[UsageRow]:
        """Returns tokens and cost by day, user, agent and model, from the day `since` on and before the day `until`."""
        return await self._backend.usage(self._view.context(), _day(since, "since"), _day(until, "until"))

    async def stats(self) -> Stats:
        """Returns how much the tenant stores."""
        if self._view.user is not None:
            raise Denied("a user's view has no statistics of the tenant")
        return await self._backend.stats(self._view.tenant)

    async def check(self) -> list[Problem]:
        """Checks everything that the tenant stores, and returns the problems found."""
        if self._view.user is not None:
            raise Denied("a user's view cannot check the tenant")
        return [found async for found in self._backend.check(self._view.tenant) if isinstance(found, Problem)]


def _day(value: date | str | None, what: str) -> str | None:
    if value is None:
        return None
    try:
        day = date.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        day = None
    if not isinstance(day, date):
        raise ValidationError(f"{what} must be a date or 'YYYY-MM-DD', not {shown(value)}")
    return day.isoformat()[:10]
