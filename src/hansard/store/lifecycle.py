"""What happens to a store over time: watched, measured, checked, backed up, purged, erased."""

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
from hansard.store.core import StorePart, after_a_write

if TYPE_CHECKING:
    from pathlib import Path


class LifecycleMethods(StorePart):
    async def watch(
        self, conversation_id: str | int, *, after: str | None = None, branch: str | None = None
    ) -> AsyncIterator[Message]:
        """A live tail: each new message as it arrives, from any process, for ever.

        `after` takes a message id or cursor to begin from; without it the tail begins now. Without `branch` it follows
        the active one. A message in progress comes again each time that it has grown, also the one at a cursor.
        """
        self._view.need(self.capabilities.watch != "none", "watch", "watch")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        name = checks.optional_id(branch, "branch", self.limits)
        async for message in watch.watch(self._view, id, after, name):
            yield message

    async def erase_user(self, user_id: str | int) -> Receipt:
        """Erases a user: owned conversations, the user's messages in others, records and usage. Safe to repeat."""
        user = checks.id_of(user_id, "user_id", self.limits)
        if self._view.user is not None and self._view.user != user:
            raise Denied("a user's view erases only that user")
        with after_a_write():
            return await erasure.user(self._view, user)

    async def purge(
        self,
        older_than: datetime | timedelta | None = None,
        *,
        by: erasure.PurgeBy = "last_message",
        dry_run: bool = False,
    ) -> Receipt:
        """Deletes conversations without a message since then, and sweeps what has expired or is needed by nothing.

        `older_than` is a time or an age; without it only the sweep runs. It is compared with the time of the last
        message (of the making, where there is none); with `by="updated"`, any change since then keeps a conversation.
        `dry_run` counts conversations and messages, and deletes nothing.
        """
        checks.one_of(by, ("last_message", "updated"), "by")
        context = self._view.context()
        total = Receipt(at=context.now, physically_gone=True)
        checks.flag(dry_run, "dry_run")
        until = None if older_than is None else checks.moment(older_than, context.now, "older_than")
        if dry_run:
            return total if until is None else await erasure.older_than(self._view, until, by, dry_run=True)
        with after_a_write():
            if until is not None:
                total += await erasure.older_than(self._view, until, by)
            if self._view.walled:
                return total
            swept = await erasure.sweep(self._view)
        total += swept
        return structs.replace(total, physically_gone=total.physically_gone and swept.physically_gone)

    async def backup(self, target: str | PathLike[str]) -> Path:
        """A consistent copy of the whole store in a new file, while others go on writing."""
        if self._view.walled:
            raise Denied("a view cannot copy the whole store: use the store that it was made from")
        self._view.need(self.capabilities.backup, "backup", "back up")
        from pathlib import Path  # only now: it is dear to import, and few stores are backed up from Python

        if not isinstance(target, str | PathLike):
            raise ValidationError(f"target must be the path of a new file, not {shown(target)}")
        path = Path(target)
        await self._backend.backup(path)
        return path

    async def usage(self, *, since: date | str | None = None, until: date | str | None = None) -> list[UsageRow]:
        """Tokens and cost by day, user, agent and model. Days are inclusive from `since`, exclusive to `until`."""
        return await self._backend.usage(self._view.context(), _day(since, "since"), _day(until, "until"))

    async def stats(self) -> Stats:
        """How much the tenant holds."""
        if self._view.user is not None:
            raise Denied("a user's view has no statistics of the tenant")
        return await self._backend.stats(self._view.tenant)

    async def check(self) -> list[Problem]:
        """Looks at everything that the tenant holds; nothing found is a good answer."""
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
