"""Stores what was added to a transcript, without reading what is stored already.

Messages continue the branch that ends with the message that they follow, or begin a new one. Every write can be
repeated, by this collector after a crash or by another one at the same time: messages have ids, lines have places.
Where something is not as expected, `LostTrack` is raised, and the whole file is imported once more, which stores only
what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hansard.errors import Conflict, NotFound
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.transcript_file import TranscriptSession
from hansard.importers.transcripts import Transcript, append_lines
from hansard.store import Store

BATCH = 1_000


class LostTrack(Exception):
    """The store does not hold what was stored of the transcript before."""


async def append(
    store: Store, given: ForeignConversation, session: TranscriptSession, *, after: int, title: str | None
) -> str | None:
    """Stores the new part of a transcript, of which `after` lines are stored. Returns the title."""
    try:
        # First, because an import of the whole file leaves stored messages as they are.
        for id, usage in session.usages().items():
            await store.update_message(given.id, id, usage=usage)
        await _append_messages(store, given)
        title = await _describe(store, given, title)
        lines = given.transcript or Transcript([])
        if not await append_lines(store, given.id, lines, after=after):
            raise LostTrack(f"the transcript of {given.id!r} has other lines")
    except (Conflict, NotFound) as error:
        raise LostTrack(str(error)) from error
    return title


async def _append_messages(store: Store, given: ForeignConversation) -> None:
    tips: dict[str, str] = {}
    """The branch of which a message is the last one."""
    for run in _runs(given.messages):
        parent = run[0].parent
        branch = tips.pop(parent, None) if parent is not None else None
        if branch is None:
            branch = await _branch_after(store, given.id, run[0])
        messages = [each.message for each in run]
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            # Another message with the id of a stored one would be lost, and its line written again wrong.
            await store.append(given.id, batch, branch=branch, create=False, split=True, on_duplicate="error")
        tips[messages[-1].id] = branch
    if given.messages:
        await _activate(store, given.id, tips[given.messages[-1].message.id])


def _runs(messages: Sequence[ForeignMessage]) -> Iterator[list[ForeignMessage]]:
    """Messages that follow each other without a fork."""
    run: list[ForeignMessage] = []
    for each in messages:
        if run and each.parent != run[-1].message.id:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


async def _branch_after(store: Store, conversation_id: str, first: ForeignMessage) -> str:
    """Returns the branch that ends with the message's parent, or a new one from there."""
    if first.parent is None:
        raise LostTrack("a message follows nothing")
    conversation = await store.get_conversation(conversation_id)
    if conversation is None:
        raise LostTrack(f"conversation {conversation_id!r} is gone")
    parent = await store.get_message(conversation_id, first.parent, blobs="refs")
    last = await store.get_messages(conversation_id, last=1, branch=parent.branch, blobs="refs")
    if last and last[0].id == parent.id:
        return parent.branch
    if await _is_stored(store, conversation_id, first.message.id):
        raise LostTrack("another collector has stored it")
    made = await store.branch(
        conversation_id,
        at=parent.id,
        source=parent.branch,
        branch_id=first.message.id,
        activate=False,
        # Another collector may store the message at this moment, on the branch that it belongs to.
        expected_version=conversation.version,
    )
    return made.id


async def _is_stored(store: Store, conversation_id: str, message_id: str) -> bool:
    try:
        await store.get_message(conversation_id, message_id, blobs="refs")
    except NotFound:
        return False
    return True


async def _activate(store: Store, conversation_id: str, branch: str) -> None:
    conversation = await store.get_conversation(conversation_id)
    if conversation is not None and conversation.branch != branch:
        await store.switch_branch(conversation_id, branch)


async def _describe(store: Store, given: ForeignConversation, title: str | None) -> str | None:
    """Updates metadata, and the title unless somebody has changed it here."""
    found = await store.get_conversation(given.id)
    if found is None:
        raise LostTrack(f"conversation {given.id!r} is gone")
    changed = {name: value for name, value in given.metadata.items() if found.metadata.get(name) != value}
    if changed:
        await store.update_conversation(given.id, metadata=changed)
    new = given.title or (given.first_words if found.title is None else None)
    if new is None or new == found.title or found.title not in (None, title):
        return title
    await store.update_conversation(given.id, title=new)
    return new
