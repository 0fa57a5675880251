"""What one statement of `appending` carries: the appends of many callers, decided and put in rows."""

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
    """An append on its way."""

    __slots__ = ("append", "attempts", "context", "future", "given_ids", "id", "size")

    def __init__(self, context: Context, id: str, append: Append, future: asyncio.Future[Appended]) -> None:
        self.context = context
        self.id = id
        self.append = append
        self.future = future
        self.attempts = 0
        self.size = 0
        self.given_ids: list[str] = []
        """Those that the caller chose: they may be stored already."""
        for draft in append.drafts:
            self.size += draft.size
            if draft.given_id:
                self.given_ids.append(draft.message.id)

    def finish(self, value: Appended | BaseException) -> None:
        if self.future.done():
            return  # its caller has gone
        if isinstance(value, BaseException):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)


class NeedsLock(Exception):
    """Raised to an operation that the short way cannot serve: it is run again, under a lock."""


class AppendAttempt:
    """One append as its operation sees it, decided on what is known of its conversation and stored later.

    Nothing is asked: the statement that stores the append fails where one of its ids is stored already, and compares
    the tombstone of the conversation. Those of messages it does not.
    """

    __slots__ = ("changes", "context", "has_assumed", "id", "state", "tombstone_digest")

    def __init__(self, context: Context, id: str, state: ConversationState | None) -> None:
        self.context = context
        self.id = id
        self.state = state
        self.changes: Changes | None = None
        self.has_assumed = False
        self.tombstone_digest = ""
        """The tombstone that would stop the append: of a deletion, where callers say that they wrote before now."""

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
            # It gets an owner, who is part of what its messages are found by.
            raise NeedsLock
        self.changes = changes
        return Applied()


class PendingConversation:
    """A conversation that a statement is about to write, with all that it is given there."""

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
        """None: the appends make it."""
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
        """Some of it lies in tables that the statement does not write: usage, blobs, the counts of branches."""
        self.refused: list[tuple[AppendJob, HansardError]] = []
        self.given_ids: set[str] = set()

    def decide(self, job: AppendJob) -> bool:
        """Runs the operation on the state that the appends before it leave; False when it has to go the long way."""
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
        """The statement compares one tombstone of each conversation, but not of one that it makes.

        It would miss that of a deletion which commits while it waits for the row to go.
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
        """The counts of the branches that were appended to. One that is alone has the conversation's."""
        if self.before is not None and len(self.new_state.branches) > 1:
            for id, branch in self.new_state.branches.items():
                if branch is not self.before.state.branches.get(id):
                    yield self.id, id, branch.count

    def conclude(self) -> None:
        """After the commit: each caller gets its answer."""
        for job, _, value in self.decided:
            job.finish(value)
        self.refuse()

    def refuse(self) -> None:
        for job, error in self.refused:
            job.finish(error)


class AppendBatch:
    """Appends to one tenant. What cannot be stored by the statement ends in `again` or `locked`, in the order given."""

    def __init__(
        self,
        tenant: str,
        states: PostgresStateCache,
        known: Mapping[str, StampedState | None],
        fresh: Mapping[str, StampedState | None],
    ) -> None:
        self.tenant = tenant
        self.again: list[AppendJob] = []
        """To be decided once more, on a fresh head."""
        self.locked: list[AppendJob] = []
        """To go the long way, under a lock."""
        self._states = states
        self._known = known
        """Heads that were remembered when the batch began: they may be forgotten while others are read."""
        self._fresh = fresh
        """Heads that were read for this batch; None for one that cannot be read."""
        self._pending: dict[str, PendingConversation] = {}
        self._deferred: set[str] = set()
        """Conversations of which an append had to be put off: those behind it wait, too."""

    def plan(self, job: AppendJob, *, short: bool) -> None:
        if job.id in self._deferred:
            self.again.append(job)
        elif not short or job.attempts >= _ATTEMPTS or self._fresh.get(job.id, _ABSENT) is None:
            self._defer(job, self.locked)
        else:
            self._decide(job, self._pending.get(job.id) or self._pending_for(job.id))

    def _pending_for(self, id: str) -> PendingConversation:
        """What is known of the conversation."""
        entry = self._fresh.get(id)
        is_fresh = entry is not None
        if entry is None:
            # What is neither fresh nor remembered was looked for, and is not there.
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
        """What to write to conversations that exist, and those to make.

        Refusals alone need no statement: on a fresh head they stand, on a remembered one they are looked at again.
        """
        existing: list[PendingConversation] = []
        beginning: list[PendingConversation] = []
        for each in self._pending.values():
            if each.decided:
                (beginning if each.before is None else existing).append(each)
            elif each.is_fresh:
                each.refuse()
            else:
                self.decide_again([each])
        return existing, beginning

    @staticmethod
    def columns(pending: Sequence[PendingConversation]) -> list[Any]:
        """The parameters of the statement behind the tenant: conversations, then messages, as arrays."""
        conversations = [each.row() for each in pending]
        messages = [row for each in pending for row in each.messages()]
        return [
            *rows.columns(conversations, len(conversations[0])),
            *rows.columns(messages, rows.MESSAGE_WIDTH),
        ]

    # What became of it

    def conclude(self, pending: Iterable[PendingConversation], saved: set[str]) -> dict[str, StampedState | None]:
        """Answers those whose conversation was saved; gives what is now known of it."""
        changed: dict[str, StampedState | None] = {}
        for each in pending:
            if each.id in saved:
                changed[each.id] = each.entry
                each.conclude()
            elif each.before is None or each.tombstone_digest:
                # Another process has made it meanwhile, a tombstone stops the append, or an expired one is there.
                self.locked += each.jobs
            else:
                self.decide_again([each])
        return changed

    def look_up(self, pending: Iterable[PendingConversation]) -> None:
        """Ids that callers chose are looked up the long way; the others are tried again without them."""
        for each in pending:
            for job in each.jobs:
                job.attempts += 1
                (self.locked if job.given_ids else self.again).append(job)

    def decide_again(self, pending: Iterable[PendingConversation]) -> None:
        for each in pending:
            self._states.put(self.tenant, each.id, None)
            for job in each.jobs:
                job.attempts += 1
                self.again.append(job)
