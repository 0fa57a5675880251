"""Copies exactly from one store to another, piece by piece, and again if the source has changed meanwhile."""

from __future__ import annotations

from hansard.errors import ValidationError
from hansard.model import Report
from hansard.store.core import View
from hansard.transfer.conversation_import import ConversationImport
from hansard.transfer.export import Numbered, TransferSource
from hansard.transfer.selection import Choice
from hansard.transfer.target import TransferTarget, put_records

_PASSES = 3


async def copy(source: View, target: TransferTarget, choice: Choice) -> Report:
    """Copies the selection. Equal content that the target already has is skipped."""
    if source.backend is target.backend and source.tenant == target.view.tenant:
        raise ValidationError("the source and the target are the same store")
    target.warn()
    before = await target.evictions()
    reader = TransferSource(source, choice)
    await reader.check()
    async for id in reader.conversations():
        await _Copied(reader, target, id).copy()
    async for owner, found in reader.records():
        await put_records(target, owner, found)
    await target.note_evictions(before)
    return target.report


class _Copied:
    """One conversation. A pass copies it as it is; the next one adds what was written meanwhile."""

    def __init__(self, source: TransferSource, target: TransferTarget, id: str) -> None:
        self._source = source
        self._target = target
        self._id = id
        self._is_new = False
        self._is_stored = False
        self._stored = 0

    async def copy(self) -> None:
        for attempt in range(_PASSES):
            found = await self._source.image(self._id)
            if found is None:
                await self._vanished()
                return
            conversation_import = await self._import_conversation(found, attempt)
            if conversation_import.refusal is not None and self._is_new:
                # This run created it, and its source was edited since: start again.
                await self._take_back()
            elif conversation_import.is_closed:
                if conversation_import.refusal is not None:
                    self._target.conflict(conversation_import.where, conversation_import.refusal)
                return
            elif await self._has_stayed(found):
                self._target.count_conversation(is_stored=self._is_stored)
                return
        self._target.count_conversation(is_stored=self._is_stored)
        self._target.lose(f"conversation {self._id!r}", "it was still being written to: copy again to get the rest")

    async def _import_conversation(self, found: Numbered, attempt: int) -> ConversationImport:
        conversation_import = ConversationImport(self._target, found)
        await conversation_import.start_import()
        if not attempt:
            self._is_new = conversation_import.is_new
        async for rows in self._source.rows(found):
            if conversation_import.is_closed:
                break
            await conversation_import.take(rows, await self._source.blobs(conversation_import.missing_blobs(rows)))
        is_stored = await conversation_import.finish(await self._source.summaries(self._id))
        self._is_stored = self._is_stored or is_stored
        self._stored += conversation_import.stored
        return conversation_import

    async def _has_stayed(self, found: Numbered) -> bool:
        now = await self._source.image(self._id)
        return now is not None and now.image.conversation.version == found.image.conversation.version

    async def _vanished(self) -> None:
        """Handles a conversation that was deleted since it was listed, perhaps while we copied it."""
        if self._is_new:
            await self._take_back()

    async def _take_back(self) -> None:
        await self._target.remove(self._id)
        self._target.report.messages -= self._stored
        self._stored = 0
        self._is_stored = False
