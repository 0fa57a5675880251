"""One tenant: its conversations, records, blobs, log and index."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

from hansard import rules
from hansard.backends.files import disk, names
from hansard.backends.files.blobs import BlobFiles
from hansard.backends.files.catalog import Catalog
from hansard.backends.files.disk import Disk
from hansard.backends.files.entries import JournalEntry
from hansard.backends.files.index import IndexFailure, TenantIndex
from hansard.backends.files.journals import ConversationMoving, Journals
from hansard.backends.files.layout import ENDING, Layout, files_in
from hansard.backends.files.locks import Locks
from hansard.backends.files.records import RecordJournal, owner_at
from hansard.backends.files.tenant_log import TenantLog
from hansard.backends.files.writer import ConversationWriter
from hansard.contract.types import Context
from hansard.errors import Corrupt, FormatMismatch, TimedOut, Unavailable
from hansard.model import Receipt

_MOST_RECORDS = 200_000
_MOST_TENANTS = 64
"""Tenants whose indexes stay open."""

V = TypeVar("V")


class Lru(Generic[V]):
    """A cache bounded by weight: the least recently used values are dropped. The last one always stays."""

    def __init__(self, max_weight: int, default_weight: int, on_drop: Callable[[V], None] | None = None) -> None:
        self._max_weight = max_weight
        self._default_weight = default_weight
        self._on_drop = on_drop
        self._values: OrderedDict[Hashable, V] = OrderedDict()
        self._weights: dict[Hashable, int] = {}
        self._total = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            value = self._values[key] = make()
        self.set_weight(key, self._default_weight)
        return value

    def set_weight(self, key: Hashable, weight: int) -> None:
        with self._lock:
            if key in self._values:
                self._total += weight - self._weights.get(key, 0)
                self._weights[key] = weight
            while self._total > self._max_weight and len(self._values) > 1:
                self._drop(next(iter(self._values)))

    def discard(self, key: Hashable) -> None:
        with self._lock:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        value = self._values.pop(key, None)
        if value is not None and self._on_drop is not None:
            self._on_drop(value)
        self._total -= self._weights.pop(key, 0)

    def values(self) -> list[V]:
        with self._lock:
            return list(self._values.values())


class SharedResources:
    """Shared by all tenants of a store: disk, locks and caches."""

    def __init__(self, root: Path, *, durable: bool, snapshots: bool, timeout: float) -> None:
        self.root = root
        self.disk = Disk(durable=durable)
        self.snapshots = snapshots
        self.locks = Locks(timeout)
        self.timeout = timeout
        self.spaces: Lru[RecordJournal] = Lru(_MOST_RECORDS, 50)
        self.tenants: Lru[Tenant] = Lru(_MOST_TENANTS, 1, Tenant.close)

    def tenant(self, name: str) -> Tenant:
        return self.tenants.get(name, lambda: Tenant(name, self))


class Tenant:
    def __init__(self, id: str, common: SharedResources) -> None:
        self.id = id
        self.layout = Layout(common.root, id)
        self.disk = common.disk
        self.index = TenantIndex(self.layout, common.disk, common.locks, common.timeout)
        self.journals = Journals(self.layout, common.disk, common.locks, self.index)
        self.log = TenantLog(self.layout, common.disk, common.locks)
        self.blobs = BlobFiles(self.layout, common.disk, common.locks)
        self._catalog = Catalog(self.journals)
        self._common = common
        self._lock_path, self._lock_name = self.layout.lock("_home"), f"tenant {id!r}"
        self._thread = threading.local()

    # Locks

    @contextlib.contextmanager
    def lock_shared(self, *, create: bool = False) -> Iterator[bool]:
        """Holds the tenant's lock shared, so that it is not deleted. Without `create`, yields False if it does not
        exist.
        """
        if getattr(self._thread, "is_referenced", False):
            yield True
            return
        with contextlib.ExitStack() as stack:
            exists = self._thread.is_held = self._enter(stack, shared=True, create=create)
            try:
                yield exists
            finally:
                self._thread.is_held = False

    @contextlib.contextmanager
    def lock_exclusive(self) -> Iterator[bool]:
        """Holds the tenant's lock exclusively, so that no other process writes. Yields False if it does not exist."""
        with contextlib.ExitStack() as stack:
            yield self._enter(stack, shared=False, create=False)

    def _enter(self, stack: contextlib.ExitStack, *, shared: bool, create: bool) -> bool:
        while True:
            with contextlib.suppress(FileNotFoundError):
                stack.enter_context(self._common.locks.hold(self._lock_path, self._lock_name, shared=shared))
                return True
            if create:
                self.log.create_if_missing()
            elif not self._has_locks():
                return False

    def _has_locks(self) -> bool:
        """Creates the folder of locks, which a copy of a store may lack. False if the tenant does not exist."""
        try:
            self.disk.make_folder(self.layout.locks, within=self.layout.home)
        except FileNotFoundError:
            return False
        return True

    # Conversations

    @contextlib.contextmanager
    def writing(self, id: str, *, create: bool = False) -> Iterator[ConversationWriter | None]:
        """Holds the lock of a conversation. Without `create`, yields None if there is nothing to lock."""
        with contextlib.ExitStack() as stack:
            exists = stack.enter_context(self.lock_shared(create=create))
            if not exists or not self._lock(stack, id, create=create):
                yield None
                return
            writer = ConversationWriter(self.journals, self.blobs, id, snapshots=self._common.snapshots)
            try:
                if writer.state.deleted_at is not None:
                    self._clean(writer, writer.state.deleted_at)
                yield writer
            finally:
                writer.close()

    def _lock(self, stack: contextlib.ExitStack, id: str, *, create: bool) -> bool:
        """Takes the lock. False if there is nothing to lock."""
        name = names.escape(id)
        what = f"conversation {id!r}"
        while True:
            flags = disk.CREATE if create else disk.UPDATE
            with contextlib.suppress(FileNotFoundError):
                stack.enter_context(self._common.locks.hold(self.layout.lock(name), what, flags=flags))
                return True
            if not create and self.journals.locate(name) is None:
                return False
            create = True
            self.log.create_if_missing()

    def conversation_exists(self, context: Context) -> _ConversationExists:
        return _ConversationExists(self.journals, context)

    # Tenant data

    def catalog(self, *, wait: bool = True, again: bool = False) -> Catalog:
        """Returns the catalog, after bringing the index up to date."""
        self._catalog.sync(wait=wait, again=again)
        return self._catalog

    def records(self, owner: str) -> RecordJournal:
        path = self.layout.space(owner)
        space = self._common.spaces.get(path, lambda: RecordJournal(self.layout, owner, self.disk, self._common.locks))
        self._common.spaces.set_weight(path, space.weight)
        return space

    def spaces(self) -> list[RecordJournal]:
        """Returns all spaces that have a journal."""
        owners = [owner_at(self.layout.records / file.name) for file in files_in(self.layout.records, ENDING)]
        return [self.records(owner) for owner in sorted(each for each in owners if each is not None)]

    def drop_blobs(self, candidates: Collection[str], now: datetime) -> int:
        """Removes the unused ones of these blobs. If that cannot be decided now, it is left to the next sweep."""
        if not candidates:
            return 0
        with contextlib.suppress(ConversationMoving, TimedOut, Corrupt, FormatMismatch, IndexFailure, OSError):
            # Update the index first, so that others wait less while the blobs are locked.
            self._referenced_blobs(candidates)
            return self.blobs.drop(candidates, now, lambda: self._referenced_blobs(candidates))
        return 0

    def _referenced_blobs(self, candidates: Collection[str]) -> Collection[str]:
        # Compare all journals: a killed writer may have left a reference that the index lacks, and its blob would be
        # lost.
        return self.catalog(wait=False, again=True).referenced_blobs(candidates)

    # Deleting

    def drop(self, writer: ConversationWriter, now: datetime, *, tombstone: bool) -> Receipt:
        """Deletes a conversation whose lock is held. The line that is written deletes it; the rest is cleanup."""
        state = writer.state
        assert state.conversation_state is not None
        gone = Receipt(
            conversations=1,
            messages=state.count,
            branches=len(state.conversation_state.branches),
            summaries=len(state.rest.summaries),
            at=now,
        )
        writer.commit(JournalEntry(what="delete", at=now, deleted=True, tombstone=tombstone))
        try:
            return self._clean(writer, now) + gone
        except (OSError, TimedOut, IndexFailure) as error:
            what = f"conversation {writer.id!r} is deleted, but not all that belonged to it: purge() finishes this"
            raise Unavailable(f"{what} ({error})", outcome="unknown") from error

    def _clean(self, writer: ConversationWriter, now: datetime) -> Receipt:
        """Cleans up after a deletion. The next writer finishes this if the process that began it died."""
        state = writer.state
        at = state.deleted_at
        assert at is not None
        assert state.conversation_state is not None
        tombstones = (
            dict.fromkeys(rules.tombstone_digests(state.conversation_state.conversation), at) if state.tombstone else {}
        )
        self.log.add_deleted(state.journal, list(state.usage.values()), tombstones, at)
        records = sum(self.records(owner).delete_conversation_records(writer.id, at) for owner in state.rest.owners)
        blobs = self.drop_blobs(writer.digests(), now)
        writer.unlink()
        return Receipt(records=records, blobs=blobs, at=at)

    def close(self) -> None:
        # If the index cannot be updated, the marks remain.
        with contextlib.suppress(IndexFailure):
            self.journals.save_all()
        self.index.close()


class _ConversationExists:
    """Whether conversations exist for a context; looks each up once. Raises `ConversationMoving` if one is moving."""

    def __init__(self, journals: Journals, context: Context) -> None:
        self._journals = journals
        self._context = context
        self._known: dict[str, bool] = {}

    def __call__(self, id: str) -> bool:
        if id not in self._known:
            with self._journals.reading(self._context, id, wait=False) as journal:
                self._known[id] = journal is not None
        return self._known[id]
