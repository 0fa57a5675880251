"""Removes messages and whole conversations, with everything that refers to them, inside a job."""

from __future__ import annotations

from collections.abc import Iterable

from hansard.backends.sqlite import index
from hansard.backends.sqlite.rows import key_range
from hansard.backends.sqlite.writer import CachedState, SqliteWriter
from hansard.contract.types import Context, ConversationState
from hansard.model import Receipt, to_micros
from hansard.rules import segments

Keys = tuple[int, int]
"""An open interval of keys of messages."""


def drop(writer: SqliteWriter, context: Context, entry: CachedState) -> Receipt:
    """Removes a conversation with everything that belongs to it."""
    writer.flush()
    state = entry.state
    _, released = remove(writer, all_keys(state))
    writer.run("delete_branches", entry.pk)
    summaries = writer.run("delete_summaries", entry.pk).rowcount
    records = writer.run("delete_records_of", entry.pk).rowcount
    writer.run("delete_conversation", entry.pk)
    writer.discard(context.tenant, state.conversation.id)
    return Receipt(
        conversations=1,
        messages=state.conversation.message_count,
        branches=len(state.branches),
        summaries=summaries,
        records=records,
        blobs=drop_blobs(writer, context, released),
        at=context.now,
    )


def segments_of(state: ConversationState) -> set[int]:
    """Returns all segments that hold messages of a conversation."""
    return {segment for branch in state.branches.values() for segment, _ in segments(branch)}


def all_keys(state: ConversationState) -> list[Keys]:
    return [key_range(segment) for segment in segments_of(state)]


def remove(writer: SqliteWriter, runs: Iterable[Keys]) -> tuple[int, list[int]]:
    """Removes messages; returns how many there were, and the blobs that they referred to."""
    count, released = 0, []
    for above, below in runs:
        index.remove(writer, above, below)
        count += writer.run("delete_between", above, below).rowcount
        released += release_blobs(writer, above, below)
    return count, released


def release_blobs(writer: SqliteWriter, above: int, below: int) -> list[int]:
    """Removes the blob references of the messages of a run; returns the blobs."""
    used = [blob for (blob,) in writer.run("used_blobs_between", above, below)]
    if used:
        writer.run("release_blobs_between", above, below)
    return used


def drop_blobs(writer: SqliteWriter, context: Context, blobs: Iterable[int]) -> int:
    """Removes the blobs among these that are no longer needed; returns how many."""
    now = to_micros(context.now)
    return sum(writer.run("drop_blob", blob, now).rowcount for blob in set(blobs))
