"""The content of one statement of `append`: the appends of many callers, decided and turned into rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hansard import rules
from hansard.backends.postgres import rows
from hansard.backends.postgres.state_cache import PostgresStateCache, StampedState, new_stamp
from hansard.blocking import run_to_end
from hansard.contract.storage import NOTHING, Applied, Changes, Found, Wants
from hansard.contract.types import Append, Context, ConversationState, Draft
from hansard.errors import HansardError
from hansard.model import Appended, Message
from hansard.rules import operations

_ATTEMPTS = 3
_ABSENT = object()


class AppendJob:
    """An append in progress."""

    __slots__ = ("append", "attempts", "context", "future", "given_ids", "id", "size")

    def __init__(self, context: Context, id: str, append: Append, future: asyncio.Future[Appended]) -> None:
        self.context = context
        self.id = id
        self.append = append
        self.future = future
        self.attempts = 0
        self.size = 0
        self.given_ids: list[str] = []
        """Ids that the caller chose: they may be stored already."""
        for draft in append.drafts:
            self.size += draft.size
            if draft.given_id:
                self.given_ids.append(draft.message.id)

    def finish(self, value: Appended | BaseException) -> None:
        if self.future.done():
            return  # the caller was cancelled
        if isinstance(value, BaseException):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)


class NeedsLock(Exception):
    """Raised to an operation that cannot be decided without a lock: it runs again in a locked transaction."""


class AppendAttempt:
    """One append as its operation sees it, decided on the known state of its conversation and stored later.

    Nothing is read: the statement that stores the append fails if one of its ids is stored already, and compares the
    tombstone of the conversation, but not those of messages.
    """

    __slots__ = ("changes", "context", "has_assumed", "id", "state", "tombstone_digest")

    def __init__(self, context: Context, id: str, state: ConversationState | None) -> None:
        self.context = context
        self.id = id
        self.state = state
        self.changes: Changes | None = None
        self.has_assumed = False
        self.tombstone_digest = ""
        """The tombstone of a deletion that would stop the append, if its messages are dated before now."""

    def new_segment(self) -> int:
        return 1

    async def get(self, wants: Wants) -> Found:
        if not wants.expects_none or wants.records:
            raise NeedsLock
        for digest in wants.tombstones:
            if digest != rules.tombstone_digest(self.context, self.id):
                raise NeedsLock
            self.tombstone_digest = digest
        self.has_assumed = True
        return NOTHING

    async def apply(self, changes: Changes) -> Applied:
        state, before = changes.state, self.state
        assert state is not None
        if changes.wipes != "nothing":
            raise NeedsLock
        if before is not None and before.conversation.user_id != state.conversation.user_id:
            # The conversation gets an owner, which is part of its messages' search terms.
            raise NeedsLock
        self.changes = changes
        return Applied()


class PendingConversation:
    """A conversation that a statement is about to write, with all its new data."""

    __slots__ = (
        "before",
        "decided",
        "fresh",
        "given_ids",
        "id",
        "is_fresh",
        "largest",
        "needs_more",
        "refused",
        "stamp",
        "state",
        "tombstone_digest",
    )

    def __init__(self, id: str, before: StampedState | None, *, is_fresh: bool) -> None:
        self.id = id
        self.before = before
        """None if the appends create it."""
        self.is_fresh = is_fresh
        """The state was read a moment ago, and is not only remembered."""
        self.state = before.state if before else None
        self.tombstone_digest = ""
        self.largest = before.largest if before else 0
        self.stamp = new_stamp()
        self.decided: list[tuple[AppendJob, Changes, Appended]] = []
        self.fresh: list[tuple[int, Message, Draft]] = []
        """All messages to insert, each with its segment."""
        self.needs_more = False
        """True if some of the data is stored in tables that the statement does not write: usage, blobs, branches."""
        self.refused: list[tuple[AppendJob, HansardError]] = []
        self.given_ids: set[str] = set()

    def decide(self, job: AppendJob) -> bool:
        """Runs the operation on the state after the appends before it; False if it needs a lock."""
        attempt = AppendAttempt(job.context, job.id, self.state)
        try:
            value = run_to_end(operations.append(attempt, job.append))
        except NeedsLock:
            return False
        except HansardError as error:
            if not attempt.has_assumed:
                self.refused.append((job, error))
            return not attempt.has_assumed
        if attempt.changes is None or not self._can_compare(attempt.tombstone_digest):
            return False
        self._add(job, attempt, attempt.changes, value)
        return True

    def _can_compare(self, tombstone_digest: str) -> bool:
        """The statement compares one tombstone of each conversation, but not of one that it creates.

        It would miss the tombstone of a deletion that commits while the statement waits for the deleted row.
        """
        return not tombstone_digest or (self.before is not None and self.tombstone_digest in ("", tombstone_digest))

    def _add(self, job: AppendJob, attempt: AppendAttempt, changes: Changes, value: Appended) -> None:
        self.state = changes.state
        self.tombstone_digest = self.tombstone_digest or attempt.tombstone_digest
        self.decided.append((job, changes, value))
        self.given_ids.update(job.given_ids)
        if changes.usage or len(self.new_state.branches) > 1:
            self.needs_more = True
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                self.fresh.append((segment, message, draft))
                self.largest = max(self.largest, draft.size)
                if message.blobs:
                    self.needs_more = True

    @property
    def jobs(self) -> list[AppendJob]:
        jobs = [job for job, _, _ in self.decided]
        return [*jobs, *(job for job, _ in self.refused)] if self.refused else jobs

    @property
    def new_state(self) -> ConversationState:
        assert self.state is not None
        return self.state

    @property
    def entry(self) -> StampedState:
        return StampedState(self.new_state, self.largest, self.before.last_segment if self.before else 1, self.stamp)

    def row(self) -> rows.Row:
        if self.before is None:
            return rows.beginning_row(self.id, self.stamp, self.new_state, self.largest)
        return rows.counters_row(
            self.id, self.tombstone_digest, self.before.stamp, self.stamp, self.new_state, self.largest
        )

    def messages(self) -> list[rows.Row]:
        return [rows.message_row(self.id, segment, message, draft) for segment, message, draft in self.fresh]

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """Yields the counts of the branches that were appended to. An only branch has the conversation's count."""
        if self.before is not None and len(self.new_state.branches) > 1:
            for id, branch in self.new_state.branches.items():
                if branch is not self.before.state.branches.get(id):
                    yield self.id, id, branch.count

    def conclude(self) -> None:
        """Answers every caller after the commit."""
        for job, _, value in self.decided:
            job.finish(value)
        self.refuse()

    def refuse(self) -> None:
        for job, error in self.refused:
            job.finish(error)


