"""Appending, replacing, changing and removing messages: each becomes one entry of the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw, structs

from hansard import codec, rules
from hansard.backends.files import entries
from hansard.backends.files.conversations import make_room, need, visible
from hansard.backends.files.entries import Entry
from hansard.backends.files.shelf import Book
from hansard.backends.files.tables import Row
from hansard.backends.files.tenant import Tenant
from hansard.backends.files.writing import Writer
from hansard.contract.types import Append, Context, Draft, Head, MessageChange, Remove, Removed, Replace
from hansard.model import Appended, Conversation, Message, Receipt, Summary, UsageRow

# --- appending --------------------------------------------------------------------------------------------------------


def append(tenant: Tenant, context: Context, id: str, append: Append) -> Appended:
    with tenant.writing(id, create=append.new is not None) as writer:
        book = visible(writer, context)
        head = book.head if book else _new_head(context, id, append)
        stored = _stored(book, append)
        if not append.revive:
            new = [each for each in append.drafts if each.message.id not in stored]
            rules.refuse_deleted(context, head, new, tenant.ledger.tombstone)
        plan = rules.plan_append(context, head, append, stored)
        assert writer is not None
        if book is None:
            make_room(tenant, context, writer)
        if book is None or plan.fresh or plan.head is not head:
            entry = Entry(what="append", at=context.now, messages=_raw(plan.lane.line, plan.fresh))
            entry.usage = _usage(plan.head.conversation, plan.fresh) if append.count_usage else []
            entries.set_head(entry, book.head if book else None, plan.head)
            writer.commit(entry, blobs=append.blobs, refers=_refers(plan.fresh))
        return Appended(plan.result, plan.head.conversation.version, len(plan.fresh), book is None)


def _new_head(context: Context, id: str, append: Append) -> Head:
    if append.new is None:
        raise rules.not_found(id)
    return rules.new_head(context, id, append.new, 1)


def _stored(book: Book | None, append: Append) -> Mapping[str, Message]:
    given = [draft.message.id for draft in append.drafts if draft.given_id]
    return {message.id: message for message in book.find(given)} if book and given else {}


def _raw(line: int, fresh: Iterable[tuple[Message, Draft]]) -> list[Raw]:
    return [entries.encode_message(line, message, draft.size, draft) for message, draft in fresh]


def _refers(fresh: Iterable[tuple[Message, Any]]) -> bool:
    return any(message.blobs for message, _ in fresh)


def _usage(conversation: Conversation, fresh: Iterable[tuple[Message, Any]]) -> list[UsageRow]:
    """What new messages add to the usage rows."""
    return [row for message, _ in fresh for row in entries.usage_rows(conversation, message, None)]


# --- replacing and changing -------------------------------------------------------------------------------------------


def replace_messages(tenant: Tenant, context: Context, id: str, replace: Replace) -> Appended:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        index = book.index
        rows = list(index.rows(replace.branch))
        current = [(row.line, message) for row, message in zip(rows, book.read(rows), strict=True)]
        plan = rules.plan_replace(context, book.head, replace, current, index.fresh_line)
        gone = _Gone(book, index.beyond(plan.doomed))
        ids = [message.id for message, _ in plan.fresh]
        rules.used_elsewhere(each for each in ids if each in index.places and each not in gone.ids)
        if not replace.revive:
            new = [draft for _, draft in plan.fresh if draft.message.id not in index.places]
            rules.refuse_deleted(context, book.head, new, tenant.ledger.tombstone)
        rules.check_quota(book.head.conversation, len(ids) - len(gone.ids), replace.max_messages)
        newest = plan.fresh[-1][0].created_at if plan.fresh else index.newest(gone.seqs)
        after = gone.with_summary(rules.replaced(context, plan, len(gone.ids), newest))
        entry = gone.entry("replace", context, after)
        entry.messages = _raw(plan.lane.line, plan.fresh)
        entry.usage = [row for _, row in plan.usage]
        writer.commit(entry, blobs=replace.blobs, refers=_refers(plan.fresh))
        tenant.drop_blobs(gone.digests, context.now)
        result = [*plan.kept, *(message for message, _ in plan.fresh)]
        return Appended(result, after.conversation.version, len(plan.fresh))


def update_message(tenant: Tenant, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        index = book.index
        row = index.find(message_id)
        if row is None:
            raise rules.no_message(id, message_id)
        before = book.read([row])[0]
        head, message = rules.plan_update(context, book.head, before, change)
        size = change.draft.size if change.draft else row.size
        raw = entries.encode_message(row.line, message, size, change.draft)
        entry = Entry(what="update", at=context.now, messages=[raw])
        entry.usage = entries.usage_rows(head.conversation, message, before.usage)
        entries.set_head(entry, book.head, head)
        writer.commit(entry, blobs=change.blobs, refers=change.draft is not None and bool(message.blobs))
        tenant.drop_blobs({ref.sha256 for ref in before.blobs}, context.now)
        return message


# --- removing ---------------------------------------------------------------------------------------------------------


class _Gone:
    """Messages that a write removes, and what goes with them."""

    def __init__(self, book: Book, rows: Sequence[Row]) -> None:
        self._before = book.head
        self._had = book.index.summaries
        self.rows = rows
        self.messages = book.read(rows)
        self.ids = {message.id for message in self.messages}
        self.seqs = {row.seq for row in rows}
        self.digests = book.index.digests(self.seqs)
        places = [(row.line, row.seq) for row in rows]
        self.summaries: list[Summary] = rules.surviving(self._before, self._had, places)

    @property
    def lost_summaries(self) -> int:
        return len(self._had) - len(self.summaries)

    def with_summary(self, head: Head, *, always: bool = False) -> Head:
        """The head with the text of the last summary that is left."""
        text = self._before.conversation.summary
        if self.lost_summaries or always:
            text = self.summaries[-1].text if self.summaries else None
        return structs.replace(head, conversation=structs.replace(head.conversation, summary=text))

    def entry(self, what: str, context: Context, after: Head) -> Entry:
        entry = Entry(what=what, at=context.now, removed=[message.id for message in self.messages])
        if self.lost_summaries:
            entry.summaries = self.summaries
        entries.set_head(entry, self._before, after)
        return entry

    def receipt(self, context: Context, blobs: int, branches: int = 0) -> Receipt:
        return Receipt(
            messages=len(self.rows),
            branches=branches,
            summaries=self.lost_summaries,
            blobs=blobs,
            at=context.now,
        )


def remove_messages(tenant: Tenant, context: Context, id: str, remove: Remove) -> Removed:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        rules.check_version(book.head.conversation, remove.expected_version)
        return _REMOVERS[remove.what](tenant, context, writer, book, remove)


def _nothing(context: Context, book: Book) -> Removed:
    return Removed([], Receipt(at=context.now), book.head.conversation.version)


def _remove_ids(tenant: Tenant, context: Context, writer: Writer, book: Book, remove: Remove) -> Removed:
    rows = [row for each in dict.fromkeys(remove.ids) if (row := book.index.find(each))]
    if not rows:
        return _nothing(context, book)
    gone = _Gone(book, rows)
    places = [(row.line, row.seq) for row in rows]
    after = rules.without(context, book.head, places, book.index.newest(gone.seqs))
    after = structs.replace(gone.with_summary(after), buried=True)
    # A tombstone without its deletion harms nobody; a deletion without its tombstone could be undone.
    id = book.head.conversation.id
    tenant.ledger.bury([codec.digest(id, message.id) for message in gone.messages], context.now)
    writer.commit(gone.entry("delete", context, after), whole=True)
    receipt = gone.receipt(context, tenant.drop_blobs(gone.digests, context.now))
    return Removed(gone.messages, receipt, after.conversation.version)


def _pop(tenant: Tenant, context: Context, writer: Writer, book: Book, remove: Remove) -> Removed:
    newest = book.index.newest_rows(remove.branch, 2)
    if not newest:
        return _nothing(context, book)
    places = [(row.line, row.seq) for row in newest]
    before = places[1] if len(places) > 1 else None
    after, doomed = rules.plan_pop(book.head, remove, places[0], before, book.index.fresh_line)
    popped = book.read(newest[:1])
    blobs = tenant.blobs.get([ref.sha256 for ref in popped[0].blobs])
    gone = _Gone(book, book.index.beyond(doomed))
    after = rules.shrunk(context, gone.with_summary(after), len(gone.rows), book.index.newest(gone.seqs))
    writer.commit(gone.entry("pop", context, after))
    receipt = gone.receipt(context, tenant.drop_blobs(gone.digests, context.now))
    return Removed(popped, receipt, after.conversation.version, blobs)


def _clear(tenant: Tenant, context: Context, writer: Writer, book: Book, remove: Remove) -> Removed:
    index = book.index
    digests = index.digests()
    receipt = Receipt(
        messages=len(index.places),
        branches=len(book.head.lanes) - 1,
        summaries=len(index.summaries),
        at=context.now,
    )
    after = rules.cleared(context, book.head)
    entry = Entry(what="clear", at=context.now, cleared=True, summaries=[])
    entries.set_head(entry, book.head, after)
    writer.commit(entry, whole=True)
    blobs = tenant.drop_blobs(digests, context.now)
    return Removed([], structs.replace(receipt, blobs=blobs), after.conversation.version)


_REMOVERS = {"ids": _remove_ids, "last": _pop, "all": _clear}


def delete_branch(tenant: Tenant, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        index = book.index
        after, doomed = rules.plan_delete_branch(book.head, branch, expected_version)
        gone = _Gone(book, index.beyond(doomed))
        gone.summaries = [summary for summary in gone.summaries if summary.branch != branch]
        after = gone.with_summary(after, always=True)
        after = rules.shrunk(context, after, len(gone.rows), index.newest(gone.seqs))
        writer.commit(gone.entry("delete branch", context, after), whole=bool(gone.rows))
        return gone.receipt(context, tenant.drop_blobs(gone.digests, context.now), 1)
