"""To the API: makes it hold what the index holds.

The index has decided and stored; the next write completes what fails here. In the mode `delta` every message is added
once, from where the last addition ended; in `snapshot` the API holds exactly the active branch.
"""

from __future__ import annotations

import openai
from msgspec import structs

from hansard.backends.openai.errors import mapped
from hansard.backends.openai.mirror import (
    OURS,
    PAIRS,
    MirrorPair,
    SeenEntries,
    ids_of,
    initial_metadata,
    is_growing,
    is_pulled,
    storable_metadata,
)
from hansard.backends.openai.mirror_state import MirrorState
from hansard.backends.openai.remote import RemotePart
from hansard.backends.openai.sync_from_api import Puller, count_seen
from hansard.cache import Cache
from hansard.contract.types import Context, MessageQuery, Remove
from hansard.errors import NotFound
from hansard.model import Conversation, Message

_MOST_CLEAN = 10_000


class Pusher:
    def __init__(self, mirror: MirrorPair, puller: Puller) -> None:
        self._mirror = mirror
        self._puller = puller
        self._clean: Cache[tuple[str, str], int] = Cache(_MOST_CLEAN)
        """How far this process itself has added without failures since: later items are not there."""

    async def push(self, context: Context, id: str, *, removed: tuple[Message, ...] | None = None) -> None:
        """Updates the API after a write. `removed` are the removed messages, if known."""
        of = Context(context.tenant, context.now)
        async with self._mirror.one_at_a_time(of, id):
            conversation = await self._mirror.index.get_conversation(of, id)
            if conversation is None:
                return
            with mapped(index_written=True):
                await self._push(of, conversation, removed)

    async def _push(self, context: Context, conversation: Conversation, removed: tuple[Message, ...] | None) -> None:
        state = await self._state(context, conversation)
        clean = self._clean.pop((context.tenant, conversation.id))
        try:
            await self._push_to(context, conversation, state, removed, is_clean=clean == state.pushed)
        except openai.NotFoundError:
            if not await self._mirror.is_gone(context, state):
                raise
            if await self._mirror.index.get_conversation(context, conversation.id) is None:
                return  # it was deleted here meanwhile
            state = await self._recreate(context, conversation, state)
            await self._push_to(context, conversation, state, None, is_clean=True)

    async def _push_to(
        self,
        context: Context,
        conversation: Conversation,
        state: MirrorState,
        removed: tuple[Message, ...] | None,
        *,
        is_clean: bool,
    ) -> None:
        state = await self._push_metadata(context, conversation, state)
        if self._mirror.mode == "snapshot":
            await self._rewrite(context, conversation, state)
            return
        if state.is_dirty:
            await self._remove_lost(context, conversation.id, state, removed)
        await self._add_new(context, conversation.id, state, is_clean=is_clean)

    async def mark_dirty(self, context: Context, id: str) -> None:
        """Marks the state before a removal or change here, so that an interruption is detected and repaired."""
        of = Context(context.tenant, context.now)
        async with self._mirror.one_at_a_time(of, id):
            await self._mirror.states.change(of, id, is_dirty=True)

    # Conversations

    async def _state(self, context: Context, conversation: Conversation) -> MirrorState:
        mirror = self._mirror
        state = await mirror.states.get(context, conversation.id)
        born = conversation.created_at.isoformat()
        if state is not None and (state.is_dying or state.born != born):
            # It was deleted or expired, and was created again before its other side was deleted.
            await self.delete_remote(context, conversation.id, state)
            state = None
        return state or await self._create(context, conversation)

    async def _create(self, context: Context, conversation: Conversation) -> MirrorState:
        mirror = self._mirror
        await mirror.ensure_anchor(context)
        metadata = initial_metadata(context, conversation)
        born = conversation.created_at.isoformat()
        state = MirrorState(await mirror.remote.create(metadata), born=born, metadata=metadata)
        if await mirror.states.create(context, conversation.id, state):
            self._clean.put((context.tenant, conversation.id), 0)
            return state
        await mirror.remote.delete(state.remote)
        found = await mirror.states.get(context, conversation.id)
        return found or await self._create(context, conversation)

    async def delete_remote(self, context: Context, id: str, state: MirrorState) -> None:
        """Deletes the conversation at the API; then the state."""
        await self._mirror.remote.delete(state.remote)
        await self._mirror.states.delete(context, id)

    async def _recreate(self, context: Context, conversation: Conversation, state: MirrorState) -> MirrorState:
        """Handles a deletion at the API, followed by a write here: the conversation is created there again."""
        mirror, gone = self._mirror, []
        async for rows in mirror.rows(context, conversation.id):
            messages = [row.message for row in rows]
            gone += [each.id for each in messages if each.seq <= state.pushed or is_pulled(each)]
        if gone:
            await mirror.index.remove_messages(context, conversation.id, Remove("ids", tuple(gone)))
        await mirror.states.delete(context, conversation.id)
        return await self._create(context, conversation)

    async def _push_metadata(self, context: Context, conversation: Conversation, state: MirrorState) -> MirrorState:
        """Changes at the API only the metadata that changed here: others may have set theirs meanwhile."""
        mirror = self._mirror
        known, fits = state.metadata or {}, storable_metadata(conversation)
        wanted = {key: value for at, (key, value) in enumerate(fits.items()) if key in known or at < PAIRS - 2}
        changed = {key: value for key, value in wanted.items() if known.get(key) != value}
        removed = [key for key in known if key not in fits and not key.startswith(OURS)]
        if not changed and not removed:
            return state
        there = await mirror.remote.find(state.remote)
        merged = {key: str(value) for key, value in (there or {}).items() if key not in removed}
        for key, value in changed.items():
            if key in merged or len(merged) < PAIRS:
                merged[key] = value
        if merged != there:
            await mirror.remote.update(state.remote, merged)
        # Metadata that others have set is left for the next read to notice.
        kept = {key: value for key, value in merged.items() if key in known or key in changed}
        return await mirror.states.change(context, conversation.id, metadata=kept) or state

    # Delta

    async def _add_new(self, context: Context, id: str, state: MirrorState, *, is_clean: bool) -> None:
        mirror = self._mirror
        there: SeenEntries | None = None
        async for rows in mirror.rows(context, id, state.pushed):
            # A message in progress is added when it has ended, with those after it.
            ended = next((at for at, row in enumerate(rows) if is_growing(row.message, context.now)), len(rows))
            new = [row.message for row in rows[:ended] if not is_pulled(row.message)]
            pieces = await mirror.pieces(context, id, new, state)
            if pieces and not is_clean and not mirror.remote.takes_ids:
                there = there or await self._added_behind(state)
                names = {entry.name for entry in there.entries}
                pieces = [piece for piece in pieces if piece.name not in names]
            await mirror.remote.add(state.remote, pieces)
            if ended:
                state = await mirror.states.change(context, id, pushed=rows[ended - 1].message.seq) or state
            if ended < len(rows):
                break
        self._clean.put((context.tenant, id), state.pushed)

    async def _added_behind(self, state: MirrorState) -> SeenEntries:
        """Returns our items that an interrupted attempt has added."""
        seen = SeenEntries()
        async for entry in self._mirror.remote.newest(state.remote):
            if entry.name is not None:
                if entry.name.seq <= state.pushed:
                    break
                seen.add(entry)
        return seen

    async def _remove_lost(
        self, context: Context, id: str, state: MirrorState, removed: tuple[Message, ...] | None
    ) -> None:
        """Removes at the API the messages that are on no branch any more."""
        mirror = self._mirror
        if removed is not None and mirror.remote.takes_ids and all(map(_is_as_added, removed)):
            # Messages that another branch shares were removed from one branch only, and stay.
            kept = {each.id for each in await mirror.index.find_messages(context, id, [each.id for each in removed])}
            lost = [each for each in removed if each.id not in kept]
            pieces = await mirror.pieces(context, id, [each for each in lost if not is_pulled(each)], state)
            ours = [piece.key for piece in pieces]
            await mirror.remote.remove(state.remote, [*ours, *(each.id for each in lost if is_pulled(each))])
        else:
            await self._compare(context, id, state, removed or ())
        await mirror.states.change(context, id, is_dirty=False)

    async def _compare(self, context: Context, id: str, state: MirrorState, removed: tuple[Message, ...]) -> None:
        mirror = self._mirror
        # Read the API first: messages added meanwhile were here before they were there.
        there = [entry async for entry in mirror.remote.entries(state.remote, None)]
        stems: set[tuple[int, str]] = set()
        kept: set[str] = set()
        async for rows in mirror.rows(context, id):
            stems.update(mirror.stem(context, id, row.message, state) for row in rows)
            kept.update(row.message.id for row in rows if is_pulled(row.message))
        # Of other clients' items, remove only those that were here once: newer ones are theirs.
        was_here = {entry.id for entry in there[: count_seen(there, state.seen)]} | {each.id for each in removed}
        lost = [
            entry
            for entry in there
            if (entry.name.of not in stems if entry.name is not None else entry.id in was_here - kept)
        ]
        await mirror.remote.remove(state.remote, ids_of(lost))

    # Snapshot

    async def _rewrite(self, context: Context, conversation: Conversation, state: MirrorState) -> None:
        """Makes the API hold exactly the active branch. A correct beginning stays, unless it changed."""
        mirror, id = self._mirror, conversation.id
        seen = SeenEntries()
        async for entry in mirror.remote.entries(state.remote, None):
            seen.add(entry)
        state = await self._puller.take_over_all(context, id, state, seen)
        messages = await self._read(context, id, conversation.branch)
        planned = await self._planned(context, id, messages, state, seen)
        there = ids_of(seen.entries)
        if state.is_dirty or there != [at for at, _ in planned[: len(there)]]:
            # Before anything is removed: another process must not take it for deletions by others.
            state = await mirror.states.rewrite(context, id, _next_generation) or _next_generation(state)
            await mirror.remote.remove(state.remote, there)
            planned, there = await self._planned(context, id, messages, state, SeenEntries()), []
        await mirror.remote.add(state.remote, [piece for _, piece in planned[len(there) :] if piece is not None])
        pushed = messages[-1].seq if messages else 0

        def done(now: MirrorState) -> MirrorState:
            # If another process has rewritten it meanwhile, our items may be gone: the next write repairs that.
            if now.generation != state.generation:
                return structs.replace(now, is_dirty=True)
            return structs.replace(now, pushed=pushed, branch=conversation.branch, is_dirty=False)

        await mirror.states.rewrite(context, id, done)

    async def _planned(
        self, context: Context, id: str, messages: list[Message], state: MirrorState, seen: SeenEntries
    ) -> list[tuple[str | None, RemotePart | None]]:
        """Returns the wanted items, in order: the existing item, and the one to add if there is none."""
        by_name = {entry.name: entry.id for entry in seen.entries if entry.name is not None}
        planned: list[tuple[str | None, RemotePart | None]] = []
        for message in messages:
            if is_pulled(message) and seen.other(message.id) is not None:
                planned.append((message.id, None))
            else:
                pieces = await self._mirror.pieces(context, id, [message], state)
                planned += [(by_name.get(piece.name), piece) for piece in pieces]
        return planned

    async def _read(self, context: Context, id: str, branch: str) -> list[Message]:
        """Returns the branch up to the first message in progress."""
        try:
            found = (await self._mirror.index.get_messages(context, id, MessageQuery(branch=branch))).messages
        except NotFound:
            return []
        ended = next((at for at, each in enumerate(found) if is_growing(each, context.now)), len(found))
        return found[:ended]


def _is_as_added(message: Message) -> bool:
    """Returns whether its keys can be derived from its present content. The bytes of its blobs may be gone."""
    return message.updated_at is None and not message.blobs


def _next_generation(state: MirrorState) -> MirrorState:
    return structs.replace(state, generation=state.generation + 1, pushed=0, seen=None, is_dirty=True)
