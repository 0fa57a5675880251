"""What one statement of `appending` carries: the appends of many callers, decided and put in rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hansard import rules
from hansard.backends.postgres import rows, writing
from hansard.backends.postgres.heads import Entry, Heads, new_stamp
from hansard.contract.types import Append, Context
from hansard.errors import HansardError
from hansard.model import Appended, UsageRow
from hansard.rules import Plan

_ATTEMPTS = 3
_ABSENT = object()


class Job:
    """An append on its way."""

    __slots__ = ("append", "attempts", "context", "future", "id", "size")

    def __init__(self, context: Context, id: str, append: Append, future: asyncio.Future[Appended]) -> None:
        self.context = context
        self.id = id
        self.append = append
        self.future = future
        self.attempts = 0
        self.size = sum([draft.size for draft in append.drafts])

    @property
    def given_ids(self) -> list[str]:
        """Those that the caller chose: they may be stored already."""
        return [draft.message.id for draft in self.append.drafts if draft.given_id]

    def grave(self) -> str:
        """The tombstone of the conversation, if it can stop this append."""
        if self.append.revive or not any(writing.is_dated(draft) for draft in self.append.drafts):
            return ""
        return rules.grave(self.context, self.id)

    def settle(self, value: Appended | BaseException) -> None:
        if self.future.done():
            return  # its caller has gone
        if isinstance(value, BaseException):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)


class Pending:
    """A conversation that a statement is about to write, with all that it is given there."""

    __slots__ = ("before", "given_ids", "grave", "head", "id", "is_fresh", "largest", "plans", "refused", "stamp")

    def __init__(self, job: Job, before: Entry | None, *, is_fresh: bool) -> None:
        self.id = job.id
        self.before = before
        """None: the appends make it."""
        self.is_fresh = is_fresh
        """The head was read a moment ago, and is not only remembered."""
        if before is not None:
            self.head = before.head
        else:
            assert job.append.new is not None
            self.head = rules.new_head(job.context, job.id, job.append.new, 1)
        self.grave = ""
        """The tombstone that would stop it: of a deletion, where callers say that they wrote before now."""
        self.largest = before.largest if before else 0
        self.stamp = new_stamp()
        self.plans: list[tuple[Job, Plan]] = []
        self.refused: list[tuple[Job, HansardError]] = []
        self.given_ids: set[str] = set()

    def plan(self, job: Job) -> None:
        """Decides an append as if none of its ids were stored: where one is, the statement fails."""
        plan = rules.plan_append(job.context, self.head, job.append, {})
        self.head = plan.head
        self.plans.append((job, plan))
        for _, draft in plan.fresh:
            self.largest = max(self.largest, draft.size)

    @property
    def jobs(self) -> list[Job]:
        return [job for job, _ in (*self.plans, *self.refused)]

    @property
    def entry(self) -> Entry:
        return Entry(self.head, self.largest, self.before.line if self.before else 1, self.stamp)

    @property
    def needs_more(self) -> bool:
        """Whether some of it lies in tables that the statement does not write."""
        return len(self.head.lanes) > 1 or any(
            message.usage is not None or message.blobs for _, plan in self.plans for message, _ in plan.fresh
        )

    def row(self) -> rows.Row:
        if self.before is None:
            return rows.beginning_row(self.id, self.grave, self.stamp, self.head, self.largest)
        return rows.counters_row(self.id, self.grave, self.before.stamp, self.stamp, self.head, self.largest)

    def messages(self) -> list[rows.Row]:
        return [
            rows.message_row(self.id, plan.lane.line, message, draft)
            for _, plan in self.plans
            for message, draft in plan.fresh
        ]

    def counts(self) -> Iterator[tuple[str, str, int]]:
        """The counts of the branches that were appended to. One that is alone has the conversation's."""
        if self.before is not None and len(self.head.lanes) > 1:
            for id, lane in self.head.lanes.items():
                if lane is not self.before.head.lanes.get(id):
                    yield self.id, id, lane.count

    def usage(self) -> Iterator[UsageRow]:
        for job, plan in self.plans:
            if job.append.count_usage:
                yield from writing.usage_of(plan.head, (message for message, _ in plan.fresh))

    def conclude(self) -> None:
        """After the commit: each caller gets its answer."""
        for job, plan in self.plans:
            created = self.before is None and plan is self.plans[0][1]
            job.settle(Appended(plan.result, plan.head.conversation.version, len(plan.fresh), created))
        self.refuse()

    def refuse(self) -> None:
        for job, error in self.refused:
            job.settle(error)


