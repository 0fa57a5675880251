"""How a graph's messages become rows of the history.

The messages of a graph's state are rows of the conversation. A checkpoint holds only their positions, as runs of
consecutive seqs, so it stays small however long the thread is. Rows never change: a message that the graph edits
becomes a new row, and so does one that the state holds twice. When the newest rows of the branch are no longer in the
state (a message was edited or removed, or the graph continues from an older checkpoint), the history continues in a new
branch from the last row that is; the rest stays readable on the old branch. Earlier rows that the state lacks are only
hidden from the graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from langchain_core.messages import BaseMessage
from msgspec import structs

from hansard.adapters.langgraph.messages import MessageDraft, draft_of, versions_of
from hansard.adapters.langgraph.references import HistoryPosition
from hansard.adapters.langgraph.threads import LatestState, Runs, StateMessages, Thread
from hansard.ids import new_id
from hansard.model import NOT_YET, Message
from hansard.store import Store


class Placed(NamedTuple):
    """The messages of a state as runs, and the positions of the new ones.

    There are no runs if the state holds only changes: a delta channel's messages are rebuilt from its writes.
    """

    runs: Runs | None
    new: list[HistoryPosition]
    latest: LatestState | None = None


async def store_messages(
    store: Store,
    thread_id: str,
    thread: Thread,
    messages: Sequence[BaseMessage],
    latest: LatestState | None,
    fork: Fork | None,
    *,
    created_at: datetime = NOT_YET,
) -> Placed | None:
    """Stores the new messages. None if one of them cannot be a row: then nothing is stored.

    `latest` holds the messages of the checkpoint that this one follows, if they are cached. `created_at` is for
    messages that were written elsewhere.
    """
    before = thread.branch
    if fork is not None and fork.source is not None:
        thread.switch_branch(fork.source)
    known = thread.state if thread.state.begins(messages) else StateMessages()
    if not known or known is not thread.state:
        thread.index()
    rest = messages[len(known) :]
    places = _places(thread, rest, known)
    # Take everything that is remembered before the first await: nodes run meanwhile, and may change messages in place.
    drafts = [draft_of(message) for message, place in zip(rest, places, strict=True) if place is None]
    if None in drafts:
        thread.switch_branch(before)
        return None
    if drafts or fork is not None:
        await _branch_if_rows_are_gone(store, thread_id, thread, known, places, is_fork=fork is not None)
    new_drafts = [draft.at(created_at) for draft in drafts if draft is not None]
    stored, version = await _stored(store, thread_id, thread, new_drafts)
    if thread.branch != before:
        # Only now, so that others never see a branch without its newest messages.
        await store.switch_branch(thread_id, thread.branch)
    new = [_place(*each) for each in stored]
    rows = iter(new)
    thread.state = state = known.and_more([place or next(rows) for place in places])
    thread.drop_seen()
    return Placed(state.runs, new, _latest_after(latest, thread, version, is_new=bool(stored)))


class Fork(NamedTuple):
    """A checkpoint that does not follow the newest one, and the branch of the one that it follows."""

    source: str | None


async def store_written(
    store: Store, thread_id: str, thread: Thread, written: Sequence[BaseMessage], *, created_at: datetime = NOT_YET
) -> Placed:
    """Stores messages that were written to a delta channel; removals are not among them."""
    thread.index()
    drafts = [draft_of(message) for message in written if thread.find(message, set(), ()) is None]
    new = [draft.at(created_at) for draft in drafts if draft is not None]
    stored, _ = await _stored(store, thread_id, thread, [_named(draft) for draft in new])
    rows = [row for _, row in stored]
    thread.add(_place(draft, row) for draft, row in zip(new, rows, strict=True))
    thread.add(_place(draft, row) for draft, row in stored)
    return Placed(None, [_place(draft, row) for draft, row in stored])


def _named(draft: MessageDraft) -> MessageDraft:
    """Returns the draft with an id: a message without one gets that of its row, so that it is recognised later."""
    if draft.version.id is not None:
        return draft
    id, content = new_id(), draft.row.content
    named = {**content, "data": {**content["data"], "id": id}}
    row = structs.replace(draft.row, id=id, content=named)
    return MessageDraft(row, versions_of(row)[0])


def _places(thread: Thread, messages: Sequence[BaseMessage], known: StateMessages) -> list[HistoryPosition | None]:
    """Returns the position of each message. A row is used once, and only as a whole, as it is read."""
    used: set[tuple[int, int]] = set()
    found: list[HistoryPosition | None] = []
    for message in messages:
        place = thread.find(message, used, known.seqs)
        if place is not None:
            used.add((place.seq, place.part))
        found.append(place)
    return [place if place is None or _is_whole(found, at, place) else None for at, place in enumerate(found)]


def _is_whole(found: Sequence[HistoryPosition | None], at: int, place: HistoryPosition) -> bool:
    first = at - place.part
    parts = found[max(first, 0) : first + place.parts]
    return [(each.seq, each.part) for each in parts if each] == [(place.seq, part) for part in range(place.parts)]


async def _branch_if_rows_are_gone(
    store: Store,
    thread_id: str,
    thread: Thread,
    known: StateMessages,
    places: Iterable[HistoryPosition | None],
    *,
    is_fork: bool,
) -> None:
    """Creates a branch, not yet active, if the newest rows of the old one are no longer in the state."""
    last = max((place for place in places if place), key=lambda place: place.seq, default=None)
    reached = max(known.newest, last.seq if last else 0)
    if is_fork:
        newest = await store.get_messages(thread_id, last=1, branch=thread.branch)
        thread.tail = newest[-1].seq if newest else 0
    if reached >= thread.tail:
        return
    if not reached:
        made = await store.branch(thread_id, empty=True, source=thread.branch, activate=False)
    else:
        row_id = last.row_id if last and last.seq == reached else known.row_id(reached)
        made = await store.branch(thread_id, at=row_id, source=thread.branch, activate=False)
    thread.split(made.id, reached)


async def _stored(
    store: Store, thread_id: str, thread: Thread, drafts: Sequence[MessageDraft]
) -> tuple[list[tuple[MessageDraft, Message]], int]:
    """Appends the new messages, and looks for rows that others wrote since the graph last read the history."""
    if not drafts:
        return [], 0
    appended = await store.append(thread_id, [draft.row for draft in drafts], branch=thread.branch, create=False)
    rows = appended.messages
    if rows[0].seq > thread.tail + 1:
        place = Message("user", "", conversation_id=thread_id, seq=thread.tail).cursor
        async for row in store.iter_messages(thread_id, after=place, branch=thread.branch):
            if row.seq >= rows[0].seq:
                break
            thread.unseen.append(row.seq)
    thread.tail = max(thread.tail, rows[-1].seq)
    return list(zip(drafts, rows, strict=True)), appended.version


def _place(draft: MessageDraft, row: Message) -> HistoryPosition:
    return HistoryPosition(draft.version, row.seq, row.id)


def _latest_after(latest: LatestState | None, thread: Thread, version: int, *, is_new: bool) -> LatestState | None:
    """Returns the latest state, unless others have written since the previous one."""
    if latest is None or latest.branch != thread.branch or thread.unseen:
        return None
    if is_new and version != latest.version + 1:
        return None
    return latest._replace(version=latest.version + is_new, state=thread.state)