class AppendBatch:
    """Appends to one tenant. Those that the statement cannot store end in `again` or `locked`, in order."""

    def __init__(
        self,
        tenant: str,
        states: PostgresStateCache,
        known: Mapping[str, StampedState | None],
        fresh: Mapping[str, StampedState | None],
    ) -> None:
        self.tenant = tenant
        self.again: list[AppendJob] = []
        """To be decided again, on a fresh state."""
        self.locked: list[AppendJob] = []
        """To run in a locked transaction."""
        self._states = states
        self._known = known
        """States that were remembered when the batch began: the cache may drop them while others are read."""
        self._fresh = fresh
        """States that were read for this batch; None for one that cannot be decoded."""
        self._pending: dict[str, PendingConversation] = {}
        self._deferred: set[str] = set()
        """Conversations with a postponed append: later appends to them wait, too."""

    def plan(self, job: AppendJob, *, short: bool) -> None:
        if job.id in self._deferred:
            self.again.append(job)
        elif not short or job.attempts >= _ATTEMPTS or self._fresh.get(job.id, _ABSENT) is None:
            self._defer(job, self.locked)
        else:
            self._decide(job, self._pending.get(job.id) or self._pending_for(job.id))

    def _pending_for(self, id: str) -> PendingConversation:
        """Returns the pending changes of a conversation, with its known state."""
        entry = self._fresh.get(id)
        is_fresh = entry is not None
        if entry is None:
            # A state that is neither fresh nor remembered was looked up and does not exist.
            entry = self._states.get(self.tenant, id) or self._known[id]
            is_fresh = entry is None
        pending = self._pending[id] = PendingConversation(id, entry, is_fresh=is_fresh)
        return pending

    def _decide(self, job: AppendJob, pending: PendingConversation) -> None:
        if pending.given_ids and not pending.given_ids.isdisjoint(job.given_ids):
            self._defer(job, self.again)
        elif not pending.decide(job):
            self._defer(job, self.locked)

    def _defer(self, job: AppendJob, to: list[AppendJob]) -> None:
        self._deferred.add(job.id)
        to.append(job)

    # What to store

    def sift(self) -> tuple[list[PendingConversation], list[PendingConversation]]:
        """Returns the changes to existing conversations, and the conversations to create.

        Refusals alone need no statement: on a fresh state they are final, on a remembered one they are decided again.
        """
        existing: list[PendingConversation] = []
        beginning: list[PendingConversation] = []
        for each in self._pending.values():
            if each.decided:
                (beginning if each.before is None else existing).append(each)
            elif each.is_fresh:
                each.refuse()
            else:
                self.requeue([each])
        return existing, beginning

    @staticmethod
    def columns(pending: Sequence[PendingConversation]) -> list[Any]:
        """Returns the parameters of the statement after the tenant: conversations, then messages, as arrays."""
        conversations = [each.row() for each in pending]
        messages = [row for each in pending for row in each.messages()]
        return [
            *rows.columns(conversations, len(conversations[0])),
            *rows.columns(messages, rows.MESSAGE_WIDTH),
        ]

    # After the statement

    def conclude(self, pending: Iterable[PendingConversation], saved: set[str]) -> dict[str, StampedState | None]:
        """Answers the callers whose conversation was saved; returns the new states."""
        changed: dict[str, StampedState | None] = {}
        for each in pending:
            if each.id in saved:
                changed[each.id] = each.entry
                each.conclude()
            elif each.before is None or each.tombstone_digest:
                # Another process has created it, a tombstone stops the append, or an expired conversation exists.
                self.locked += each.jobs
            else:
                self.requeue([each])
        return changed

    def look_up(self, pending: Iterable[PendingConversation]) -> None:
        """Jobs with ids that callers chose run in locked transactions; the others are tried again without them."""
        for each in pending:
            for job in each.jobs:
                job.attempts += 1
                (self.locked if job.given_ids else self.again).append(job)

    def requeue(self, pending: Iterable[PendingConversation]) -> None:
        for each in pending:
            self._states.put(self.tenant, each.id, None)
            for job in each.jobs:
                job.attempts += 1
                self.again.append(job)