class Batch:
    """Appends to one tenant. What cannot be stored by the statement ends in `again` or `long`, in the order given."""

    def __init__(self, tenant: str, heads: Heads, fresh: Mapping[str, Entry | None]) -> None:
        self.tenant = tenant
        self.again: list[Job] = []
        """To be decided once more, on a fresh head."""
        self.long: list[Job] = []
        """To go the long way, under a lock."""
        self._heads = heads
        self._fresh = fresh
        """Heads that were read for this batch; None for one that cannot be read."""
        self._pending: dict[str, Pending] = {}
        self._deferred: set[str] = set()
        """Conversations of which an append had to be put off: those behind it wait, too."""

    def plan(self, job: Job, *, short: bool) -> None:
        if job.id in self._deferred:
            self.again.append(job)
        elif not short or job.attempts >= _ATTEMPTS or self._fresh.get(job.id, _ABSENT) is None:
            self._defer(job, self.long)
        else:
            pending = self._pending.get(job.id) or self._begin(job)
            if pending is not None:
                self._plan(job, pending)

    def _begin(self, job: Job) -> Pending | None:
        """What is known of the conversation; None when the job is done with, or put off."""
        entry = self._fresh.get(job.id)
        is_fresh = entry is not None
        if entry is None:
            # What is neither fresh nor remembered was looked for, and is not there.
            entry = self._heads.get(self.tenant, job.id)
            is_fresh = entry is None
        if entry is None and job.append.new is None:
            job.settle(rules.not_found(job.id))
            return None
        pending = self._pending[job.id] = Pending(job, entry, is_fresh=is_fresh)
        return pending

    def _plan(self, job: Job, pending: Pending) -> None:
        given, grave = job.given_ids, job.grave()
        if not rules.is_visible(pending.head.conversation, job.context):
            # Expired, or somebody else's: which of the two, and what follows, is decided under a lock.
            self._defer(job, self.long)
        elif given and pending.head.buried and not job.append.revive:
            self._defer(job, self.long)
        elif pending.before is not None and pending.head.conversation.user_id is None and job.append.user_id:
            # It gets an owner, who is part of what its messages are found by.
            self._defer(job, self.long)
        elif (given and not pending.given_ids.isdisjoint(given)) or (grave and pending.grave not in ("", grave)):
            self._defer(job, self.again)
        else:
            try:
                pending.plan(job)
            except HansardError as error:
                if given:
                    # Unless they are stored already, and there is nothing to refuse.
                    self._defer(job, self.long)
                else:
                    pending.refused.append((job, error))
            else:
                pending.given_ids.update(given)
                pending.grave = pending.grave or grave

    def _defer(self, job: Job, to: list[Job]) -> None:
        self._deferred.add(job.id)
        to.append(job)

    # What to store

    def sift(self) -> tuple[list[Pending], list[Pending]]:
        """What to write to conversations that exist, and those to make.

        Refusals alone need no statement: on a fresh head they stand, on a remembered one they are looked at again.
        """
        for each in self._pending.values():
            if not each.plans and each.is_fresh:
                each.refuse()
            elif not each.plans:
                self.decide_again([each])
        worth = [each for each in self._pending.values() if each.plans]
        return [each for each in worth if each.before is not None], [each for each in worth if each.before is None]

    @staticmethod
    def columns(pending: Sequence[Pending]) -> list[Any]:
        """The parameters of the statement behind the tenant: conversations, then messages, as arrays."""
        conversations = [each.row() for each in pending]
        messages = [row for each in pending for row in each.messages()]
        return [
            *rows.columns(conversations, len(conversations[0])),
            *rows.columns(messages, rows.MESSAGE_WIDTH),
        ]

    # What became of it

    def conclude(self, pending: Iterable[Pending], saved: set[str]) -> dict[str, Entry | None]:
        """Answers those whose conversation was saved; gives what is now known of it."""
        changed: dict[str, Entry | None] = {}
        for each in pending:
            if each.id in saved:
                changed[each.id] = each.entry
                each.conclude()
            elif each.before is None or each.grave:
                # Somebody has made it meanwhile, or deleted it before, or an expired one lies there.
                self.long += each.jobs
            else:
                self.decide_again([each])
        return changed

    def look_up(self, pending: Iterable[Pending]) -> None:
        """Ids that callers chose are looked up the long way; the others are tried again without them."""
        for each in pending:
            for job in each.jobs:
                job.attempts += 1
                (self.long if job.given_ids else self.again).append(job)

    def decide_again(self, pending: Iterable[Pending]) -> None:
        for each in pending:
            self._heads.put(self.tenant, each.id, None)
            for job in each.jobs:
                job.attempts += 1
                self.again.append(job)
