"""From the API: takes over what others have added, changed or deleted there.

New items are taken over before a read. The messages of a read are then verified at the API, near their expected
position: so the cost follows the number of messages read, not the history. A message that is missing there was deleted
by another client, and is deleted here too; never on a guess: the state must be unchanged, and each is requested by its
id if the API supports that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import openai
from msgspec import structs

from hansard import codec
from hansard.backends.openai.errors import mapped
from hansard.backends.openai.mirror import OURS, PULLED, MirrorPair, SeenEntries, is_pulled
from hansard.backends.openai.mirror_state import MirrorState
from hansard.backends.openai.remote import RemoteEntry
from hansard.contract.types import Append, Context, ConversationChange, Draft, MessageChange, MessageQuery, Remove
from hansard.errors import Conflict, ConversationNotFound, MessageNotFound, NotFound
from hansard.limits import Limits
from hansard.model import DEFAULT_TENANT, Conversation, Message


class Puller:
    def __init__(self, mirror: MirrorPair) -> None:
        self._mirror = mirror

    # New items

    async def pull(self, context: Context, id: str, *, metadata: bool = False) -> None:
        """Takes over the items that others have added since the last time; with `metadata`, also their metadata."""
        if not self._mirror.pulls:
            return
        of = Context(context.tenant, context.now)
        async with self._mirror.one_at_a_time(of, id):
            with mapped(index_written=False):
                state = await self._mirror.states.get(of, id)
                if state is None and context.user is None:
                    state = await self._adopt(of, id)
                if state is None or state.is_dying:
                    return
                try:
                    state = await self._take_over(of, id, state, await self._newer(state))
                    if metadata:
                        await self._take_metadata(of, id, state)
                except openai.NotFoundError:
                    await self._drop_if_gone(of, id, state)

    async def _adopt(self, context: Context, id: str) -> MirrorState | None:
        """Takes over a conversation that was created at the API, unless its metadata names another tenant."""
        mirror = self._mirror
        if not id.startswith(mirror.remote.prefix) or await mirror.index.get_conversation(context, id) is not None:
            return None
        metadata = await mirror.remote.find(id)
        if metadata is None or metadata.get(f"{OURS}tenant", DEFAULT_TENANT) != context.tenant:
            return None
        if f"{OURS}index" in metadata:
            return None
        await mirror.ensure_anchor(context)
        theirs = _user_metadata(metadata)
        made = Conversation(id, metadata=dict(theirs), created_at=context.now, updated_at=context.now)
        with suppress(Conflict):
            await mirror.index.create_conversation(context, made)
        stored = await mirror.index.get_conversation(context, id)
        if stored is not None:
            await mirror.states.create(context, id, MirrorState(id, stored.created_at.isoformat(), metadata=metadata))
        return await mirror.states.get(context, id)

    async def _newer(self, state: MirrorState) -> list[RemoteEntry]:
        entries = self._mirror.remote.entries
        try:
            return [entry async for entry in entries(state.remote, state.seen)]
        except (openai.BadRequestError, openai.NotFoundError):
            if state.seen is None:
                raise
            # The position is gone: all items are read again; those that are stored already are not stored twice.
            return [entry async for entry in entries(state.remote, None)]

    async def _take_over(
        self, context: Context, id: str, state: MirrorState, entries: Sequence[RemoteEntry]
    ) -> MirrorState:
        if not entries:
            return state
        index = self._mirror.index
        drafts = tuple([_draft(entry) for entry in entries if entry.name is None])
        if drafts and await index.get_conversation(context, id) is not None:
            await index.append(context, id, Append(drafts, None))
        return await self._mirror.states.change(context, id, seen=entries[-1].id) or state

    async def _take_metadata(self, context: Context, id: str, state: MirrorState) -> None:
        found = await self._mirror.remote.find(state.remote)
        if found is None:
            await self._drop_if_gone(context, id, state)
            return
        there, known = _user_metadata(found), _user_metadata(state.metadata or {})
        if state.metadata is None or there == known:
            return
        change: dict[str, Any] = {key: None for key in known if key not in there}
        change |= {key: value for key, value in there.items() if known.get(key) != value}
        with suppress(ConversationNotFound):
            await self._mirror.index.update_conversation(context, id, ConversationChange(metadata=change))
            await self._mirror.states.change(context, id, metadata=found)

    async def _drop_if_gone(self, context: Context, id: str, state: MirrorState) -> None:
        """Removes the conversation if it was deleted at the API."""
        if await self._mirror.is_gone(context, state):
            await self._mirror.index.delete_conversation(context, id)
            await self._mirror.states.delete(context, id)

    # Deleted and changed items

    async def verify(self, context: Context, id: str, messages: Sequence[Message]) -> bool:
        """Verifies messages that were read. Returns True if any was deleted or changed: then they are read again."""
        if not self._mirror.pulls or not messages:
            return False
        of = Context(context.tenant, context.now)
        async with self._mirror.one_at_a_time(of, id):
            with mapped(index_written=False):
                state = await self._mirror.states.get(of, id)
                if state is None or state.is_dying:
                    return False
                expected = await self._expected(of, id, messages, state)
                return bool(expected) and await self._verify(of, id, expected, state)

    async def verify_all(self, context: Context, id: str) -> None:
        """Verifies all messages, before a conversation is read completely."""
        async for rows in self._mirror.rows(Context(context.tenant, context.now), id):
            await self.verify(context, id, [row.message for row in rows])

    async def take_over_all(self, context: Context, id: str, state: MirrorState, seen: SeenEntries) -> MirrorState:
        """Takes over everything that was read, before the API is rewritten."""
        if not self._mirror.pulls:
            return state
        after = await self._take_over(context, id, state, unseen(seen.entries, state.seen))
        try:
            query = MessageQuery(branch=state.branch)
            messages = (await self._mirror.index.get_messages(context, id, query)).messages
        except NotFound:
            return after
        # By the state before the API was listed: another process may have removed and added since.
        expected = await self._expected(context, id, messages, state)
        await self._apply(context, id, expected, state, seen)
        return after

    async def _expected(
        self, context: Context, id: str, messages: Sequence[Message], state: MirrorState
    ) -> list[Message]:
        """Returns the messages that must be at the API."""
        found = [
            message
            for message in messages
            if message.status != "in_progress"
            and (message.seq <= state.pushed or (is_pulled(message) and not state.is_dirty))
        ]
        if self._mirror.mode == "delta":
            return found
        return [message for message in found if await self._is_on(context, id, state.branch, message)]

    async def _is_on(self, context: Context, id: str, branch: str | None, message: Message) -> bool:
        query = MessageQuery(branch=branch, above=(0, message.seq - 1), below=(0, message.seq + 1), limit=1)
        try:
            return bool((await self._mirror.index.get_messages(context, id, query)).messages)
        except NotFound:
            return False

    async def _verify(self, context: Context, id: str, expected: list[Message], state: MirrorState) -> bool:
        seen = SeenEntries()
        try:
            async for entry in self._around(context, id, expected, state):
                seen.add(entry)
            if self._missing_messages(context, id, expected, state, seen):
                # At another position, or missing: all items are read.
                seen = SeenEntries()
                async for entry in self._mirror.remote.entries(state.remote, None):
                    seen.add(entry)
        except openai.NotFoundError:
            await self._drop_if_gone(context, id, state)
            return True
        return await self._apply(context, id, expected, state, seen)

    async def _around(
        self, context: Context, id: str, expected: list[Message], state: MirrorState
    ) -> AsyncIterator[RemoteEntry]:
        """Yields the part of the API's list where the messages must be, as far as that is known."""
        remote, seqs = self._mirror.remote, [message.seq for message in expected]
        if not remote.takes_ids:
            async for entry in remote.newest(state.remote):
                if entry.name is not None and entry.name.seq < min(seqs):
                    return
                yield entry
            return
        first = await self._first(context, id, expected, state)
        # Request it by its id: an API may list items after one that is gone.
        if first is None or not await remote.has(state.remote, first.id):
            return
        yield first
        with suppress(openai.BadRequestError):  # it was deleted just now
            async for entry in remote.entries(state.remote, first.id):
                if entry.name is not None and entry.name.seq > max(seqs):
                    return
                yield entry

    async def _first(
        self, context: Context, id: str, expected: list[Message], state: MirrorState
    ) -> RemoteEntry | None:
        """Returns the item to list from, if it exists."""
        message = min(expected, key=lambda each: each.seq)
        if is_pulled(message):
            return RemoteEntry(message.id, None, message)
        pieces = await self._mirror.pieces(context, id, [message], state)
        return RemoteEntry(pieces[0].key, pieces[0].name, message) if pieces else None

    def _missing_messages(
        self, context: Context, id: str, expected: list[Message], state: MirrorState, seen: SeenEntries
    ) -> list[Message]:
        mirror = self._mirror
        return [
            message
            for message in expected
            if not seen.has(message, mirror.stem(context, id, message, state))
            and (is_pulled(message) or self._was_added(message))
        ]

    def _was_added(self, message: Message) -> bool:
        """Threads cannot represent everything: before an edit, a message may have had nothing to add."""
        if self._mirror.remote.takes_ids:
            return True
        return message.updated_at is None and bool(self._mirror.remote.pieces(message, ""))

    async def _apply(
        self, context: Context, id: str, expected: list[Message], state: MirrorState, seen: SeenEntries
    ) -> bool:
        """Applies the changes at the API to the index."""
        missing = self._missing_messages(context, id, expected, state, seen)
        gone = [message for message in missing if not await self._is_there(context, id, message, state)]
        changed = [(message, entry) for message in expected if (entry := _changed(message, seen)) is not None]
        if not gone and not changed:
            return False
        if not state.is_unchanged_since(await self._mirror.states.get(context, id)):
            return True  # another process is working on it, and made these changes
        for message, entry in changed:
            await self._change(context, id, message, entry)
        if gone:
            stems = {self._mirror.stem(context, id, message, state) for message in gone}
            await self._mirror.index.remove_messages(context, id, Remove("ids", tuple(each.id for each in gone)))
            rest = [entry.id for entry in seen.entries if entry.name is not None and entry.name.of in stems]
            await self._mirror.remote.remove(state.remote, rest)
        return True

    async def _is_there(self, context: Context, id: str, message: Message, state: MirrorState) -> bool:
        """Requests the item by its id: a list may be outdated."""
        remote = self._mirror.remote
        if is_pulled(message):
            return await remote.has(state.remote, message.id)
        if not remote.takes_ids or message.updated_at is not None:
            return False
        pieces = await self._mirror.pieces(context, id, [message], state)
        return all([await remote.has(state.remote, piece.key) for piece in pieces])

    async def _change(self, context: Context, id: str, message: Message, entry: RemoteEntry) -> None:
        draft = _draft(entry)
        change = MessageChange(draft=draft, metadata=draft.message.metadata)
        with suppress(MessageNotFound, ConversationNotFound):
            await self._mirror.index.update_message(context, id, message.id, change)


