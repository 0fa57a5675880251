"""A Backend over any Storage: every write is an operation of `rules.operations`, every read a `Wants`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from msgspec import structs

from hansard import rules
from hansard.backends.shared import lists, membership
from hansard.backends.shared.copies import own_conversation
from hansard.contract.backend import Capabilities, CommitCounts, Index
from hansard.contract.storage import Backup, Found, RecordKey, Storage, Vacuum, Wants
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    ConversationState,
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
from hansard.errors import Unsupported
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
from hansard.rules import operations

if TYPE_CHECKING:
    from hansard.analysis import Lookup, Matches, Ranking

S = TypeVar("S", bound=Storage)

AppendWay = Callable[[Context, str, Append], Awaitable[Appended]]
_ONLY_STATE = Wants()


class StoredBackend(Generic[S]):
    """`append` is for a storage that can commit appends faster than by `Storage.write`.

    It changes how an append is committed, never its meaning: it runs `operations.append`, or `rules.plan_append` on a
    conversation that the context sees, and leaves to `write` whatever it cannot decide.

    `list_own` is for a storage that can find with one question what a user owns and whether the user may be a member.
    """

    def __init__(
        self, storage: S, *, append: AppendWay | None = None, list_own: membership.OwnList | None = None
    ) -> None:
        self.storage = storage
        self._append = append or self._append_as_any_write
        self._list_own = list_own

    @property
    def capabilities(self) -> Capabilities:
        return self.storage.capabilities

    async def close(self) -> None:
        await self.storage.close()

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        operation = partial(operations.create_conversation, given=conversation)
        return own_conversation(await self.storage.write(context, conversation.id, operation))

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        found = await self._read(context, id, _ONLY_STATE)
        return own_conversation(found[0].conversation) if found else None

    async def _read(self, context: Context, id: str, wants: Wants) -> tuple[ConversationState, Found] | None:
        """Reads as the owner or as a member."""
        found = await self.storage.read(context, id, wants)
        if found is None and (shared := await membership.as_member(self.storage, context, id)):
            found = await self.storage.read(shared, id, wants)
        return found

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        if query.ids is None:
            return await membership.listed(self.storage, context, query, self._list_own)
        found = [await self.get_conversation(context, id) for id in dict.fromkeys(query.ids)]
        if query.memberships and query.user_id == context.user:
            query = structs.replace(query, user_id=None)  # what the user sees, as owner or as a member
        return lists.page_of_conversations([each for each in found if each is not None], context, query)

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        operation = partial(operations.update_conversation, change=change)
        return own_conversation(await self.storage.write(context, id, operation))

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        operation = partial(operations.delete_conversation, expected_version=expected_version)
        return await self.storage.write(context, id, operation)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        return await self._append(context, id, append)

    async def _append_as_any_write(self, context: Context, id: str, append: Append) -> Appended:
        return await self.storage.write(context, id, partial(operations.append, append=append))

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        return await self.storage.write(context, id, partial(operations.replace_messages, replace=replace))

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        found = await self.storage.messages(context, id, query)
        if not found.messages and (shared := await membership.as_member(self.storage, context, id)):
            found = await self.storage.messages(shared, id, query)
        return found

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found = await self._read(context, id, Wants(ids=message_ids))
        return [found[1].by_id[each][1] for each in message_ids if each in found[1].by_id] if found else []

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        operation = partial(operations.update_message, message_id=message_id, change=change)
        return await self.storage.write(context, id, operation)

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        return await self.storage.write(context, id, partial(operations.remove_messages, remove=remove))

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        return await self.storage.write(context, id, partial(operations.create_branch, new=new))

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        found = await self._read(context, id, _ONLY_STATE)
        return rules.branches_of(found[0]) if found else []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        operation = partial(operations.delete_branch, branch=branch, expected_version=expected_version)
        return await self.storage.write(context, id, operation)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        operation = partial(operations.put_summary, summary=summary)
        await self.storage.write(context, summary.conversation_id, operation)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        found = await self._read(context, id, Wants(summaries=True))
        return [each for each in found[1].summaries if branch in (None, each.branch)] if found else []

    # Records

    async def get_records(self, context: Context, keys: Sequence[RecordKey]) -> list[Record | None]:
        return await self.storage.get_records(context, keys)

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        if context.user is not None:
            for id in {write.conversation_id for write in writes} - {None}:
                await membership.refuse_records(self.storage, context, str(id))
        return await self.storage.write_records(context, writes)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await self.storage.scan_records(context, query)

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await self.storage.put_blob(context, sha256, data, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self.storage.get_blobs(context, digests)

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        found = await self.storage.read(context, id, _ONLY_STATE)
        if found is None:
            return None
        state = found[0]
        return Image(own_conversation(state.conversation), state.seq, tuple(state.branches.values()))

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        found = await self.storage.rows(context, id, after_seq, limit, max_bytes)
        if not found and (shared := await membership.as_member(self.storage, context, id)):
            found = await self.storage.rows(shared, id, after_seq, limit, max_bytes)
        return found

    async def restore(self, context: Context, restore: Restore) -> int:
        operation = partial(operations.restore, restore=restore)
        return await self.storage.write(context, restore.image.conversation.id, operation)

    async def record_owners(self, context: Context) -> list[str]:
        return await self.storage.record_owners(context)

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return await self.storage.participations(context, participant_id, limit)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return await self.storage.erase_user_data(context, user_id)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return await self.storage.sweep(context, limit)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return await self.storage.usage(context, since, until)

    async def stats(self, tenant: str | None) -> Stats:
        return await self.storage.stats(tenant)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return self.storage.check(tenant)

    async def list_tenants(self) -> list[str]:
        return await self.storage.list_tenants()

    async def delete_tenant(self, context: Context) -> Receipt:
        return await self.storage.delete_tenant(context)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        seen_as = await membership.as_member(self.storage, context, id) or context
        return await self.storage.wait(seen_as, id, seen, timeout)

    # Optional abilities of storages: see `Capabilities`

    async def backup(self, target: Path) -> None:
        if not self.capabilities.backup:
            raise Unsupported(
                f"{self.capabilities.name} cannot make a backup: use copy_to(another store)", capability="backup"
            )
        await cast(Backup, self.storage).backup(target)

    async def vacuum(self) -> None:
        if not self.capabilities.vacuum:
            raise Unsupported(f"{self.capabilities.name} has nothing to vacuum", capability="vacuum")
        await cast(Vacuum, self.storage).vacuum()

    @property
    def commits(self) -> tuple[int, int]:
        if not self.capabilities.groups:
            raise Unsupported(f"{self.capabilities.name} does not group commits", capability="groups")
        return cast(CommitCounts, self.storage).commits

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        index = self._index()
        if context.user is None:
            return await index.search(context, lookup)
        return await membership.searched(self.storage, index, context, lookup)

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        index = self._index()
        if context.user is None:
            return await index.rank(context, lookup)
        return await membership.ranked(self.storage, index, context, lookup)

    async def catch_up(self) -> None:
        await self._index().catch_up()

    def bulk_load(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reindex(self) -> AsyncIterator[int]:
        return self._index().reindex()

    def _index(self) -> Index:
        if self.capabilities.search != "index":
            raise Unsupported(f"{self.capabilities.name} has no search index", capability="search")
        return cast(Index, self.storage)
