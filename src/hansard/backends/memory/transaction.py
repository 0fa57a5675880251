"""One conversation in memory, as an operation sees it. The storage holds its lock for as long as this is used."""

from __future__ import annotations

from msgspec import structs

from hansard.backends.memory.conversation import Kept, digests
from hansard.backends.memory.tenant import StoredBlob, Tenant, record_key
from hansard.backends.values import own_message, own_record
from hansard.contract.storage import Applied, Changes, Found, Wants
from hansard.contract.types import Context, Head
from hansard.model import NOT_YET, Receipt


class MemoryTransaction:
    def __init__(self, tenant: Tenant, context: Context, id: str) -> None:
        self.context = context
        self.id = id
        self._tenant = tenant
        self._kept = tenant.conversations.get(id)
        self._segments = 0
        """How many new segments the operation has asked for."""

    @property
    def state(self) -> Head | None:
        return self._kept.head if self._kept else None

    def new_segment(self) -> int:
        self._segments += 1
        return self._segments + (self._kept.last_segment() if self._kept else 0)

    async def get(self, wants: Wants) -> Found:
        return answer(self._tenant, self.context, self._kept, wants)

    async def apply(self, changes: Changes) -> Applied:
        wiped = self._wipe(changes)
        if changes.state is None:
            return wiped
        if self._kept is None:
            self._kept = self._tenant.add(changes.state)
        kept = self._kept
        gone = [placed[1] for placed in changes.remove] + [each for _, each in kept.between(changes.remove_runs)]
        for message in gone:
            kept.remove(message.id)
        self._store(kept, changes)
        kept.summaries = [each for at, each in enumerate(kept.summaries) if at not in changes.lost_summaries]
        if changes.new_summary is not None:
            kept.summaries.append(changes.new_summary)
        kept.head = changes.state
        self._store_beside(changes)
        released = [*gone, changes.update.before] if changes.update else gone
        return structs.replace(
            wiped,
            messages=wiped.messages + len(gone),
            summaries=wiped.summaries + len(changes.lost_summaries),
            blobs=wiped.blobs + self._tenant.drop_blobs(self.context, digests(released)),
        )

    def _wipe(self, changes: Changes) -> Applied:
        kept, tenant = self._kept, self._tenant
        if changes.wipes == "everything":
            receipt = tenant.drop(self.context, self.id)
            self._kept = None
            if changes.state is None:
                tenant.bury(changes.tombstones, self.context.now)
            return _applied(receipt)
        if changes.wipes == "messages" and kept is not None:
            gone, summaries = [message for _, message in kept.all_messages()], len(kept.summaries)
            kept.clear()
            blobs = tenant.drop_blobs(self.context, digests(gone))
            return Applied(messages=len(gone), summaries=summaries, blobs=blobs, physically_gone=True)
        return Applied(physically_gone=True)

    def _store(self, kept: Kept, changes: Changes) -> None:
        """Messages and the bytes that they refer to. They are copied: callers may keep and change theirs."""
        for sha256, data in changes.blobs.items():
            self._tenant.blobs.setdefault(sha256, StoredBlob(data, NOT_YET))
        for segment, fresh in changes.insert:
            for message, draft in fresh:
                kept.insert(segment, own_message(message), draft.size)
        if changes.update is not None:
            new = changes.update.draft
            kept.put(own_message(changes.update.after), new.size if new else None)

    def _store_beside(self, changes: Changes) -> None:
        tenant = self._tenant
        tenant.bury(changes.tombstones, self.context.now)
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


def answer(tenant: Tenant, context: Context, kept: Kept | None, wants: Wants) -> Found:
    """What is asked for, as copies: callers may change them. `kept` is None where there is no conversation."""
    records = ((key, tenant.live_record(context, record_key(context, *key))) for key in wants.records)
    beside = Found(
        tombstones={each: tenant.tombstones[each] for each in wants.tombstones if each in tenant.tombstones},
        blobs={each: tenant.blobs[each].data for each in wants.blobs if each in tenant.blobs},
        records={key: own_record(record) for key, record in records if record},
    )
    if kept is None:
        return beside
    messages = kept.between(wants.runs) if wants.newest is None else kept.newest(wants.runs, wants.newest)
    return structs.replace(
        beside,
        by_id={id: (kept.places[id][0], own_message(found)) for id in wants.ids if (found := kept.find(id))},
        messages=[(segment, own_message(message)) for segment, message in messages],
        spans=[kept.span(run) for run in wants.spans],
        last_time=kept.last_time(wants.last_time_without) if wants.last_time_without else None,
        summaries=list(kept.summaries) if wants.summaries else (),
    )
