"""A Backend made of any Storage: every write is an operation of `rules.operations`, every read a question."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from hansard import rules
from hansard.backends.values import own_conversation
from hansard.contract.backend import Capabilities, CommitCounts, Index
from hansard.contract.storage import Backup, Storage, Vacuum, Wants
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    Image,
    MessageChange,
    NewBranch,
    Remove,
    Removed,
    Replace,
    Restore,
)
from hansard.errors import Unsupported
from hansard.model import (
    Appended,
    Branch,
    Conversation,
    Message,
    Receipt,
    Summary,
)
from hansard.rules import operations

if TYPE_CHECKING:
    from hansard.analysis import Lookup, Matches

S = TypeVar("S", bound=Storage)

_ONLY_STATE = Wants()


class AppendWay(Protocol):
    async def __call__(self, context: Context, id: str, append: Append) -> Appended: ...


class StoredBackend(Generic[S]):
    """`append` is for a storage with a quicker way to commit appends than `Storage.write`.

    It decides how an append is committed, never what it means: it runs `operations.append`, or `rules.plan_append` on a
    conversation that the context sees, and leaves to `write` what it cannot decide.
    """

    def __init__(self, storage: S, *, append: AppendWay | None = None) -> None:
        self.storage = storage
        self.append: AppendWay = append or self._append_as_any_write
        # Bound instead of forwarded by methods, which would cost each call of W1, W3 and W5 one more coroutine.
        self.close = storage.close
        self.list_conversations = storage.list_conversations
        self.get_messages = storage.messages
        self.get_records = storage.get_records
        self.write_records = storage.write_records
        self.scan_records = storage.scan_records
        self.put_blob = storage.put_blob
        self.get_blobs = storage.get_blobs
        self.read_rows = storage.rows
        self.record_owners = storage.record_owners
        self.participations = storage.participations
        self.erase_user_data = storage.erase_user_data
        self.sweep = storage.sweep
        self.usage = storage.usage
        self.stats = storage.stats
        self.check = storage.check
        self.list_tenants = storage.list_tenants
        self.delete_tenant = storage.delete_tenant
        self.wait = storage.wait

    @property
    def capabilities(self) -> Capabilities:
        return self.storage.capabilities

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        operation = partial(operations.create_conversation, given=conversation)
        return own_conversation(await self.storage.write(context, conversation.id, operation))

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        found = await self.storage.read(context, id, _ONLY_STATE)
        return own_conversation(found[0].conversation) if found else None

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        operation = partial(operations.update_conversation, change=change)
        return own_conversation(await self.storage.write(context, id, operation))

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        operation = partial(operations.delete_conversation, expected_version=expected_version)
        return await self.storage.write(context, id, operation)

    # Messages

    async def _append_as_any_write(self, context: Context, id: str, append: Append) -> Appended:
        return await self.storage.write(context, id, partial(operations.append, append=append))

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        return await self.storage.write(context, id, partial(operations.replace_messages, replace=replace))

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found = await self.storage.read(context, id, Wants(ids=message_ids))
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
        found = await self.storage.read(context, id, _ONLY_STATE)
        return rules.branches_of(found[0]) if found else []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        operation = partial(operations.delete_branch, branch=branch, expected_version=expected_version)
        return await self.storage.write(context, id, operation)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        operation = partial(operations.put_summary, summary=summary)
        await self.storage.write(context, summary.conversation_id, operation)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        found = await self.storage.read(context, id, Wants(summaries=True))
        return [each for each in found[1].summaries if branch in (None, each.branch)] if found else []

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        found = await self.storage.read(context, id, _ONLY_STATE)
        if found is None:
            return None
        state = found[0]
        return Image(own_conversation(state.conversation), state.seq, tuple(state.lanes.values()))

    async def restore(self, context: Context, restore: Restore) -> int:
        operation = partial(operations.restore, restore=restore)
        return await self.storage.write(context, restore.image.conversation.id, operation)

    # What only some storages can: see `Capabilities`

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
        return await self._index().search(context, lookup)

    async def catch_up(self) -> None:
        await self._index().catch_up()

    def reindex(self) -> AsyncIterator[int]:
        return self._index().reindex()

    def _index(self) -> Index:
        if self.capabilities.search != "index":
            raise Unsupported(f"{self.capabilities.name} has no search index", capability="search")
        return cast(Index, self.storage)
