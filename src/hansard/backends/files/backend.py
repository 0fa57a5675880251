"""Files: a folder for each agent, a journal of JSON lines for each conversation.

This page is the contract's side: it hands each call to functions that block, directly in blocking mode, on threads of
its own otherwise. Begin with `layout`, then `lines`, `entries`, `index` and `writing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from hansard import rules
from hansard.backends.files import beside, changing, checking, conversations, copying, lifecycle, names, reading
from hansard.backends.files.disk import map_errors
from hansard.backends.files.shelf import Busy
from hansard.backends.files.tenant import Common, Tenant
from hansard.backends.signals import Signals
from hansard.backends.values import own_conversation
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    Participation,
    RecordQuery,
    RecordWrite,
    Remove,
    Removed,
    Replace,
    Restore,
    Row,
    Slice,
    Swept,
)
from hansard.errors import Closed
from hansard.model import (
    Appended,
    Branch,
    Conversation,
    Message,
    Problem,
    Receipt,
    Record,
    Stats,
    Summary,
    UsageRow,
)
from hansard.threads import aside

T = TypeVar("T")

_THREADS = 16
_POLL = 0.075
"""How often, in seconds, a watcher looks for what other processes wrote."""
_BATCH = 100


class FilesBackend:
    def __init__(self, common: Common, *, blocking: bool) -> None:
        self._common = common
        self._signals = Signals()
        self._watched: dict[tuple[str, str], object] = {}
        self._pool = None if blocking else ThreadPoolExecutor(_THREADS, thread_name_prefix="hansard-files")
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="files",
            durability="machine" if self._common.disk.durable else "process",
            shared=True,
            watch="poll",
            backup=True,
            remnants="in blocks of the disk that were freed and not overwritten, and some in caches and in journals "
            "of records until `hansard purge` runs.",
            blocking=self._pool is None,
        )

    async def close(self) -> None:
        if self._closed:
            return
        await self._run(self._save)
        self._closed = True
        self._signals.notify_all()
        if self._pool is not None:
            await aside(self._pool.shutdown)

    def _save(self) -> None:
        for tenant in self._common.tenants.values():
            tenant.save()

    # Running

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise Closed("this store was closed")
        if self._pool is None:
            return _mapped(function, args)
        return await asyncio.get_running_loop().run_in_executor(self._pool, _mapped, function, args)

    async def _write(self, function: Callable[..., T], context: Context, id: str, *args: Any) -> T:
        def write() -> T:
            try:
                return function(self._tenant(context), context, *args)
            finally:
                self._signals.notify((context.tenant, id))

        return await self._run(write)

    def _tenant(self, context: Context) -> Tenant:
        return self._common.tenant(context.tenant)

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        return await self._write(conversations.create_conversation, context, conversation.id, conversation)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        def get() -> Conversation | None:
            with self._tenant(context).shelf.reading(context, id) as book:
                return own_conversation(book.head.conversation) if book else None

        return await self._run(get)

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        def select() -> tuple[list[Conversation], bool]:
            with self._tenant(context).catalog() as catalog:
                page, more = catalog.select(context, query)
            return [own_conversation(each) for each in page], more

        return await self._run(select)

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        return await self._write(conversations.update_conversation, context, id, id, change)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        return await self._write(conversations.delete_conversation, context, id, id, expected_version)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        return await self._write(changing.append, context, id, id, append)

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        return await self._write(changing.replace_messages, context, id, id, replace)

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        def get() -> Slice:
            with self._tenant(context).shelf.reading(context, id) as book:
                return reading.read_slice(book, query) if book else Slice([], False)

        return await self._run(get)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        def find() -> list[Message]:
            with self._tenant(context).shelf.reading(context, id) as book:
                return book.find(message_ids) if book else []

        return await self._run(find)

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        return await self._write(changing.update_message, context, id, id, message_id, change)

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        return await self._write(changing.remove_messages, context, id, id, remove)

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        return await self._write(conversations.create_branch, context, id, id, new)

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        def get() -> list[Branch]:
            with self._tenant(context).shelf.reading(context, id) as book:
                return rules.branches_of(book.head) if book else []

        return await self._run(get)

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        return await self._write(changing.delete_branch, context, id, id, branch, expected_version)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        await self._write(conversations.put_summary, context, summary.conversation_id, summary)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        def get() -> list[Summary]:
            with self._tenant(context).shelf.reading(context, id) as book:
                summaries = list(book.index.summaries) if book else []
            return [summary for summary in summaries if branch is None or summary.branch == branch]

        return await self._run(get)

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        return await self._run(beside.get_records, self._tenant(context), context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._run(beside.write_records, self._tenant(context), context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._run(beside.scan_records, self._tenant(context), context, query)

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        def put() -> None:
            tenant = self._tenant(context)
            with tenant.staying(create=True):
                tenant.ledger.establish()
                tenant.blobs.put(sha256, data, keep_until)

        await self._run(put)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._run(self._tenant(context).blobs.get, digests)

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        def get() -> Image | None:
            with self._tenant(context).shelf.reading(context, id) as book:
                head = book.head if book else None
            return Image(own_conversation(head.conversation), head.seq, tuple(head.lanes.values())) if head else None

        return await self._run(get)

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        def get() -> list[Row]:
            with self._tenant(context).shelf.reading(context, id) as book:
                rows = reading.rows_after(book, after_seq, limit, max_bytes) if book else []
                messages = book.read(rows) if book else []
            return [Row(row.line, message) for row, message in zip(rows, messages, strict=True)]

        return await self._run(get)

    async def restore(self, context: Context, restore: Restore) -> int:
        return await self._write(conversations.restore, context, restore.image.conversation.id, restore)

    async def record_owners(self, context: Context) -> list[str]:
        return await self._run(beside.record_owners, self._tenant(context))

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return await self._run(beside.participations, self._tenant(context), context, participant_id, limit)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self._run(beside.erase_user_data, self._tenant(context), context, user_id)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self._run(lifecycle.sweep, self._common, context, limit)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return await self._run(beside.usage, self._tenant(context), context, since, until)

    async def stats(self, tenant: str | None) -> Stats:
        return await self._run(lifecycle.stats, self._common, tenant)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        found = checking.check(self._common, tenant)
        while batch := await self._run(lambda: list(islice(found, _BATCH))):
            for each in batch:
                yield each

    async def list_tenants(self) -> list[str]:
        return await self._run(lifecycle.list_tenants, self._common)

    async def delete_tenant(self, context: Context) -> Receipt:
        receipt = await self._run(lifecycle.delete_tenant, self._common, context)
        self._signals.notify_all()
        return receipt

    async def backup(self, target: Path) -> None:
        await self._run(copying.backup, self._common, target)

    # Watching

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        key = (context.tenant, id)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self._run(self._look, context, id)
        while True:
            left = deadline - loop.time()
            mark = await self._signals.wait(key, seen, max(0.0, min(_POLL, left)))
            if mark != seen or left <= _POLL:
                return mark
            await self._run(self._look, context, id)

    def _look(self, context: Context, id: str) -> None:
        """Wakes those who wait when the journal is not as it was."""
        key = (context.tenant, id)
        try:
            now = self._tenant(context).shelf.stamp(names.escape(id))
        except Busy:
            return
        before = self._watched.get(key, now)
        self._watched[key] = now
        if now != before:
            self._signals.notify(key)


def _mapped(function: Callable[..., T], args: tuple[Any, ...]) -> T:
    with map_errors():
        return function(*args)
