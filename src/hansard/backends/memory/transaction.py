"""One conversation in memory, as an operation sees it. The storage holds its lock while this is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from hansard.backends.memory.conversation import MemoryConversation
from hansard.backends.memory.tenant import MemoryTenant, StoredBlob, record_key
from hansard.backends.shared.copies import own_message, own_record
from hansard.backends.shared.lists import digests
from hansard.contract.storage import Applied, Changes, Found, Wants
from hansard.contract.types import Context, ConversationState
from hansard.model import NOT_YET, Message, Receipt

_NOTHING_WIPED = Applied(physically_gone=True)


class MemoryTransaction:
    def __init__(self, tenant: MemoryTenant, context: Context, id: str) -> None:
        self.context = context
        self.id = id
        self._tenant = tenant
        self._kept = tenant.conversations.get(id)
        self._segments = 0
        """How many new segments the operation has requested."""

    @property
    def state(self) -> ConversationState | None:
        return self._kept.state if self._kept else None

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments + (self._kept.last_segment() if self._kept else 0)

    async def get(self, wants: Wants) -> Found:
        return answer(self._tenant, self.context, self._kept, wants)

    async def apply(self, changes: Changes) -> Applied:
        wiped = _NOTHING_WIPED if changes.wipes == "nothing" else self._wipe(changes)
        if changes.state is None:
            return wiped
        stored = self._kept = self._kept or self._tenant.add(changes.state)
        gone = self._remove(stored, changes)
        self._store(stored, changes)
        stored.state = changes.state
        self._store_tenant_data(changes)
        if not (gone or changes.update or changes.lost_summaries):
            return wiped
        released = [*gone, changes.update.before] if changes.update else gone
        return structs.replace(
            wiped,
            messages=wiped.messages + len(gone),
            summaries=wiped.summaries + len(changes.lost_summaries),
            blobs=wiped.blobs + self._tenant.drop_blobs(self.context, digests(released)),
        )

    def _remove(self, stored: MemoryConversation, changes: Changes) -> Sequence[Message]:
        """Removes messages and returns them."""
        if not (changes.remove or changes.remove_runs):
            return ()
        gone = [message for _, message in changes.remove or stored.between(changes.remove_runs)]
        for message in gone:
            stored.remove(message.id)
        return gone

    def _wipe(self, changes: Changes) -> Applied:
        stored, tenant = self._kept, self._tenant
        if changes.wipes == "everything":
            receipt = tenant.drop(self.context, self.id)
            self._kept = None
            if changes.state is None:
                tenant.add_tombstones(changes.tombstones, self.context.now)
            return _applied(receipt)
        if changes.wipes == "messages" and stored is not None:
            gone, summaries = [message for _, message in stored.all_messages()], len(stored.summaries)
            stored.clear()
            blobs = tenant.drop_blobs(self.context, digests(gone))
            return Applied(messages=len(gone), summaries=summaries, blobs=blobs, physically_gone=True)
        return _NOTHING_WIPED

    def _store(self, stored: MemoryConversation, changes: Changes) -> None:
        """Stores summaries, messages and their blobs. Messages are copied, because callers may change theirs."""
        for sha256, data in changes.blobs.items():
            self._tenant.blobs.setdefault(sha256, StoredBlob(data, NOT_YET))
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                stored.insert(segment, own_message(message), draft.size)
        if changes.update is not None:
            new = changes.update.draft
            stored.put(own_message(changes.update.after), new.size if new else None)
        if changes.lost_summaries:
            stored.summaries = [each for at, each in enumerate(stored.summaries) if at not in changes.lost_summaries]
        if changes.new_summary is not None:
            stored.summaries.append(changes.new_summary)

    def _store_tenant_data(self, changes: Changes) -> None:
        tenant = self._tenant
        if changes.tombstones:
            tenant.add_tombstones(changes.tombstones, self.context.now)
        if changes.usage:
            tenant.add_usage(changes.usage)
        for change in changes.records:
            tenant.set_record(record_key(self.context, *change.key), change.record)


def _applied(receipt: Receipt) -> Applied:
    return Applied(
        messages=receipt.messages,
        summaries=receipt.summaries,
        records=receipt.records,
        blobs=receipt.blobs,
        physically_gone=True,
    )


def answer(tenant: MemoryTenant, context: Context, stored: MemoryConversation | None, wants: Wants) -> Found:
    """Returns the answers as copies, which callers may change. `stored` is None if there is no conversation."""
    found: dict[str, Any] = {}
    if wants.tombstones:
        found["tombstones"] = {each: tenant.tombstones[each] for each in wants.tombstones if each in tenant.tombstones}
    if wants.blobs:
        found["blobs"] = {each: tenant.blobs[each].data for each in wants.blobs if each in tenant.blobs}
    if wants.records:
        records = ((key, tenant.live_record(context, record_key(context, *key))) for key in wants.records)
        found["records"] = {key: own_record(record) for key, record in records if record}
    if stored is None:
        return Found(**found)
    if wants.ids:
        found["by_id"] = {
            id: (stored.places[id][0], own_message(each)) for id in wants.ids if (each := stored.find(id))
        }
    if wants.runs:
        messages = stored.between(wants.runs) if wants.newest is None else stored.newest(wants.runs, wants.newest)
        found["messages"] = [(segment, own_message(message)) for segment, message in messages]
    if wants.spans:
        found["spans"] = [stored.span(run) for run in wants.spans]
    if wants.last_time_without is not None:
        found["last_time"] = stored.last_time(wants.last_time_without)
    if wants.summaries:
        found["summaries"] = list(stored.summaries)
    return Found(**found)
