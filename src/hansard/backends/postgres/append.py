"""Commits the appends of many callers together.

While one statement runs, appends to the same tenant gather, and the next statement takes all of them. It needs no lock:
`operations.append` runs on the states that this process remembers, and the statement stores each decision only if the
conversation's stamp shows that the state was current. So an append usually costs one round trip, even with other
writers: benchmarks W1 (one caller) and W2 (many) measure it.

A decision on an outdated state is discarded and made again on a fresh one. Other appends run in a locked transaction,
like any other write: messages that are stored already or stopped by a tombstone, conversations that other writers keep
changing, and batches too large to wait with others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import asyncpg

from hansard.backends.postgres import tenant_data
from hansard.backends.postgres.append_batch import AppendBatch, AppendJob, PendingConversation
from hansard.backends.postgres.connection import PostgresConnection, Row
from hansard.backends.postgres.engine import PostgresEngine, Work
from hansard.backends.postgres.errors import (
    DRIVER,
    is_bad_value,
    is_lost,
    is_read_only,
    may_run_again,
    translate,
    was_refused_by_driver,
)
from hansard.backends.postgres.state_cache import StampedState, stamped_state_of
from hansard.backends.postgres.watch import payload_of
from hansard.contract.storage import Operation
from hansard.contract.types import Append, Context
from hansard.errors import Corrupt, HansardError, Outcome
from hansard.model import Appended
from hansard.rules import operations

_MOST_JOBS = 512
_MOST_BYTES = 4_000_000


Write = Callable[[Context, str, Operation[Appended]], Awaitable[Appended]]
"""Runs an append in a locked transaction."""
Note = Callable[[str, str, int], None]
"""Called with the tenant, the conversation and the number of messages that are not indexed yet."""


class Appender:
    def __init__(self, engine: PostgresEngine, write: Write, note: Note) -> None:
        self._engine = engine
        self._write = write
        self._note = note
        self._queues: dict[str, deque[AppendJob]] = {}
        """The gathered appends of each tenant for which a statement runs."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        self._engine.check_alive()
        tenant = context.tenant
        job = AppendJob(context, id, append, asyncio.get_running_loop().create_future())
        queue = self._queues.get(tenant)
        if queue is None:
            await self._append_alone(tenant, job)
        else:
            queue.append(job)
        return await job.future

    async def _append_alone(self, tenant: str, job: AppendJob) -> None:
        """Runs an append at once if no other is running. Appends that arrive meanwhile gather."""
        queue = self._queues[tenant] = deque()
        self._is_idle.clear()
        try:
            queue.extendleft(reversed(await self._flush(tenant, [job])))
        finally:
            if queue:
                task = asyncio.get_running_loop().create_task(self._work(tenant, queue))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                self._release_queue(tenant)

    def _release_queue(self, tenant: str) -> None:
        del self._queues[tenant]
        if not self._queues:
            self._is_idle.set()

    async def close(self) -> None:
        """Waits for appends in progress."""
        await self._is_idle.wait()

    async def _work(self, tenant: str, queue: deque[AppendJob]) -> None:
        """Runs until the tenant's queue is empty."""
        jobs: list[AppendJob] = []
        try:
            while queue:
                jobs = _take(queue)
                try:
                    queue.extendleft(reversed(await self._flush(tenant, jobs)))
                except HansardError as error:
                    _fail_all(jobs, error)
                # Callers that were answered may append again: the next statement includes that.
                await asyncio.sleep(0)
        except BaseException as error:
            # A cancelled task, or a bug of ours: every caller must get an answer.
            _fail_all([*jobs, *queue], error)
            raise
        finally:
            self._release_queue(tenant)

    async def _flush(self, tenant: str, jobs: list[AppendJob]) -> list[AppendJob]:
        """Stores what the statement can, then the rest under locks; returns the jobs that must be decided again."""
        async with self._engine.pool.borrow() as link:
            known = {job.id: self._engine.states.get(tenant, job.id) for job in jobs}
            fresh = await self._load(link, tenant, [id for id, entry in known.items() if entry is None])
            batch = AppendBatch(tenant, self._engine.states, known, fresh)
            for job in jobs:
                batch.plan(job, short=job.size <= _MOST_BYTES)
            existing, beginning = batch.sift()
            if existing:
                await self._store(link, batch, "append", existing)
            if beginning:
                await self._store(link, batch, "begin", beginning)
        for job in batch.locked:
            await self._append_locked(job)
        return batch.again

    async def _load(self, link: PostgresConnection, tenant: str, ids: list[str]) -> dict[str, StampedState | None]:
        """Reads the states of these conversations, as far as they exist; None for one that cannot be decoded."""
        if not ids:
            return {}
        try:
            if self._engine.wraps:
                await link.script(self._engine.begin_sql(tenant))
            found = await link.all("find_heads", tenant, ids)
            if self._engine.wraps:
                await link.script("ROLLBACK")
        except DRIVER as error:
            await link.undo(error)
            raise translate(error, self._engine.where) from error
        return {row[0]: _readable(row, tenant) for row in found}

    async def _append_locked(self, job: AppendJob) -> None:
        """Runs one append in a transaction of its own."""
        try:
            job.finish(await self._write(job.context, job.id, partial(operations.append, append=job.append)))
        except HansardError as error:
            job.finish(error)

    # The statement

    async def _store(
        self, link: PostgresConnection, batch: AppendBatch, statement: str, pending: list[PendingConversation]
    ) -> None:
        if link.connection.is_closed():
            # The previous statement was the last that this connection accepted.
            batch.requeue(pending)
            return
        outcome: Outcome = "not_applied"
        needs_more = self._engine.wraps or any(each.needs_more for each in pending)
        try:
            if needs_more:
                await link.script(self._engine.begin_sql(batch.tenant))
            else:
                outcome = "unknown"
            saved = await self._execute(link, batch.tenant, statement, pending)
            if needs_more:
                await self._store_more(link, batch.tenant, [each for each in pending if each.id in saved])
                outcome = "unknown"
                await link.script("COMMIT")
        except asyncpg.UniqueViolationError as error:
            # Some of the ids that callers chose are stored already.
            await link.undo(error)
            batch.look_up(pending)
        except DRIVER as error:
            await link.undo(error)
            jobs = [job for each in pending for job in each.jobs]
            if was_refused_by_driver(error):
                outcome = "not_applied"
            if may_run_again(error) and (outcome == "not_applied" or not is_lost(error)):
                batch.requeue(pending)
            elif is_read_only(error) or (is_bad_value(error) and len(jobs) > 1):
                # On another server; or one by one, so that only the caller with the bad value is refused.
                batch.locked += jobs
            else:
                _fail_all(jobs, translate(error, self._engine.where, outcome))
        else:
            self._engine.publish(batch.tenant, batch.conclude(pending, saved))
            self._note_saved(batch.tenant, pending, saved)

    def _note_saved(self, tenant: str, pending: list[PendingConversation], saved: set[str]) -> None:
        for each in pending:
            if each.id in saved:
                self._note(tenant, each.id, len(each.fresh))

    async def _execute(
        self, link: PostgresConnection, tenant: str, statement: str, pending: list[PendingConversation]
    ) -> set[str]:
        """Returns the ids of the conversations that were saved or created."""
        notification = self._engine.channel, payload_of(tenant, [each.id for each in pending])
        one = pending[0]
        if (
            statement == "append"
            and len(pending) == 1
            and not one.tombstone_digest
            and len(messages := one.messages()) == 1
        ):
            # Rows made of arrays cost more than this single row.
            id, _, *counters = one.row()
            row = await link.one("append_one", tenant, id, *counters, *messages[0][1:], *notification)
            return set() if row is None else {id}
        row = await link.one(statement, tenant, *AppendBatch.columns(pending), *notification)
        assert row is not None
        return set(row[0])

    async def _store_more(self, link: PostgresConnection, tenant: str, pending: list[PendingConversation]) -> None:
        """Stores the data of the messages that other tables hold."""
        work = Work(link, tenant)
        counts = [row for each in pending for row in each.counts()]
        if counts:
            await link.run("save_counts", tenant, *zip(*counts, strict=True))
        for each in pending:
            for _, changes, _ in each.decided:
                await tenant_data.use_blobs(work, tenant_data.uses_of(each.id, changes.insert), changes.blobs)
        usage = [row for each in pending for _, changes, _ in each.decided for row in changes.usage]
        await tenant_data.add_usage(work, usage)


def _readable(row: Row, tenant: str) -> StampedState | None:
    """Decodes a state. A damaged one must not stop other appends: its own fail in the locked transaction."""
    try:
        return stamped_state_of(row, row[-1], tenant)
    except Corrupt:
        return None


def _take(queue: deque[AppendJob]) -> list[AppendJob]:
    """Takes as many jobs as one statement should carry, but at least one."""
    jobs = [queue.popleft()]
    size = jobs[0].size
    while queue and len(jobs) < _MOST_JOBS and size + queue[0].size <= _MOST_BYTES:
        jobs.append(queue.popleft())
        size += jobs[-1].size
    return jobs


def _fail_all(jobs: Iterable[AppendJob], error: BaseException) -> None:
    for job in jobs:
        job.finish(error)
