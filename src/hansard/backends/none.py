"""Keeps nothing: reads are empty, writes succeed and answer as if each had been the first.

A write runs against a memory of its own, which is thrown away with it, so that its answer has the true shape.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

from msgspec import UNSET, structs

from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Draft,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    NewConversation,
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
from hansard.model import Appended, Branch, Conversation, Message, Problem, Receipt, Record, Stats, Summary, UsageRow
from hansard.urls import Url


class NoneBackend:
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="none",
            durability="none",
            keeps=False,
            compare_and_swap=False,
            search="none",
            watch="none",
            secure_delete=True,
            blocking=True,
        )

    async def close(self) -> None: ...

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        return await MemoryBackend().create_conversation(context, conversation)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return None

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        return [], False

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        blank = await _blank(context, id)
        alone = structs.replace(change, branch=UNSET, expected_version=None)
        return await blank.update_conversation(context, id, alone)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        return Receipt(at=context.now)

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        new = append.new or NewConversation()
        alone = structs.replace(append, new=new, branch=None, expected_version=None)
        return await MemoryBackend().append(context, id, alone)

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        blank = await _blank(context, id)
        return await blank.replace_messages(context, id, structs.replace(replace, branch=None, expected_version=None))

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return Slice([], False)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        return []

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        blank = await _blank(context, id)
        draft = Draft(Message("user", "", id=message_id, format="text"), "", 0, given_id=True)
        await blank.append(context, id, Append((draft,), None))
        return await blank.update_message(context, id, message_id, structs.replace(change, expected_version=None))

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        return Removed([], Receipt(at=context.now), 0)

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        blank = await _blank(context, id)
        return await blank.create_branch(context, id, NewBranch(new.id, empty=True, activate=new.activate))

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        return []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        return Receipt(at=context.now)

    async def put_summary(self, context: Context, summary: Summary) -> None: ...

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        return []

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        return [None for _ in keys]

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        alone = [structs.replace(write, conversation_id=None, expected_revision=None) for write in writes]
        return await MemoryBackend().write_records(context, alone)

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return [], False

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None: ...

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return {}

    async def read_image(self, context: Context, id: str) -> Image | None:
        return None

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        return []

    async def restore(self, context: Context, restore: Restore) -> int:
        return restore.rows[-1].draft.message.seq if restore.rows else restore.image.seq

    async def record_owners(self, context: Context) -> list[str]:
        return []

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        return []

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        return Receipt(at=context.now)

    async def sweep(self, context: Context, limit: int) -> Swept:
        return Swept(receipt=Receipt(at=context.now))

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        return []

    async def stats(self, tenant: str | None) -> Stats:
        return Stats(backend="none")

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        yield 0

    async def list_tenants(self) -> list[str]:
        return []

    async def delete_tenant(self, context: Context) -> Receipt:
        return Receipt(at=context.now)

    async def backup(self, target: Path) -> None:
        raise Unsupported("none keeps nothing to copy", capability="backup")

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        raise Unsupported("none keeps nothing to watch", capability="watch")


async def _blank(context: Context, id: str) -> MemoryBackend:
    backend = MemoryBackend()
    await backend.create_conversation(context, Conversation(id))
    return backend


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> NoneBackend:
    url.finish(())
    return NoneBackend()