def unseen(entries: Sequence[RemoteEntry], seen: str | None) -> Sequence[RemoteEntry]:
    """Returns the items that were not read yet: all if the position is gone."""
    return entries[count_seen(entries, seen) :]


def count_seen(entries: Sequence[RemoteEntry], seen: str | None) -> int:
    """Returns how many of the items were read already: none if the position is gone."""
    return next((at + 1 for at, entry in enumerate(entries) if entry.id == seen), 0)


def _changed(message: Message, seen: SeenEntries) -> RemoteEntry | None:
    """Returns the item of another client if it differs from the message that was taken over."""
    entry = seen.other(message.id)
    if entry is None or entry.message is message or not is_pulled(message):
        return None
    return entry if (message.metadata or {})[PULLED] != _hash(entry.message) else None


def _draft(entry: RemoteEntry) -> Draft:
    metadata = {**(entry.message.metadata or {}), PULLED: _hash(entry.message)}
    message = structs.replace(entry.message, metadata=metadata)
    body = codec.body_of(message.content, message.format, Limits(blob_bytes=0))
    return Draft(structs.replace(message, content=body.content), body.text, body.size, given_id=True)


def _hash(message: Message) -> str:
    return codec.sha256_of(msgspec.json.encode([message.role, message.content, message.metadata]))[:16]


def _user_metadata(metadata: dict[str, Any]) -> dict[str, str]:
    """Returns the metadata that people have set, without the mirror's own."""
    return {key: value for key, value in metadata.items() if isinstance(value, str) and not key.startswith(OURS)}
