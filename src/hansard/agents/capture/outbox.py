"""Writes that never break the agent: tried once, in bounded time, then written to disk, and always counted.

While anything waits in the spool, every message goes there, at its end: so the order is preserved, and a store that is
away does not slow the agent down. From time to time the spool is replayed, oldest first. A replay is idempotent: each
message has its id.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Literal

from msgspec import Struct, structs

from hansard import rules
from hansard.agents import delivery
from hansard.agents.capture.spool import Spool, SpooledMessage, SpoolView
from hansard.executor import run_in_thread
from hansard.model import NOT_YET, Appended, Message, Status
from hansard.store import Store
from hansard.store.core import utc_now

logger = logging.getLogger("hansard.capture")

Outcome = Literal["stored", "known", "failed", "refused"]

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
"""Seconds between two attempts to replay."""
_MARGIN = 0.01


class Counts(Struct):
    """The outcomes of captured messages."""

    stored: int = 0
    repeated: int = 0
    """Already stored, by another capture of the same message."""
    skipped: int = 0
    """Calls that named no conversation or had nothing to record."""
    failed: int = 0
    """Writes that failed because the store was away or too slow."""
    refused: int = 0
    """Messages that the store will never accept: too long, deleted meanwhile, of another owner."""
    spooled: int = 0
    replayed: int = 0
    lost: int = 0
    """Messages that are neither in the store nor in the spool."""


class Outbox:
    """The store as a capture writes to it."""

    def __init__(self, store: Store, *, timeout: float, spool: Spool | None) -> None:
        self.store = store
        self.counts = Counts()
        self._timeout = timeout
        self._spool = spool
        self._view = SpoolView(store.tenant_id, store.user_id)
        self._replaying = asyncio.Lock()
        self._retry = delivery.Retry(_FIRST_PAUSE, _LONGEST_PAUSE, is_behind=spool is not None)
        """Behind while the spool may hold messages: at first, those that an earlier process left."""
        self._retrying: asyncio.Task[None] | None = None
        self._catching_up: asyncio.Task[bool] | None = None

    async def append(self, entry: SpooledMessage, *, final: bool = True) -> Appended | None:
        """Returns the stored message; None if it is not stored. One in progress is not spooled: its end will be."""
        if self._retry.is_behind and not await self._catch_up():
            if final:
                await self._add_to_spool(entry)
            return None
        try:
            async with asyncio.timeout(self._timeout):
                appended = await self._append(entry)
        except Exception as error:
            await self._write_failed(entry, error, final=final)
            return None
        if appended.stored:
            self.counts.stored += 1
        else:
            self.counts.repeated += 1
        return appended

    async def update(self, entry: SpooledMessage, *, final: bool) -> Outcome:
        """Brings a stored message into this state."""
        if self._retry.is_behind and not await self._catch_up():
            if final:
                await self._add_to_spool(entry)
            return "failed"
        try:
            async with asyncio.timeout(self._timeout):
                await delivery.complete(self.store, entry.conversation_id, entry.message)
        except Exception as error:
            return await self._write_failed(entry, error, final=final)
        return "stored"

    def log_failure(self, what: str, error: Exception) -> None:
        """Logs that a function of the user raised. The agent continues."""
        logger.error("%s, so the turn is not recorded as it should be", what, exc_info=error)

    async def replay(self) -> bool:
        """Stores the messages in the spool. Returns whether it is empty."""
        if self._spool is None:
            return True
        async with self._replaying:
            try:
                is_done = await self._replay(self._spool)
            except OSError as error:
                logger.error("the spool cannot be read: %s", error)
                is_done = False
            if is_done:
                self._retry.succeeded()
            else:
                self._retry.failed()
            return is_done

    # Implementation

    async def _append(self, entry: SpooledMessage) -> Appended:
        return await self.store.append(
            entry.conversation_id,
            [entry.message],
            user_id=entry.user_id,
            agent_id=entry.agent_id,
            branch=entry.branch,
        )

    async def _write_failed(self, entry: SpooledMessage, error: Exception, *, final: bool) -> Outcome:
        if delivery.is_refusal(error):
            self.counts.refused += 1
            logger.error("message %r of %r is refused: %s", entry.message.id, entry.conversation_id, error)
            return "refused"
        self.counts.failed += 1
        why = delivery.reason(error)
        logger.warning("message %r of %r is not stored: %s", entry.message.id, entry.conversation_id, why)
        if final:
            await self._add_to_spool(entry)
        return "failed"

    async def _add_to_spool(self, entry: SpooledMessage) -> None:
        if self._spool is None:
            self.counts.lost += 1
            return
        if entry.message.created_at is NOT_YET:
            # Set the time now, so that a later replay does not change it.
            entry = structs.replace(entry, message=structs.replace(entry.message, created_at=utc_now()))
        try:
            await run_in_thread(self._spool.add, self._view, entry)
        except Exception as error:  # a full disk, a missing folder, content that is not JSON
            self.counts.lost += 1
            logger.error("message %r of %r is lost: %s", entry.message.id, entry.conversation_id, error)
            return
        self.counts.spooled += 1
        if not self._retry.is_behind:
            self._retry.failed()
        if self._retrying is None or self._retrying.done():
            self._retrying = asyncio.get_running_loop().create_task(self._keep_retrying())

    async def _keep_retrying(self) -> None:
        """Replays even while no message is captured."""
        while self._retry.is_behind:
            await asyncio.sleep(self._retry.seconds_left + _MARGIN)
            await self._catch_up()

    async def close(self) -> None:
        """Stops retrying; the spool stays as it is."""
        for task in (self._retrying, self._catching_up):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        if self._spool is not None:
            self._spool.close()

    async def _catch_up(self) -> bool:
        """Whether the store is up to date, after another attempt if one is due.

        Concurrent callers wait for the same attempt, for a limited time: a long one continues without them.
        """
        if self._catching_up is None or self._catching_up.done():
            if not self._retry.is_due:
                return False
            self._catching_up = asyncio.get_running_loop().create_task(self.replay())
        attempt = self._catching_up
        await asyncio.wait([attempt], timeout=self._timeout)
        return attempt.done() and not attempt.cancelled() and attempt.result()

    async def _replay(self, spool: Spool) -> bool:
        for batch in await run_in_thread(lambda: list(spool.take(self._view))):
            for entry in batch.entries:
                if await self._put(entry) == "failed":
                    return False
            await run_in_thread(spool.done, batch)
        return not spool.is_waiting(self._view)

    async def _put(self, entry: SpooledMessage) -> Outcome:
        """Stores a spooled message in its state, whichever state is already stored."""
        try:
            async with asyncio.timeout(self._timeout):
                appended = await self._append(entry)
                if not appended.stored:
                    if not _is_open(appended.messages[0].status, entry.message.status):
                        return "known"
                    await delivery.complete(self.store, entry.conversation_id, entry.message)
        except Exception as error:
            # It is already in the spool.
            return await self._write_failed(entry, error, final=False)
        self.counts.replayed += 1
        return "stored"


def _is_open(stored: Status, spooled: Status) -> bool:
    """Whether a message may still be completed. An interrupted one may have been answered again, and completely."""
    return stored == "in_progress" or (stored == "interrupted" and spooled == "complete")


class Writing:
    """One streamed message in the outbox: appended once, then updated."""

    def __init__(self, outbox: Outbox, entry: SpooledMessage) -> None:
        self._outbox = outbox
        self._entry = entry
        self._created_at = entry.message.created_at
        self._is_tried = False
        self._is_begun = False
        self._is_over = False
        """Another process records it, or it was deleted: nothing more is written."""

    async def __call__(self, message: Message) -> None:
        """Brings the message into this state. Never fails."""
        if self._is_over:
            return
        # With the time that is stored, so that a replay does not restore it after its conversation was deleted.
        entry = structs.replace(self._entry, message=structs.replace(message, created_at=self._created_at))
        final = message.status != "in_progress"
        if not self._is_begun:
            await self._append_first(entry, final=final)
        elif await self._outbox.update(entry, final=final) == "refused":
            self._is_over = True

    async def _append_first(self, entry: SpooledMessage, *, final: bool) -> None:
        appended = await self._outbox.append(entry, final=final)
        if appended is None:
            self._is_tried = True
            return
        self._is_begun = True
        self._created_at = appended.messages[0].created_at
        if appended.stored:
            return
        # The same answer was started before: by us, if only the store's reply was lost, or by a writer that has died.
        known = appended.messages[0]
        is_open = known.status == "interrupted" or (
            known.status == "in_progress" and (self._is_tried or rules.is_lapsed(known, utc_now()))
        )
        if is_open:
            await self._outbox.update(entry, final=final)
        else:
            self._is_over = True
