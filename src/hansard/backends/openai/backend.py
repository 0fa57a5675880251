"""A mirror: an index of our own decides and answers, and an API of OpenAI's holds the items.

The API keeps what it can say: items in order, and a little metadata. It cannot list conversations, and knows no
owners, times, branches, versions or exact content. All that is in the index, which is any Hansard backend that keeps
records. A write goes to the index first, which decides it; then what is new there is added at the API, from where the
last addition ended: so one that broke off is made good by the next write. A read first takes over what others added.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Literal

import openai
from msgspec import structs

from hansard import codec
from hansard.backend import Backend, Capabilities
from hansard.backends.openai.errors import mapped
from hansard.backends.openai.remotes import Entry, Piece, Remote
from hansard.backends.openai.states import TENANT, State, States
from hansard.errors import Conflict, ValidationError
from hansard.limits import Limits
from hansard.model import DEFAULT_TENANT, Appended, Branch, Conversation, Message, Receipt, Stats
from hansard.requests import (
    Append,
    Context,
    ConversationChange,
    Draft,
    MessageChange,
    MessageQuery,
    NewBranch,
    Remove,
    Removed,
    Replace,
    Restore,
    Row,
    Slice,
    Swept,
)

Mode = Literal["delta", "snapshot"]
PULLED = "openai.pulled"
"""In the metadata of a message that others added at the API."""
_ROWS, _BYTES = 200, 8_000_000
_PAIRS, _KEY, _VALUE = 12, 64, 512


class OpenAiBackend:
    def __init__(
        self, index: Backend, remote: Remote, states: States, client: openai.AsyncOpenAI, *, mode: Mode, pull: bool
    ) -> None:
        self._index = index
        self._remote = remote
        self._states = states
        self._client = client
        self._mode = mode
        self._pulls = pull
        self._locks: dict[tuple[str, str], tuple[asyncio.Lock, int]] = {}

    def __getattr__(self, name: str) -> Any:
        """What concerns the index alone."""
        return getattr(self._index, name)

    @property
    def capabilities(self) -> Capabilities:
        found = self._index.capabilities
        return structs.replace(found, name=self._remote.name, blocking=False)

    async def close(self) -> None:
        await self._client.close()
        await self._index.close()

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        _wall(context)
        made = await self._index.create_conversation(context, conversation)
        await self._push(context, conversation.id)
        return made

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        await self._pull(context, id)
        return await self._index.get_conversation(context, id)

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        changed = await self._index.update_conversation(context, id, change)
        state = await self._states.get(context, id)
        if change.metadata and state is not None:
            with mapped(after_a_write=True):
                await self._remote.update(state.remote, _metadata(context, changed))
        await self._push(context, id)
        return changed

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        receipt = await self._index.delete_conversation(context, id, expected_version)
        state = await self._states.get(context, id) if receipt.conversations else None
        if state is not None:
            await self._bury(context, id, state)
        return receipt

    async def _bury(self, context: Context, id: str, state: State) -> None:
        async with self._one_at_a_time(context, id):
            with mapped(after_a_write=True):
                await self._remote.delete(state.remote)
            await self._states.forget(context, id)

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        _wall(context)
        appended = await self._index.append(context, id, append)
        await self._push(context, id)
        return appended

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        replaced = await self._index.replace_messages(context, id, replace)
        await self._push(context, id, removed=True)
        return replaced

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        await self._pull(context, id)
        return await self._index.get_messages(context, id, query)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found = await self._index.find_messages(context, id, message_ids)
        if len(found) == len(message_ids):
            return found
        await self._pull(context, id)
        return await self._index.find_messages(context, id, message_ids)

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        changed = await self._index.update_message(context, id, message_id, change)
        await self._push(context, id, changed=True)
        return changed

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        removed = await self._index.remove_messages(context, id, remove)
        await self._push(context, id, removed=True)
        return removed

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        made = await self._index.create_branch(context, id, new)
        await self._push(context, id)
        return made

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        receipt = await self._index.delete_branch(context, id, branch, expected_version)
        await self._push(context, id, removed=True)
        return receipt

    async def restore(self, context: Context, restore: Restore) -> int:
        _wall(context)
        seq = await self._index.restore(context, restore)
        if restore.done:
            await self._push(context, restore.image.conversation.id)
        return seq

    # Lifecycle

    async def sweep(self, context: Context, limit: int) -> Swept:
        swept = await self._index.sweep(context, limit)
        if swept.receipt.conversations:
            async for tenant, id, state in self._states.all(context):
                of = Context(tenant, context.now)
                if await self._index.get_conversation(of, id) is None:
                    await self._bury(of, id, state)
        return swept

    async def delete_tenant(self, context: Context) -> Receipt:
        receipt = await self._index.delete_tenant(context)
        async for _, id, state in self._states.all(context, context.tenant):
            await self._bury(context, id, state)
        return receipt

    async def list_tenants(self) -> list[str]:
        return [tenant for tenant in await self._index.list_tenants() if tenant != TENANT]

    async def stats(self, tenant: str | None) -> Stats:
        found = structs.replace(await self._index.stats(tenant), backend=self.capabilities.name)
        if tenant is not None:
            return found
        ours = await self._index.stats(TENANT)
        return structs.replace(found, tenants=found.tenants - 1, records=found.records - ours.records)

    # To the API

    async def _push(self, context: Context, id: str, *, removed: bool = False, changed: bool = False) -> None:
        """Makes the API's side hold what the index holds. It was written: what fails now may be made good later."""
        of = Context(context.tenant, context.now)
        async with self._one_at_a_time(of, id):
            conversation = await self._index.get_conversation(of, id)
            if conversation is None:
                return
            with mapped(after_a_write=True):
                state = await self._states.get(of, id) or await self._begin(of, conversation)
                if self._mode == "snapshot":
                    await self._write_anew(of, conversation, state, force=changed)
                    return
                if removed:
                    await self._remove_lost(of, id, state)
                await self._add_new(of, id, state)

    async def _begin(self, context: Context, conversation: Conversation) -> State:
        state = State(await self._remote.create(_metadata(context, conversation)))
        await self._states.put(context, conversation.id, state)
        return state

    async def _add_new(self, context: Context, id: str, state: State) -> None:
        while rows := await self._index.read_rows(context, id, state.pushed, _ROWS, _BYTES):
            # One that still grows is added when it has ended, with what came after it.
            ended = next((at for at, row in enumerate(rows) if row.message.status == "in_progress"), len(rows))
            planned = await self._planned(context, id, rows[:ended], state)
            await self._remote.add(state.remote, [piece for _, piece in planned if piece is not None])
            if ended:
                state = structs.replace(state, pushed=rows[ended - 1].message.seq)
                await self._states.put(context, id, state)
            if ended < len(rows):
                return

    async def _remove_lost(self, context: Context, id: str, state: State) -> None:
        """Removes at the API what is on no branch any more."""
        kept = dict(await self._planned(context, id, await self._rows(context, id), state))
        there = [entry.key or entry.id async for entry in self._remote.entries(state.remote, None)]
        await self._remote.remove(state.remote, [key for key in there if key not in kept])

    async def _write_anew(self, context: Context, conversation: Conversation, state: State, *, force: bool) -> None:
        """Makes the API hold the active branch, exactly. What is right at its beginning stays, unless it changed."""
        query = MessageQuery(branch=conversation.branch)
        messages = (await self._index.get_messages(context, conversation.id, query)).messages
        rows = [Row(0, message) for message in messages if message.status != "in_progress"]
        there = [entry.key or entry.id async for entry in self._remote.entries(state.remote, None)]
        planned = await self._planned(context, conversation.id, rows, state)
        if force or there != [key for key, _ in planned[: len(there)]]:
            await self._remote.remove(state.remote, there)
            state, there = structs.replace(state, generation=state.generation + 1, seen=None), []
            await self._states.put(context, conversation.id, state)
            planned = await self._planned(context, conversation.id, rows, state)
        await self._remote.add(state.remote, [piece for _, piece in planned[len(there) :] if piece is not None])

    async def _rows(self, context: Context, id: str) -> list[Row]:
        found: list[Row] = []
        after = 0
        while rows := await self._index.read_rows(context, id, after, _ROWS, _BYTES):
            found += rows
            after = rows[-1].message.seq
        return found

    async def _planned(
        self, context: Context, id: str, rows: Sequence[Row], state: State
    ) -> list[tuple[str, Piece | None]]:
        """The keys of messages at the API, and what to add for them: nothing for what others have added there."""
        planned: list[tuple[str, Piece | None]] = []
        for message in await self._whole(context, [row.message for row in rows]):
            if _is_pulled(message) and state.generation == 0:
                planned.append((message.id, None))
            else:
                pieces = self._remote.pieces(message, _key(context, id, message, state))
                planned += [(piece.key, piece) for piece in pieces]
        return planned

    async def _whole(self, context: Context, messages: list[Message]) -> list[Message]:
        """The messages with their blobs put back."""
        digests = {ref.sha256 for message in messages for ref in message.blobs}
        if not digests:
            return messages
        found = await self._index.get_blobs(context, list(digests))
        return [
            structs.replace(message, content=codec.restore(message.content, message.blobs, found), blobs=())
            for message in messages
        ]

    # From the API

    async def _pull(self, context: Context, id: str) -> None:
        """Takes over what others have added at the API since the last time."""
        if not self._pulls:
            return
        of = Context(context.tenant, context.now)
        async with self._one_at_a_time(of, id):
            with mapped(after_a_write=False):
                state = await self._states.get(of, id)
                if state is None and context.user is None:
                    state = await self._adopt(of, id)
                if state is not None:
                    await self._take_over(of, id, state)

    async def _adopt(self, context: Context, id: str) -> State | None:
        """A conversation that was made at the API, by somebody who did not say that it is another tenant's."""
        if not id.startswith(self._remote.prefix) or await self._index.get_conversation(context, id) is not None:
            return None
        metadata = await self._remote.find(id)
        if metadata is None or metadata.get("hansard_tenant", DEFAULT_TENANT) != context.tenant:
            return None
        made = Conversation(id, metadata=metadata, created_at=context.now, updated_at=context.now)
        with suppress(Conflict):
            await self._index.create_conversation(context, made)
        state = State(id)
        await self._states.put(context, id, state)
        return state

    async def _take_over(self, context: Context, id: str, state: State) -> None:
        entries = await self._newer(state)
        if not entries:
            return
        drafts = tuple([_draft(entry) for entry in entries if entry.key is None])
        if drafts and await self._index.get_conversation(context, id) is not None:
            await self._index.append(context, id, Append(drafts, None))
        await self._states.put(context, id, structs.replace(state, seen=entries[-1].id))

    async def _newer(self, state: State) -> list[Entry]:
        try:
            return [entry async for entry in self._remote.entries(state.remote, state.seen)]
        except openai.BadRequestError:
            if state.seen is None:
                raise
            # The place is gone: all is looked at again, and what is stored already is not stored twice.
            return [entry async for entry in self._remote.entries(state.remote, None)]
        except openai.NotFoundError:
            return []

    @asynccontextmanager
    async def _one_at_a_time(self, context: Context, id: str) -> AsyncIterator[None]:
        place = context.tenant, id
        lock, users = self._locks.get(place) or (asyncio.Lock(), 0)
        self._locks[place] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[place]
            self._locks[place] = lock, users - 1
            if users == 1:
                del self._locks[place]


