"""Process memory: the definition of truth.

Every other backend must answer as this one does. It is written to be read: a conversation is its `Head` and, for each
line, its messages in the order of seq. Two caps make it a cache (`max_conversations`, least recently used goes;
`max_messages`, the oldest go); what they evict is counted and reported by `stats`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from hansard import rules
from hansard.backends.memory import changing, lifecycle
from hansard.backends.memory.conversation import Kept, beyond, bounded, digests, select, with_summary
from hansard.backends.memory.tenant import StoredBlob, Tenant, record_key
from hansard.backends.signals import Signals
from hansard.backends.values import own_conversation, own_message, own_record
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Draft,
    Head,
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
from hansard.errors import Closed, Conflict, Unsupported
from hansard.model import (
    NOT_YET,
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


class MemoryBackend:
    def __init__(self, *, max_conversations: int | None = None, max_messages: int | None = None) -> None:
        self._max_conversations = max_conversations
        self._max_messages = max_messages
        self._tenants: dict[str, Tenant] = {}
        self._lock = threading.RLock()
        self._signals = Signals()
        self._evicted_conversations = 0
        self._evicted_messages = 0
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="memory",
            durability="none",
            blocking=True,
            secure_delete=True,
            evicts=self._max_conversations is not None or self._max_messages is not None,
        )

    async def close(self) -> None:
        self._closed = True
        self._tenants.clear()
        self._signals.notify_all()

    # Finding

    def _open(self) -> None:
        if self._closed:
            raise Closed("this store was closed")

    def _tenant(self, context: Context) -> Tenant:
        self._open()
        return self._tenants.setdefault(context.tenant, Tenant())

    def _chosen(self, tenant: str | None) -> dict[str, Tenant]:
        self._open()
        return lifecycle.chosen(self._tenants, tenant)

    def _find(self, context: Context, id: str) -> Kept | None:
        conversations = self._tenant(context).conversations
        kept = conversations.get(id)
        if kept is None or not rules.is_visible(kept.head.conversation, context):
            return None
        conversations[id] = conversations.pop(id)
        return kept

    def _need(self, context: Context, id: str) -> Kept:
        kept = self._find(context, id)
        if kept is None:
            raise rules.not_found(id)
        return kept

    def _changed(self, context: Context, id: str) -> None:
        self._signals.notify((context.tenant, id))

    def _make(self, context: Context, id: str, head: Head) -> Kept:
        """A place for a conversation that does not exist, or has expired."""
        tenant = self._tenant(context)
        old = tenant.conversations.get(id)
        if old is not None:
            expires = old.head.conversation.expires_at
            if expires is None or expires > context.now:
                # Behind the wall of a user's view: it must look as if it were not there.
                raise rules.not_found(id)
            tenant.drop(context, id)
        kept = tenant.conversations[id] = Kept(head)
        kept.enlist(tenant.listing)
        self._evict_conversations(context, tenant)
        return kept

    def _evict_conversations(self, context: Context, tenant: Tenant) -> None:
        while self._max_conversations is not None and len(tenant.conversations) > self._max_conversations:
            tenant.drop(context, next(iter(tenant.conversations)))
            self._evicted_conversations += 1

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        with self._lock:
            if self._find(context, conversation.id) is not None:
                raise Conflict(f"conversation {conversation.id!r} exists already")
            kept = self._make(context, conversation.id, rules.created(context, conversation, 1))
            self._changed(context, conversation.id)
            return own_conversation(kept.head.conversation)

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        with self._lock:
            kept = self._find(context, id)
            return own_conversation(kept.head.conversation) if kept else None

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        with self._lock:
            tenant = self._tenant(context)
            walked = (tenant.conversations[id].head.conversation for id in tenant.listing.walk(query, context.user))
            matching = (each for each in walked if rules.matches(each, query, context))
            page = list(islice(matching, query.offset, query.offset + query.limit + 1))
        return [own_conversation(each) for each in page[: query.limit]], len(page) > query.limit

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        with self._lock:
            kept = self._need(context, id)
            kept.head = rules.plan_change(context, kept.head, change)
            self._changed(context, id)
            return own_conversation(kept.head.conversation)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        with self._lock:
            kept = self._find(context, id)
            if kept is None:
                return Receipt(at=context.now)
            rules.check_version(kept.head.conversation, expected_version)
            tenant = self._tenant(context)
            tenant.tombstones.update(dict.fromkeys(rules.graves(kept.head.conversation), context.now))
            receipt = tenant.drop(context, id)
            self._changed(context, id)
            return receipt

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        with self._lock:
            kept, created = self._find_or_new(context, id, append)
            stored = {
                draft.message.id: message
                for draft in append.drafts
                if draft.given_id and (message := kept.find(draft.message.id))
            }
            if not append.revive:
                self._refuse_deleted(context, kept, append.drafts)
            plan = rules.plan_append(context, kept.head, append, stored)
            if created:
                kept = self._make(context, id, kept.head)
            kept.head = plan.head
            if plan.fresh:
                self._insert(context, kept, plan.lane.line, plan.fresh, append.blobs, count=append.count_usage)
            self._evict_messages(context, kept)
            self._changed(context, id)
            messages = [own_message(message) for message in plan.result]
            return Appended(messages, kept.head.conversation.version, len(plan.fresh), created)

    def _find_or_new(self, context: Context, id: str, append: Append) -> tuple[Kept, bool]:
        kept = self._find(context, id)
        if kept is not None:
            return kept, False
        if append.new is None:
            raise rules.not_found(id)
        return Kept(rules.new_head(context, id, append.new, 1)), True

    def _refuse_deleted(self, context: Context, kept: Kept, drafts: Iterable[Draft]) -> None:
        new = [draft for draft in drafts if draft.message.id not in kept.places]
        rules.refuse_deleted(context, kept.head, new, self._tenant(context).tombstones.get)

    def _insert(
        self,
        context: Context,
        kept: Kept,
        line: int,
        fresh: Sequence[tuple[Message, Any]],
        blobs: Mapping[str, bytes],
        *,
        count: bool = True,
    ) -> None:
        tenant = self._tenant(context)
        for sha256, data in blobs.items():
            tenant.blobs.setdefault(sha256, StoredBlob(data, NOT_YET))
        for message, draft in fresh:
            kept.insert(line, message, draft.size)
            if count:
                tenant.count_usage(kept, message, None)

    def _evict_messages(self, context: Context, kept: Kept) -> None:
        excess = len(kept.places) - self._max_messages if self._max_messages is not None else 0
        if excess > 0:
            oldest = list(islice(kept.all_messages(), excess))
            changing.take_out(self._tenant(context), context, kept, [message for _, message in oldest])
            self._evicted_messages += excess

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        with self._lock:
            kept = self._need(context, id)
            current = list(kept.read(replace.branch))
            plan = rules.plan_replace(context, kept.head, replace, current, kept.fresh_line)
            if not replace.revive:
                self._refuse_deleted(context, kept, [draft for _, draft in plan.fresh])
            doomed = {message.id for message in beyond(kept, plan.doomed)}
            ids = [draft.message.id for _, draft in plan.fresh]
            rules.used_elsewhere(each for each in ids if each in kept.places and each not in doomed)
            rules.check_quota(kept.head.conversation, len(ids) - len(doomed), replace.max_messages)
            gone = kept.remove_beyond(plan.doomed)
            self._insert(context, kept, plan.lane.line, plan.fresh, replace.blobs, count=False)
            self._tenant(context).add_usage(plan.usage)
            summary = kept.head.conversation.summary
            kept.head = rules.replaced(context, plan, len(gone), kept.newest())
            kept.head = with_summary(kept.head, summary)
            self._tenant(context).drop_blobs(context, digests(gone))
            self._evict_messages(context, kept)
            self._changed(context, id)
            result = [*plan.kept, *(message for message, _ in plan.fresh)]
            return Appended([own_message(each) for each in result], kept.head.conversation.version, len(plan.fresh))

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        with self._lock:
            kept = self._find(context, id)
            if kept is None:
                return Slice([], False)
            taken, more = bounded(select(kept, query), query, kept.sizes)
            return Slice([own_message(message) for message in taken], more)

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        with self._lock:
            kept = self._find(context, id)
            found = (kept.find(each) for each in message_ids) if kept else ()
            return [own_message(message) for message in found if message]

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        with self._lock:
            kept = self._need(context, id)
            before = kept.find(message_id)
            if before is None:
                raise rules.no_message(id, message_id)
            head, message = rules.plan_update(context, kept.head, before, change)
            for sha256, data in change.blobs.items():
                self._tenant(context).blobs.setdefault(sha256, StoredBlob(data, NOT_YET))
            kept.put(message, change.draft.size if change.draft else None)
            kept.head = head
            self._tenant(context).count_usage(kept, message, before)
            self._tenant(context).drop_blobs(context, digests([before]))
            self._changed(context, id)
            return own_message(message)

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        with self._lock:
            kept = self._need(context, id)
            removed = changing.remove(self._tenant(context), context, kept, remove)
            self._changed(context, id)
            return removed

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        with self._lock:
            kept = self._need(context, id)
            kept.head, lane = rules.plan_branch(context, kept.head, new, kept.cut(new), kept.fresh_line())
            self._changed(context, id)
            return rules.as_branch(lane, kept.head.conversation)

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        with self._lock:
            kept = self._find(context, id)
            return rules.branches_of(kept.head) if kept else []

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        with self._lock:
            kept = self._need(context, id)
            after, doomed = rules.plan_delete_branch(kept.head, branch, expected_version)
            summaries = len(kept.summaries)
            gone = kept.remove_beyond(doomed)
            kept.summaries = [summary for summary in kept.summaries if summary.branch != branch]
            after = with_summary(after, kept.summaries[-1].text if kept.summaries else None)
            kept.head = rules.shrunk(context, after, len(gone), kept.newest())
            self._changed(context, id)
            return changing.receipt_of(self._tenant(context), context, gone, summaries - len(kept.summaries), 1)

    async def put_summary(self, context: Context, summary: Summary) -> None:
        with self._lock:
            kept = self._need(context, summary.conversation_id)
            kept.head.lane(summary.branch)
            kept.summaries.append(summary)
            kept.head = with_summary(kept.head, summary.text)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        with self._lock:
            kept = self._find(context, id)
            summaries = kept.summaries if kept else []
            return [summary for summary in summaries if branch is None or summary.branch == branch]

    # Records

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        with self._lock:
            tenant = self._tenant(context)
            found = [tenant.live_record(context, record_key(context, *key)) for key in keys]
            return [own_record(record) if record else None for record in found]

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        with self._lock:
            tenant = self._tenant(context)
            for write in writes:
                if write.conversation_id is not None and not write.delete:
                    self._need(context, write.conversation_id)
            return [own_record(record) if record else None for record in tenant.write_records(context, writes)]

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        with self._lock:
            found = list(islice(self._tenant(context).scan(context, query), query.limit + 1))
            return [own_record(record) for record in found[: query.limit]], len(found) > query.limit

    # Blobs

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        with self._lock:
            blob = self._tenant(context).blobs.setdefault(sha256, StoredBlob(data, keep_until))
            blob.keep_until = max(blob.keep_until, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        with self._lock:
            blobs = self._tenant(context).blobs
            return {sha256: blobs[sha256].data for sha256 in digests if sha256 in blobs}

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        with self._lock:
            kept = self._find(context, id)
            if kept is None:
                return None
            conversation = own_conversation(kept.head.conversation)
            return Image(conversation, kept.head.seq, tuple(kept.head.lanes.values()))

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        with self._lock:
            kept = self._find(context, id)
            if kept is None:
                return []
            later = list(islice(kept.all_messages(after_seq), limit))
            query = MessageQuery(limit=limit, max_bytes=max_bytes)
            taken, _ = bounded((message for _, message in later), query, kept.sizes)
            return [Row(line, own_message(message)) for line, message in later[: len(taken)]]

    async def restore(self, context: Context, restore: Restore) -> int:
        with self._lock:
            image = restore.image
            kept = self._find(context, image.conversation.id)
            head = kept.head if kept else rules.restoring(image, image.lanes)
            rows = [row for row in restore.rows if row.draft.message.seq > head.seq]
            after = rules.restored(head, restore, rows, kept.places if kept else ())
            kept = kept or self._make(context, image.conversation.id, head)
            for row in rows:
                self._insert(context, kept, row.line, [(row.draft.message, row.draft)], restore.blobs)
            kept.head = after
            self._changed(context, image.conversation.id)
            return after.seq

    async def record_owners(self, context: Context) -> list[str]:
        with self._lock:
            return sorted({owner for owner, _, _ in self._tenant(context).records if owner})

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        with self._lock:
            return self._tenant(context).participations(context, participant_id, limit)

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        with self._lock:
            return self._tenant(context).erase(context, user_id)

    async def sweep(self, context: Context, limit: int) -> Swept:
        with self._lock:
            return lifecycle.sweep(self._chosen(None), context)

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        with self._lock:
            return self._tenant(context).usage_rows(context, since, until)

    async def stats(self, tenant: str | None) -> Stats:
        with self._lock:
            return lifecycle.stats(self._chosen(tenant), self._evicted_conversations, self._evicted_messages)

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        with self._lock:
            kept = lifecycle.to_audit(self._chosen(tenant))
        for where, head, messages in kept:
            for problem in rules.audit(where, head, messages):
                yield problem
        yield len(kept)

    async def list_tenants(self) -> list[str]:
        with self._lock:
            return lifecycle.list_tenants(self._chosen(None))

    async def delete_tenant(self, context: Context) -> Receipt:
        with self._lock:
            watched = list(self._tenant(context).conversations)
            receipt = lifecycle.delete_tenant(self._tenants, context)
            for id in watched:
                self._changed(context, id)
            return receipt

    async def backup(self, target: Path) -> None:
        raise Unsupported("memory has no file to copy: use copy_to(another store)", capability="backup")

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        self._open()
        return await self._signals.wait((context.tenant, id), seen, timeout)
