"""The items of a session in their order, and how they are stored.

The session's state is held in memory; the store follows it, item by item. A write that fails is repeated with one of
the next events. Most items come at the end, and are appended. One that belongs before stored ones makes the branch be
rewritten from there, once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta

from msgspec import Struct, structs

from hansard import ids
from hansard.agents import delivery
from hansard.agents.realtime.items import RealtimeItem, bare
from hansard.errors import Conflict, HansardError, MessageNotFound, NotFound, ValidationError
from hansard.formats.openai_realtime import FORMAT, item_id
from hansard.model import Message, Participant
from hansard.store import Store
from hansard.store.core import utc_now

logger = logging.getLogger("hansard.realtime")

_PAUSE = 1.0
"""Seconds after a failure before the store is tried again."""
_KNOWN = 1000
"""Messages of the conversation that a recorder reads when it starts."""
_ATTEMPTS = 5


class RecorderSettings(Struct, frozen=True, kw_only=True):
    """How a recorder writes."""

    conversation_id: str
    user_id: str | None
    agent_id: str | None
    who: dict[str, Participant | None]
    create: bool
    """Whether a missing conversation is created."""
    fresh: bool
    """The session begins with its recorder: no stored message belongs to it."""
    interval: float
    lease: float
    timeout: float


class SessionItems:
    """Items by their ids, in the order of the session."""

    def __init__(self, store: Store, settings: RecorderSettings) -> None:
        self.items: dict[str, RealtimeItem] = {}
        self.order: list[str] = []
        """The items of this session."""
        self.failed = 0
        self.refused = 0
        self.retry = delivery.Retry(_PAUSE)
        """Behind if the last write failed."""
        self._store = store
        self._settings = settings
        self._gone: list[str] = []
        """Ids of messages to delete."""
        self._changed: set[str] = set()
        """Items whose current state is not stored."""
        self._writing = asyncio.Lock()
        self.is_loaded = False
        self._before: list[str] = []
        """What the store had when the recorder started, of this session or of earlier ones."""
        self._taken: set[str] = set()
        """The ids of the messages that the store had then."""
        self._waiting: dict[str, list[str]] = {}
        """Items that came before the one that they follow."""

    # The order

    def start_session(self) -> None:
        """Starts another session: the known items belong to earlier ones."""
        self._before, self.order = [*self._before, *self.order], []

    def add(self, item: RealtimeItem, previous: str | None) -> None:
        """Puts an item in its position: after `previous`, first for "root", and at the end if that is not known."""
        self.items[item.id] = item
        self.mark(item)
        if previous in self._before and not self._settings.fresh:
            # So they belong to this session: an earlier recorder has recorded them.
            self.order, self._before = [*self._before, *self.order], []
        if followers := [each for each in self._waiting.pop(item.id, ()) if each in self.order]:
            self.order.insert(self.order.index(followers[0]), item.id)
        elif previous == "root":
            self.order.insert(0, item.id)
        elif previous in self.order:
            self.order.insert(self.order.index(previous) + 1, item.id)
        else:
            self.order.append(item.id)
            if previous is not None:
                self._waiting.setdefault(previous, []).append(item.id)

    def mark(self, item: RealtimeItem, *, urgent: bool = True) -> None:
        """Notes that the item has changed. If it is not urgent, it may wait for its interval."""
        item.is_urgent = item.is_urgent or urgent
        self._changed.add(item.id)

    def remove(self, item: RealtimeItem) -> None:
        """Removes an item that was deleted from the session, with its message."""
        self.items.pop(item.id, None)
        self._changed.discard(item.id)
        self.order = [id for id in self.order if id != item.id]
        self._before = [id for id in self._before if id != item.id]
        item.is_deleted = True
        if item.stored is not None or item.is_tried:
            self._gone.append(item.message_id)

    # The store

    async def load(self) -> None:
        """Loads what an earlier recorder stored of the session."""
        if self.is_loaded:
            return
        known = await self._store.get_messages(self._settings.conversation_id, last=_KNOWN)
        self.is_loaded = True
        for message in known:
            id = message.id if message.format == FORMAT else item_id(message.id)
            self._taken.add(message.id)
            if id not in self.items:
                if not self._settings.fresh:
                    self._add_known(id, message)
                self._before.append(id)

    def restored(self, id: str, message: Message) -> None:
        """Notes that a stored message was sent to the session as this item."""
        if id not in self.items:
            self._add_known(id, message)
        self.items[id].is_ours = False
        self._before = [each for each in self._before if each != id]
        self.order.append(id)

    def is_earlier(self, id: str) -> bool:
        return id in self._before

    def _add_known(self, id: str, message: Message) -> None:
        is_ours = message.format == FORMAT and id == message.id and isinstance(message.content, dict)
        metadata = {key: value for key, value in (message.metadata or {}).items() if key != "lease_until"}
        native = bare(message.content, keep_audio=True) if isinstance(message.content, dict) else {}
        self.items[id] = RealtimeItem(
            id=id,
            message_id=message.id,
            native=native,
            status=message.status,
            is_done=message.status != "in_progress",
            is_ours=is_ours,
            usage=message.usage,
            metadata=metadata,
            stored=message,
        )

    async def write(self, *, force: bool = False) -> bool:
        """Brings the store up to date. Returns whether it is; never fails."""
        if not self.retry.is_due and not force:
            return False
        try:
            # Two concurrent events must not both find the same item missing.
            async with self._writing:
                async with asyncio.timeout(self._settings.timeout):
                    await self.load()
                for id in self._in_order():
                    # It may have been deleted while earlier ones were written.
                    if (item := self.items.get(id)) is not None:
                        await self._write_item(item, force=force)
                await self._delete()
        except Exception as error:
            self.failed += 1
            self.retry.failed()
            why = delivery.reason(error)
            logger.warning("conversation %r is not up to date: %s", self._settings.conversation_id, why)
            return False
        self.retry.succeeded()
        return True

    def _in_order(self) -> list[str]:
        """Returns the changed items in the order of the session; usually it is one."""
        changed = [id for id in self._changed if id in self.items]
        if len(changed) < 2:
            return changed
        places = {id: place for place, id in enumerate((*self._before, *self.order))}
        return sorted(changed, key=lambda id: places.get(id, len(places)))

    async def _write_item(self, item: RealtimeItem, *, force: bool) -> None:
        if item.is_refused or not item.is_ours:
            self._changed.discard(item.id)
            return
        waits = not item.is_urgent and time.monotonic() - item.written_at < self._settings.interval
        if item.stored is not None and waits and not force:
            return
        if not item.is_tried and item.stored is None:
            await self._name(item)
            if item.is_deleted:
                return
        lease = utc_now() + timedelta(seconds=self._settings.lease)
        message = item.message(self._settings.who, lease)
        # Before the write, not after it: changes made meanwhile have to be written again.
        self._changed.discard(item.id)
        item.is_urgent = False
        if item.stored is not None and not _differs(message, item.stored):
            return
        try:
            async with asyncio.timeout(self._settings.timeout):
                item.stored = await self._put(item, message)
        except HansardError as error:
            if not delivery.is_refusal(error):
                self.mark(item)
                raise
            self.refused += 1
            item.is_refused = True
            logger.error("item %r of %r is refused: %s", item.id, self._settings.conversation_id, error)
        except BaseException:
            self.mark(item)
            raise
        item.written_at = time.monotonic()

    async def _name(self, item: RealtimeItem) -> None:
        """Chooses another id if it is that of an earlier message: some endpoints count from one in each session."""
        if not self._settings.fresh:
            return
        is_taken = item.message_id in self._taken
        if not is_taken and len(self._taken) >= _KNOWN:
            # There may be more than was loaded.
            async with asyncio.timeout(self._settings.timeout):
                is_taken = await self._is_stored(item.message_id)
        if is_taken:
            item.message_id = ids.new_id("item_")

    async def _is_stored(self, id: str) -> bool:
        try:
            await self._store.get_message(self._settings.conversation_id, id, blobs="refs")
        except (NotFound, ValidationError):
            return False  # an invalid id is refused when it is written
        return True

    async def _put(self, item: RealtimeItem, message: Message) -> Message:
        if item.stored is None:
            item.is_tried = True
            later = self.order[self.order.index(item.id) + 1 :]
            following = next((each for id in later if (each := self.items[id]).stored is not None), None)
            stored = await (self._append(message) if following is None else self._insert(message, following))
            if not _differs(message, stored):
                return stored
            # It was stored by an attempt whose reply was lost.
        return await delivery.complete(self._store, self._settings.conversation_id, message)

    async def _append(self, message: Message) -> Message:
        settings = self._settings
        appended = await self._store.append(
            settings.conversation_id,
            message,
            user_id=settings.user_id,
            agent_id=settings.agent_id,
            create=settings.create,
        )
        return appended.messages[0]

    async def _insert(self, message: Message, following: RealtimeItem) -> Message:
        """Stores a message before another by rewriting the branch from there, unless others write meanwhile."""
        here = self._settings.conversation_id
        for attempt in range(_ATTEMPTS):
            conversation = await self._store.get_conversation(here)
            if conversation is None:
                break
            # Read after the version: any later write changes the version.
            messages = [each async for each in self._store.iter_messages(here)]
            if known := next((each for each in messages if each.id == message.id), None):
                return known
            place = _place(messages, following)
            wanted = [*messages[:place], message, *messages[place:]]
            try:
                written = await self._store.replace_messages(
                    here, wanted, expected_version=conversation.version, revive=True
                )
            except Conflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            return next(each for each in written.messages if each.id == message.id)
        raise MessageNotFound(f"conversation {here!r} was deleted during its session")

    async def _delete(self) -> None:
        while gone := tuple(self._gone):
            async with asyncio.timeout(self._settings.timeout):
                await self._store.delete_messages(self._settings.conversation_id, gone)
            # More may have been added meanwhile.
            del self._gone[: len(gone)]


def _place(messages: list[Message], item: RealtimeItem) -> int:
    return next((at for at, each in enumerate(messages) if each.id == item.message_id), len(messages))


def _differs(one: Message, stored: Message) -> bool:
    """Whether there is something to write. A lease alone is not."""
    same = structs.replace(stored, metadata=_unleased(stored))
    mine = structs.replace(one, metadata=_unleased(one))
    return any(
        getattr(mine, name) != getattr(same, name) for name in ("content", "status", "usage", "metadata", "role")
    )


def _unleased(message: Message) -> dict[str, object] | None:
    return {key: value for key, value in (message.metadata or {}).items() if key != "lease_until"} or None