def _wall(context: Context) -> None:
    if context.tenant == TENANT:
        raise ValidationError(f"the tenant {TENANT!r} is the index's own: take another name")


def _is_pulled(message: Message) -> bool:
    return bool(message.metadata and message.metadata.get(PULLED))


def _key(context: Context, id: str, message: Message, state: State) -> str:
    """What the keys of a message are made from. An API may not take a deleted id again; a seq never comes again."""
    return codec.digest(context.tenant, id, message.id, str(message.seq), str(state.generation))


def _draft(entry: Entry) -> Draft:
    message = structs.replace(entry.message, metadata={**(entry.message.metadata or {}), PULLED: True})
    body = codec.body_of(message.content, message.format, Limits(blob_bytes=0))
    return Draft(structs.replace(message, content=body.content), body.text, body.size, given_id=True)


def _metadata(context: Context, conversation: Conversation) -> dict[str, str]:
    """What the API keeps beside the items: whose it is, and as much of the metadata as it takes."""
    fits = {
        key: value
        for key, value in conversation.metadata.items()
        if isinstance(value, str) and len(key) <= _KEY and len(value) <= _VALUE and not key.startswith("hansard_")
    }
    ours = {"hansard_tenant": context.tenant[:_VALUE], "hansard_id": conversation.id[:_VALUE]}
    return {**dict(list(fits.items())[:_PAIRS]), **ours}


def now() -> datetime:
    return datetime.now(UTC)
