"""A mirror: a local index decides and answers, and an OpenAI API holds the items.

The API stores items in order, and a little metadata. It cannot list conversations, and has no owners, times, branches,
versions or exact content. The index has all of that; it is any Hansard backend that stores records. A write goes to the
index first, which decides it; then the new messages are added at the API, from where the last addition ended: so the
next write completes an interrupted one. A read first takes over the changes of others.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import openai
from msgspec import UNSET, structs

from hansard.backends.openai import check
from hansard.backends.openai.errors import mapped
from hansard.backends.openai.mirror import PULLED, MirrorPair, is_pulled
from hansard.backends.openai.mirror_state import TENANT
from hansard.backends.openai.sync_from_api import Puller
from hansard.backends.openai.sync_to_api import Pusher
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    Remove,
    Removed,
    Replace,
    Restore,
    Slice,
    Swept,
)
from hansard.errors import Conflict, Unsupported, ValidationError
from hansard.model import Appended, Branch, Conversation, Message, Problem, Receipt, Stats

_LOOKS = 3
"""How often a read is repeated while others keep deleting its messages."""


class OpenAiBackend:
    def __init__(self, mirror: MirrorPair, client: openai.AsyncOpenAI) -> None:
        self._mirror = mirror
        self._index = mirror.index
        self._states = mirror.states
        self._client = client
        self._puller = Puller(mirror)
        self._pusher = Pusher(mirror, self._puller)

    def __getattr__(self, name: str) -> Any:
        """Forwards calls that concern only the index."""
        found = getattr(self._index, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def call(*arguments: Any) -> Any:
            if arguments and isinstance(arguments[0], Context):
                _refuse_index_tenant(arguments[0])
            return await found(*arguments)

        return call

    @property
    def capabilities(self) -> Capabilities:
        """Returns those of the index, except what the API cannot guarantee."""
        return structs.replace(
            self._index.capabilities,
            name=self._mirror.remote.name,
            blocking=False,
            backup=False,
            secure_delete=False,
            remnants="at the API, which does not report what it retains.",
            vacuum=False,
            changed_elsewhere=self._mirror.pulls,
            mirrors=True,
        )

    async def close(self) -> None:
        try:
            await self._client.close()
        finally:
            await self._index.close()

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        _refuse_index_tenant(context)
        made = await self._index.create_conversation(context, conversation)
        await self._pusher.push(context, conversation.id)
        return made

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id, metadata=True)
        return await self._index.get_conversation(context, id)

    async def remote_id(self, context: Context, id: str) -> str | None:
        _refuse_index_tenant(context)
        is_seen = await self._index.get_conversation(context, id) is not None
        state = await self._states.get(Context(context.tenant, context.now), id) if is_seen else None
        return None if state is None or state.is_dying else state.remote

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        _refuse_index_tenant(context)
        changed = await self._index.update_conversation(context, id, change)
        await self._pusher.push(context, id)
        return changed

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        _refuse_index_tenant(context)
        of = Context(context.tenant, context.now)
        state = await self._states.get(of, id)
        is_seen = await self._index.get_conversation(context, id) is not None
        if state is not None and is_seen:
            # Before the deletion: if it is interrupted, the API's items must not be taken for those of a later
            # conversation.
            await self._states.change(of, id, is_dying=True)
        try:
            receipt = await self._index.delete_conversation(context, id, expected_version)
        except Conflict:
            await self._states.change(of, id, is_dying=False)
            raise
        await self._delete_remote(of, id)
        if is_seen:
            await self._states.forget_copy(of, id)
        return _not_physically_gone(receipt)

    async def _delete_remote(self, context: Context, id: str) -> None:
        """Deletes the items at the API, unless the conversation exists here."""
        async with self._mirror.one_at_a_time(context, id):
            state = await self._states.get(context, id)
            if state is not None and await self._index.get_conversation(context, id) is None:
                with mapped(index_written=True):
                    await self._pusher.delete_remote(context, id, state)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        _refuse_index_tenant(context)
        if id.startswith(self._mirror.remote.prefix) and await self._index.get_conversation(context, id) is None:
            # It may have been created at the API, and never been read here.
            await self._puller.pull(context, id)
        appended = await self._index.append(context, id, append)
        await self._pusher.push(context, id)
        return appended

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id)
        await self._pusher.mark_dirty(context, id)
        replaced = await self._index.replace_messages(context, id, replace)
        await self._pusher.push(context, id)
        return replaced

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id)
        found = await self._index.get_messages(context, id, query)
        for _ in range(_LOOKS):
            if not await self._puller.verify(context, id, found.messages):
                break
            found = await self._index.get_messages(context, id, query)
        return found

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        _refuse_index_tenant(context)
        found = await self._index.find_messages(context, id, message_ids)
        if len(found) < len(message_ids):
            await self._puller.pull(context, id)
            found = await self._index.find_messages(context, id, message_ids)
        if await self._puller.verify(context, id, found):
            found = await self._index.find_messages(context, id, message_ids)
        return found

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        _refuse_index_tenant(context)
        if change.metadata is not UNSET:
            # Keep the record that it came from the API.
            for message in await self._index.find_messages(context, id, [message_id]):
                if is_pulled(message):
                    kept = {PULLED: (message.metadata or {})[PULLED]}
                    change = structs.replace(change, metadata={**(change.metadata or {}), **kept})
        if self._mirror.mode == "snapshot" and change.status != "in_progress":
            await self._pusher.mark_dirty(context, id)
        changed = await self._index.update_message(context, id, message_id, change)
        if changed.status != "in_progress":
            await self._pusher.push(context, id)
        return changed

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id)
        await self._pusher.mark_dirty(context, id)
        removed = await self._index.remove_messages(context, id, remove)
        await self._pusher.push(context, id, removed=tuple(removed.messages) or None)
        return structs.replace(removed, receipt=_not_physically_gone(removed.receipt))

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        _refuse_index_tenant(context)
        made = await self._index.create_branch(context, id, new)
        await self._pusher.push(context, id)
        return made

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id)
        await self._pusher.mark_dirty(context, id)
        receipt = await self._index.delete_branch(context, id, branch, expected_version)
        await self._pusher.push(context, id)
        return _not_physically_gone(receipt)

    # Copying and search

    async def read_image(self, context: Context, id: str) -> Image | None:
        _refuse_index_tenant(context)
        await self._puller.pull(context, id, metadata=True)
        await self._puller.verify_all(context, id)
        return await self._index.read_image(context, id)

    async def restore(self, context: Context, restore: Restore) -> int:
        _refuse_index_tenant(context)
        if not restore.done:
            await self._states.note_copy(context, restore.image.conversation)
        seq = await self._index.restore(context, restore)
        if restore.done:
            await self._pusher.push(context, restore.image.conversation.id)
            await self._states.forget_copy(context, restore.image.conversation.id)
        return seq

    # Lifecycle

    async def sweep(self, context: Context, limit: int) -> Swept:
        was_due = await self._states.sweep_is_due(context)
        # Before: if this is interrupted, the next sweep knows that something may be left at the API.
        await self._states.set_sweep(context, due=True)
        swept = await self._index.sweep(context, limit)
        is_due = was_due or swept.receipt.conversations > 0
        if is_due and not swept.more:
            async for tenant, id, _ in self._states.all(context):
                await self._delete_remote(Context(tenant, context.now), id)
        if not is_due or not swept.more:
            await self._states.set_sweep(context, due=False)
        return structs.replace(swept, receipt=_not_physically_gone(swept.receipt))

    async def delete_tenant(self, context: Context) -> Receipt:
        _refuse_index_tenant(context)
        async for _, id, _ in self._states.all(context, context.tenant):
            await self._states.change(context, id, is_dying=True)
        receipt = await self._index.delete_tenant(context)
        async for _, id, _ in self._states.all(context, context.tenant):
            await self._delete_remote(context, id)
        await self._states.forget_copies(context)
        return _not_physically_gone(receipt)

    async def list_tenants(self) -> list[str]:
        return [tenant for tenant in await self._index.list_tenants() if tenant != TENANT]

    async def stats(self, tenant: str | None) -> Stats:
        found = structs.replace(await self._index.stats(tenant), backend=self.capabilities.name)
        if tenant is not None:
            return found
        ours = await self._index.stats(TENANT)
        return structs.replace(found, tenants=found.tenants - 1, records=found.records - ours.records)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        async for found in self._index.check(tenant):
            yield found
        if self._mirror.pulls:
            async for problem in check.check(self._mirror, tenant):
                yield problem

    async def backup(self, target: Path) -> None:
        raise Unsupported(
            "a mirror has two sides: back up the index, which has everything, by its own URL",
            capability="backup",
        )


def _not_physically_gone(receipt: Receipt) -> Receipt:
    """It is unknown what an API retains of deleted data."""
    return structs.replace(receipt, physically_gone=False)


def _refuse_index_tenant(context: Context) -> None:
    if context.tenant == TENANT:
        raise ValidationError(f"the tenant {TENANT!r} is reserved for the index: choose another name")
