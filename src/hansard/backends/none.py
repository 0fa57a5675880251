"""Stores nothing: reads are empty; writes succeed and answer as if each were the first.

A write runs against a memory backend that is discarded afterwards, so that its answer has the right shape.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec import UNSET, structs

from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend, Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    Draft,
    MessageChange,
    NewBranch,
    NewConversation,
    RecordWrite,
    Removed,
    Replace,
    Restore,
    Slice,
    Swept,
)
from hansard.errors import Unsupported
from hansard.model import Appended, Branch, Conversation, Message, Problem, Receipt, Record, Stats
from hansard.urls import Url

P = ParamSpec("P")
R = TypeVar("R")


def answering(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], answer: Callable[..., R]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Returns a method of the contract that always returns the same answer."""

    @functools.wraps(method)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return answer(*args)

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", call)


def _nothing(*_: Any) -> None:
    return None


def _empty(*_: Any) -> list[Any]:
    return []


def _no_page(*_: Any) -> tuple[list[Any], bool]:
    return [], False


def _receipt(context: Context, *_: Any) -> Receipt:
    return Receipt(at=context.now)


class NoneBackend:
    capabilities = Capabilities(
        name="none",
        durability="none",
        keeps=False,
        compare_and_swap=False,
        search="none",
        watch="none",
        secure_delete=True,
        blocking=True,
    )

    close = answering(Backend.close, _nothing)

    get_conversation = answering(Backend.get_conversation, _nothing)
    list_conversations = answering(Backend.list_conversations, _no_page)
    delete_conversation = answering(Backend.delete_conversation, _receipt)
    get_messages = answering(Backend.get_messages, lambda *_: Slice([], False))
    find_messages = answering(Backend.find_messages, _empty)
    remove_messages = answering(Backend.remove_messages, lambda context, *_: Removed([], _receipt(context), 0))
    list_branches = answering(Backend.list_branches, _empty)
    delete_branch = answering(Backend.delete_branch, _receipt)
    put_summary = answering(Backend.put_summary, _nothing)
    list_summaries = answering(Backend.list_summaries, _empty)
    get_records = answering(Backend.get_records, lambda _, keys: [None for _ in keys])
    scan_records = answering(Backend.scan_records, _no_page)
    put_blob = answering(Backend.put_blob, _nothing)
    get_blobs = answering(Backend.get_blobs, lambda *_: {})
    read_image = answering(Backend.read_image, _nothing)
    read_rows = answering(Backend.read_rows, _empty)
    record_owners = answering(Backend.record_owners, _empty)
    participations = answering(Backend.participations, _empty)
    erase_user_data = answering(Backend.erase_user_data, _receipt)
    sweep = answering(Backend.sweep, lambda context, _: Swept(receipt=_receipt(context)))
    usage = answering(Backend.usage, _empty)
    stats = answering(Backend.stats, lambda _: Stats(backend="none"))
    list_tenants = answering(Backend.list_tenants, _empty)
    delete_tenant = answering(Backend.delete_tenant, _receipt)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        yield 0

    async def backup(self, target: Path) -> None:
        raise Unsupported("the none backend stores nothing to back up", capability="backup")

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        raise Unsupported("the none backend stores nothing to watch", capability="watch")

    # Writes

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        return await MemoryBackend().create_conversation(context, conversation)

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        blank = await _blank(context, id)
        alone = structs.replace(change, branch=UNSET, expected_version=None)
        return await blank.update_conversation(context, id, alone)

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        new = append.new or NewConversation()
        alone = structs.replace(append, new=new, branch=None, expected_version=None)
        return await MemoryBackend().append(context, id, alone)

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        blank = await _blank(context, id)
        return await blank.replace_messages(context, id, structs.replace(replace, branch=None, expected_version=None))

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        blank = await _blank(context, id)
        draft = Draft(Message("user", "", id=message_id, format="text"), "", 0, given_id=True)
        await blank.append(context, id, Append((draft,), None))
        return await blank.update_message(context, id, message_id, structs.replace(change, expected_version=None))

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        blank = await _blank(context, id)
        return await blank.create_branch(context, id, NewBranch(new.id, empty=True, activate=new.activate))

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        alone = [structs.replace(write, conversation_id=None, expected_revision=None) for write in writes]
        return await MemoryBackend().write_records(context, alone)

    async def restore(self, context: Context, restore: Restore) -> int:
        return restore.rows[-1].draft.message.seq if restore.rows else restore.image.seq


async def _blank(context: Context, id: str) -> MemoryBackend:
    backend = MemoryBackend()
    await backend.create_conversation(context, Conversation(id))
    return backend


async def open_backend(url: Url, *, blocking: bool, upgrade: bool) -> NoneBackend:
    url.finish(())
    return NoneBackend()
