"""Conversations, their branches and summaries: made, changed, restored, deleted."""

from __future__ import annotations

from datetime import datetime

from msgspec import structs

from hansard import rules
from hansard.backends.files import entries
from hansard.backends.files.entries import Entry
from hansard.backends.files.index import Index
from hansard.backends.files.shelf import Book
from hansard.backends.files.tables import Row
from hansard.backends.files.tenant import Tenant
from hansard.backends.files.writing import Writer
from hansard.backends.values import own_conversation
from hansard.contract.types import Context, ConversationChange, NewBranch, Restore
from hansard.errors import Conflict
from hansard.model import Branch, Conversation, Receipt, Summary

# --- what is there ----------------------------------------------------------------------------------------------------


def visible(writer: Writer | None, context: Context) -> Book | None:
    """The conversation, if it exists and the context may see it."""
    book = writer.book if writer else None
    return book if book and rules.is_visible(book.head.conversation, context) else None


def need(writer: Writer | None, context: Context, id: str) -> tuple[Writer, Book]:
    book = visible(writer, context)
    if writer is None or book is None:
        raise rules.not_found(id)
    return writer, book


def make_room(tenant: Tenant, context: Context, writer: Writer) -> None:
    """Before a conversation is made: what has expired goes, what is behind a wall stays."""
    book = writer.book
    if book is None:
        # Whoever made the tenant's folder may have died before it had a name.
        tenant.ledger.establish()
        return
    if not is_over(book.head.conversation, context.now):
        # It must look as if it were not there.
        raise rules.not_found(writer.id)
    tenant.drop(writer, context.now, tombstone=False)


def is_over(conversation: Conversation, now: datetime) -> bool:
    return conversation.expires_at is not None and conversation.expires_at <= now


# --- conversations ----------------------------------------------------------------------------------------------------


def create_conversation(tenant: Tenant, context: Context, conversation: Conversation) -> Conversation:
    with tenant.writing(conversation.id, create=True) as writer:
        assert writer is not None
        if visible(writer, context) is not None:
            raise Conflict(f"conversation {conversation.id!r} exists already")
        make_room(tenant, context, writer)
        head = rules.created(context, conversation, 1)
        entry = Entry(what="create", at=context.now)
        entries.set_head(entry, None, head)
        writer.commit(entry)
        return own_conversation(head.conversation)


def update_conversation(tenant: Tenant, context: Context, id: str, change: ConversationChange) -> Conversation:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        after = rules.plan_change(context, book.head, change)
        entry = Entry(what="change", at=context.now)
        entries.set_head(entry, book.head, after)
        writer.commit(entry)
        return own_conversation(after.conversation)


def delete_conversation(tenant: Tenant, context: Context, id: str, expected_version: int | None) -> Receipt:
    with tenant.writing(id) as writer:
        book = visible(writer, context)
        if writer is None or book is None:
            return Receipt(at=context.now)
        rules.check_version(book.head.conversation, expected_version)
        return tenant.drop(writer, context.now, tombstone=True)


def restore(tenant: Tenant, context: Context, restore: Restore) -> int:
    image = restore.image
    with tenant.writing(image.conversation.id, create=True) as writer:
        assert writer is not None
        book = visible(writer, context)
        head = book.head if book else rules.restoring(image, image.lanes)
        rows = [row for row in restore.rows if row.draft.message.seq > head.seq]
        after = rules.restored(head, restore, rows, book.index.places if book else ())
        if book is None:
            make_room(tenant, context, writer)
        if book is None or rows or restore.done:
            entry = Entry(what="restore", at=context.now)
            entry.messages = [
                entries.encode_message(row.line, row.draft.message, row.draft.size, row.draft) for row in rows
            ]
            messages = [row.draft.message for row in rows]
            entry.usage = [
                each for message in messages for each in entries.usage_rows(head.conversation, message, None)
            ]
            entries.set_head(entry, book.head if book else None, after)
            refers = any(message.blobs for message in messages)
            writer.commit(entry, blobs=restore.blobs if rows else None, refers=refers)
        return after.seq


# --- branches and summaries -------------------------------------------------------------------------------------------


def create_branch(tenant: Tenant, context: Context, id: str, new: NewBranch) -> Branch:
    with tenant.writing(id) as found:
        writer, book = need(found, context, id)
        index = book.index
        after, lane = rules.plan_branch(context, book.head, new, _cut(index, id, new), index.fresh_line())
        entry = Entry(what="branch", at=context.now)
        entries.set_head(entry, book.head, after)
        writer.commit(entry)
        return rules.as_branch(lane, after.conversation)


def _cut(index: Index, id: str, new: NewBranch) -> rules.Cut:
    """Where a new branch leaves its source."""
    if new.empty:
        return rules.Cut()
    spans = index.spans(new.source)
    wanted = new.at or new.before
    count = sum(end for _, end in spans)
    if wanted is not None:
        row = index.find(wanted)
        count = _ordinal(index, new.source, row) if row else 0
        if not count:
            raise rules.no_message(id, wanted)
        count -= 0 if new.at else 1
    last = index.row_at(new.source, count)
    return rules.Cut((last.line, last.seq), count) if last else rules.Cut()


def _ordinal(index: Index, branch: str | None, row: Row) -> int:
    """The how-manyth message of a branch this is; 0 when the branch does not read it."""
    before = 0
    for table, end in index.spans(branch):
        if table.line == row.line:
            at = table.find(row.seq)
            return before + at + 1 if at < end else 0
        before += end
    return 0


def put_summary(tenant: Tenant, context: Context, summary: Summary) -> None:
    with tenant.writing(summary.conversation_id) as found:
        writer, book = need(found, context, summary.conversation_id)
        rules.check_summary(book.head, summary)
        conversation = structs.replace(book.head.conversation, summary=summary.text)
        entry = Entry(what="summary", at=context.now, summary=summary)
        entries.set_head(entry, book.head, structs.replace(book.head, conversation=conversation))
        writer.commit(entry)
