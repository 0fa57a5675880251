"""PostgreSQL: for many processes on many machines.

Reads take one statement where they can, and one snapshot where they cannot. Appends are committed together
(`appending`). All other writes are jobs of the engine, each in a transaction that holds the lock of its conversation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from hansard import rules
from hansard.analysis import Lookup, Matches
from hansard.backends.postgres import beside, changing, indexing, lifecycle, reading, schema, searching, vacuum, writing
from hansard.backends.postgres.appending import Appender
from hansard.backends.postgres.engine import Engine
from hansard.backends.postgres.errors import DRIVER, translate
from hansard.backends.postgres.filling import Filler
from hansard.backends.postgres.link import connect
from hansard.backends.postgres.options import Options
from hansard.backends.postgres.schema import State
from hansard.backends.postgres.watching import Watch
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
from hansard.errors import Denied, Unsupported
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
    to_micros,
)

_ATTEMPTS = 3
"""Times that a search indexes the tail before it looks."""


class PostgresBackend:
    def __init__(self, options: Options, state: State) -> None:
        self._options = options
        self._engine = Engine(options, walled=state.walled)
        self._appender = Appender(self._engine)
        self._filler = Filler(self._engine)
        self._watch = Watch(self._engine)
        self._capabilities = Capabilities(
            name="postgres",
            durability=state.durability,
            shared=True,
            search="index",
            remnants="in dead rows until the tables are vacuumed (by PostgreSQL in time, or by `hansard vacuum`), "
            "and in its write-ahead log and archives until those are recycled.",
            vacuum=True,
            watch="poll" if options.direct_dsn is None else "push",
        )

    @classmethod
    async def open(cls, options: Options, *, upgrade: bool = False) -> PostgresBackend:
        try:
            link = await connect(options, options.direct_dsn or options.dsn, {})
            try:
                state = await schema.prepare(link, options, upgrade=upgrade)
            finally:
                await link.close()
        except DRIVER as error:
            raise translate(error, options.where) from error
        backend = cls(options, state)
        if upgrade:
            try:
                await indexing.upgrade(backend._engine)
            except BaseException:
                await backend.close()
                raise
        return backend

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def close(self) -> None:
        if self._engine.is_foreign:
            return
        await self._watch.close()
        await self._appender.close()
        await self._filler.close()
        await self._engine.close()

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        job = partial(writing.create_conversation, context=context, conversation=conversation)
        return await self._engine.write(context.tenant, job)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return await self._engine.read(context.tenant, partial(reading.find_conversation, context=context, id=id))

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        run = reading.list_matching if query.metadata else reading.list_conversations
        read = partial(run, context=context, query=query)
        return await self._engine.read(context.tenant, read, snapshot=bool(query.metadata))

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        job = partial(writing.update_conversation, context=context, id=id, change=change)
        return await self._engine.write(context.tenant, job)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        job = partial(writing.delete_conversation, context=context, id=id, expected_version=expected_version)
        return await self._engine.write(context.tenant, job)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        appended = await self._appender.append(context, id, append)
        self._filler.note(context.tenant, id, appended.stored)
        return appended

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        job = partial(changing.replace_messages, context=context, id=id, replace=replace)
        appended = await self._engine.write(context.tenant, job)
        self._filler.note(context.tenant, id, appended.stored)
        return appended

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        if query.sort == "seq":
            plain = partial(reading.get_plain, context=context, id=id, query=query)
            page = await self._engine.read(context.tenant, plain)
            if page is not None:
                return await reading.as_slice(page[: query.limit], id, more=len(page) > (query.limit or len(page)))
        parted = partial(reading.get_parted, context=context, id=id, query=query)
        found, more = await self._engine.read(context.tenant, parted, snapshot=True)
        return await reading.as_slice(found, id, more=more)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        read = partial(reading.find_messages, context=context, id=id, message_ids=message_ids)
        return await self._engine.read(context.tenant, read)

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        job = partial(changing.update_message, context=context, id=id, message_id=message_id, change=change)
        message = await self._engine.write(context.tenant, job)
        self._filler.note(context.tenant, id, 1)
        return message

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        job = partial(changing.remove_messages, context=context, id=id, remove=remove)
        return await self._engine.write(context.tenant, job)

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        job = partial(changing.create_branch, context=context, id=id, new=new)
        return await self._engine.write(context.tenant, job)

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        entry = await self._engine.read(context.tenant, partial(reading.find_entry, context=context, id=id))
        return rules.branches_of(entry.head) if entry else []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        job = partial(changing.delete_branch, context=context, id=id, branch=branch, expected_version=expected_version)
        return await self._engine.write(context.tenant, job)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        await self._engine.write(context.tenant, partial(changing.put_summary, context=context, summary=summary))

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        read = partial(beside.list_summaries, context=context, id=id, branch=branch)
        return await self._engine.read(context.tenant, read)

    # Search

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        given: dict[str, Any] = {"context": context, "lookup": lookup, "walled": self._engine.is_walled}
        quick = await self._engine.read(context.tenant, partial(searching.search_quickly, **given))
        if quick is not None:
            return quick
        look = partial(searching.search, **given, note_tail=self._filler.note_left)
        for _ in range(_ATTEMPTS):
            found = await self._engine.read(context.tenant, look, snapshot=True)
            if found is not None:
                return found
            try:
                await indexing.catch_up_tenant(self._engine, context.tenant)
            except Denied:
                break  # a replica: somebody else has to index
        # Others write faster than we index, or nobody here can: then the tail is looked at, however long it is.
        whole = await self._engine.read(context.tenant, partial(look, any_tail=True), snapshot=True)
        assert whole is not None
        return whole

    async def catch_up(self) -> None:
        await indexing.catch_up(self._engine)

    def reindex(self) -> AsyncIterator[int]:
        return indexing.rebuild(self._engine)

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        wanted = [beside.key_of(*key) for key in keys]
        return await self._engine.read(context.tenant, partial(beside.get_records, context=context, keys=wanted))

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return await self._engine.write(context.tenant, partial(beside.write_records, context=context, writes=writes))

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self._engine.read(context.tenant, partial(beside.scan_records, context=context, query=query))

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        job = partial(writing.keep_blobs, blobs={sha256: data}, keep_until=to_micros(keep_until))
        await self._engine.write(context.tenant, job)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._engine.read(context.tenant, partial(reading.get_blobs, context=context, digests=digests))

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        return await self._engine.read(context.tenant, partial(reading.read_image, context=context, id=id))

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        read = partial(reading.read_rows, context=context, id=id, after_seq=after_seq, limit=limit, max_bytes=max_bytes)
        return await self._engine.read(context.tenant, read, snapshot=True)

    async def restore(self, context: Context, restore: Restore) -> int:
        seq = await self._engine.write(context.tenant, partial(writing.restore, context=context, restore=restore))
        self._filler.note(context.tenant, restore.image.conversation.id, len(restore.rows))
        return seq

    async def record_owners(self, context: Context) -> list[str]:
        found = await self._engine.read(context.tenant, lambda link: link.all("record_owners", context.tenant))
        return [owner for (owner,) in found]

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        read = partial(beside.participations, context=context, participant_id=participant_id, limit=limit)
        return await self._engine.read(context.tenant, read)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self._engine.write(
            context.tenant, partial(beside.erase_user_data, context=context, user_id=user_id)
        )

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await lifecycle.sweep(self._engine, context, limit)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        read = partial(beside.usage, context=context, since=since, until=until)
        return await self._engine.read(context.tenant, read)

    async def stats(self, tenant: str | None) -> Stats:
        return await self._engine.read(tenant, partial(lifecycle.stats, tenant=tenant), snapshot=True)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return lifecycle.check(self._engine, tenant)

    async def list_tenants(self) -> list[str]:
        return [name for (name,) in await self._engine.read(None, lambda link: link.all("list_tenants"))]

    async def delete_tenant(self, context: Context) -> Receipt:
        return await lifecycle.delete_tenant(self._engine, context)

    async def backup(self, target: Path) -> None:
        raise Unsupported(
            "a PostgreSQL server is backed up with its own tools, such as pg_dump: or use copy_to(another store)",
            capability="backup",
        )

    async def vacuum(self) -> None:
        self._engine.check_alive()
        await vacuum.vacuum(self._options)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        self._engine.check_alive()
        return await self._watch.wait(context.tenant, id, seen, timeout)
