"""Files: a folder for each agent, a journal of JSON lines for each conversation.

Each call runs blocking functions: directly in blocking mode, otherwise on a thread pool. Start reading at `layout`,
then `line_format`, `entries`, `state`, `index`, `replay`, `writer` and `transaction`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from hansard.analysis import Lookup, Matches, Ranking
from hansard.backends.files import backup, check, maintenance, names, rank, read, search, tenant_data
from hansard.backends.files.disk import map_errors
from hansard.backends.files.index import IndexFailure
from hansard.backends.files.journals import ConversationMoving
from hansard.backends.files.tenant import SharedResources, Tenant
from hansard.backends.files.transaction import STATE_ONLY, FilesTransaction, answer
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.shared.signals import Signals
from hansard.backends.stored import StoredBackend
from hansard.blocking import run_to_end
from hansard.contract.backend import Capabilities
from hansard.contract.storage import Found, Operation, RecordKey, T, Wants
from hansard.contract.types import (
    Context,
    ConversationQuery,
    ConversationState,
    MessageQuery,
    Participation,
    RecordQuery,
    RecordWrite,
    Row,
    Slice,
    Swept,
)
from hansard.errors import Closed, HansardError, Unavailable
from hansard.executor import run_in_thread
from hansard.model import Conversation, Problem, Receipt, Record, Stats, UsageRow

_THREADS = 16
_POLL = 0.075
"""Seconds between two checks of a watcher for writes of other processes."""
_BATCH = 100
_ATTEMPTS = 3


class FilesStorage:
    def __init__(self, common: SharedResources, *, blocking: bool) -> None:
        self.common = common
        self._signals = Signals()
        self._watched: dict[tuple[str, str], object] = {}
        self._pool = None if blocking else ThreadPoolExecutor(_THREADS, thread_name_prefix="hansard-files")
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="files",
            durability="machine" if self.common.disk.durable else "process",
            shared=True,
            search="index",
            append_records=False,
            watch="poll",
            backup=True,
            remnants="in blocks of the disk that were freed and not overwritten, and some in caches and in journals "
            "of records until `hansard purge` runs.",
            blocking=self._pool is None,
        )

    async def close(self) -> None:
        if self._closed:
            return
        await self._run(self._close_tenants)
        self._closed = True
        self._signals.notify_all()
        if self._pool is not None:
            await run_in_thread(self._pool.shutdown)

    def _close_tenants(self) -> None:
        for tenant in self.common.tenants.values():
            tenant.close()

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise Closed("this store was closed")
        if self._pool is None:
            return _run_with_recovery(function, args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _run_with_recovery, function, args)

    def _tenant(self, context: Context) -> Tenant:
        return self.common.tenant(context.tenant)

    # One conversation

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        return await self._run(self._write, context, id, operation)

    def _write(self, context: Context, id: str, operation: Operation[T]) -> T:
        tenant = self._tenant(context)
        try:
            while True:
                # Overtaken by a writer that created the conversation: try again, now there is a lock to wait for.
                with contextlib.suppress(Overtaken), contextlib.ExitStack() as stack:
                    return run_to_end(operation(FilesTransaction(tenant, context, id, stack)))
        finally:
            self._signals.notify((context.tenant, id))

    async def read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        def read() -> tuple[ConversationState, Found] | None:
            tenant = self._tenant(context)
            with tenant.journals.reading(context, id, rows=wants != STATE_ONLY) as journal:
                return (journal.conversation_state, answer(tenant, journal, wants)) if journal else None

        return await self._run(read)

    async def messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        def run() -> Slice:
            with self._tenant(context).journals.reading(context, id) as journal:
                return read.read_slice(journal, query) if journal else Slice([], False)

        return await self._run(run)

    async def rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        def run() -> list[Row]:
            with self._tenant(context).journals.reading(context, id) as journal:
                rows = read.rows_after(journal, after_seq, limit, max_bytes) if journal else []
                messages = journal.read(rows) if journal else []
            return [Row(row.segment, message) for row, message in zip(rows, messages, strict=True)]

        return await self._run(run)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        key = (context.tenant, id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self._run(self._check_for_changes, context, id)
        while True:
            left = deadline - loop.time()
            mark = await self._signals.wait(key, seen, max(0.0, min(_POLL, left)))
            if mark != seen or left <= _POLL:
                return mark
            await self._run(self._check_for_changes, context, id)

    def _check_for_changes(self, context: Context, id: str) -> None:
        """Wakes watchers if the journal has changed."""
        key = (context.tenant, id)
        try:
            now = self._tenant(context).journals.fingerprint(names.escape(id))
        except ConversationMoving:
            return
        before = self._watched.get(key, now)
        self._watched[key] = now
        if now != before:
            self._signals.notify(key)

    # Many conversations

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        def select() -> tuple[list[Conversation], bool]:
            return self._tenant(context).catalog().select(context, query)

        return await self._run(select)

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return await self._run(tenant_data.participations, self._tenant(context), context, participant_id, limit)

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        return await self._run(search.search, self._tenant(context), context, lookup)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        return await self._run(rank.rank, self._tenant(context), context, lookup)

    async def catch_up(self) -> None:
        for tenant in await self._run(maintenance.tenants, self.common):
            await self._run(tenant.catalog)
            while await self._run(search.index_some, tenant):
                pass

    async def reindex(self) -> AsyncIterator[int]:
        done = 0
        for tenant in await self._run(maintenance.tenants, self.common):
            await self._run(search.restart, tenant)
            while more := await self._run(search.index_some, tenant):
                done += more
                yield done
        yield done

    # Tenant data

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self._run(tenant_data.get_records, self._tenant(context), context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._run(tenant_data.write_records, self._tenant(context), context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._run(tenant_data.scan_records, self._tenant(context), context, query)

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        def put() -> None:
            tenant = self._tenant(context)
            with tenant.lock_shared(create=True):
                tenant.log.create_if_missing()
                tenant.blobs.put(sha256, data, keep_until)

        await self._run(put)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._run(self._tenant(context).blobs.get, digests)

    async def record_owners(self, context: Context) -> list[str]:
        return await self._run(tenant_data.record_owners, self._tenant(context))

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return await self._run(tenant_data.usage, self._tenant(context), context, since, until)

    # Lifecycle

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self._run(tenant_data.erase_user_data, self._tenant(context), context, user_id)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self._run(maintenance.sweep, self.common, context, limit)

    async def stats(self, tenant: str | None) -> Stats:
        return await self._run(maintenance.stats, self.common, tenant)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        found = check.check(self.common, tenant)
        while batch := await self._run(lambda: list(islice(found, _BATCH))):
            for each in batch:
                yield each

    async def list_tenants(self) -> list[str]:
        return await self._run(maintenance.list_tenants, self.common)

    async def delete_tenant(self, context: Context) -> Receipt:
        receipt = await self._run(maintenance.delete_tenant, self.common, context)
        self._signals.notify_all()
        return receipt

    async def backup(self, target: Path) -> None:
        await self._run(backup.backup, self.common, target)


class FilesBackend(StoredBackend[FilesStorage]):
    def __init__(self, common: SharedResources, *, blocking: bool) -> None:
        super().__init__(FilesStorage(common, blocking=blocking))


def _run_with_recovery(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    """Calls a function, again if the index was unusable: such a failure has written nothing."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with map_errors():
                return function(*args)
        except IndexFailure as failure:
            if attempt == _ATTEMPTS:
                if isinstance(failure.error, HansardError):
                    raise failure.error from failure
                raise Unavailable(f"the index of this folder cannot be used: {failure}") from failure
            with map_errors():
                failure.recover()
    raise AssertionError("the last attempt returns or raises")
