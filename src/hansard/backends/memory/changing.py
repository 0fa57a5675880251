"""How messages go: named ones, the newest of a branch, or all. Whoever calls this holds the lock."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from msgspec import structs

from hansard import codec, rules
from hansard.backends.memory.conversation import Kept, digests, with_summary
from hansard.backends.memory.tenant import Tenant
from hansard.backends.values import own_message
from hansard.contract.types import Context, Remove, Removed
from hansard.model import Message, Receipt


def remove(tenant: Tenant, context: Context, kept: Kept, remove: Remove) -> Removed:
    rules.check_version(kept.head.conversation, remove.expected_version)
    return {"ids": _remove_ids, "last": _pop, "all": _clear}[remove.what](tenant, context, kept, remove)


def _remove_ids(tenant: Tenant, context: Context, kept: Kept, remove: Remove) -> Removed:
    gone = [message for each in dict.fromkeys(remove.ids) if (message := kept.find(each))]
    id = kept.head.conversation.id
    tenant.tombstones.update((codec.digest(id, message.id), context.now) for message in gone)
    receipt = take_out(tenant, context, kept, gone)
    kept.head = structs.replace(kept.head, buried=kept.head.buried or bool(gone))
    return Removed([own_message(message) for message in gone], receipt, kept.head.conversation.version)


def take_out(tenant: Tenant, context: Context, kept: Kept, gone: Sequence[Message]) -> Receipt:
    """Removes these messages, wherever they lie, and the summaries that cover them."""
    if not gone:
        return Receipt(at=context.now)
    places = [kept.places[message.id] for message in gone]
    for message in gone:
        kept.remove(message.id)
    summaries = kept.forget_summaries(places)
    kept.head = rules.without(context, kept.head, places, kept.newest())
    return receipt_of(tenant, context, gone, summaries)


def receipt_of(
    tenant: Tenant, context: Context, gone: Sequence[Message], summaries: int = 0, branches: int = 0
) -> Receipt:
    """What went with these messages. Their blobs go now, if nothing else refers to them."""
    return Receipt(
        messages=len(gone),
        branches=branches,
        summaries=summaries,
        blobs=tenant.drop_blobs(context, digests(gone)),
        at=context.now,
        physically_gone=True,
    )


def _pop(tenant: Tenant, context: Context, kept: Kept, remove: Remove) -> Removed:
    newest = list(islice(kept.read(remove.branch, newest_first=True), 2))
    if not newest:
        return Removed([], Receipt(at=context.now), kept.head.conversation.version)
    places = [(line, message.seq) for line, message in newest]
    after, doomed = rules.plan_pop(
        kept.head, remove, places[0], places[1] if len(places) > 1 else None, kept.fresh_line
    )
    summaries = len(kept.summaries)
    stored = tenant.blobs
    blobs = {ref.sha256: stored[ref.sha256].data for ref in newest[0][1].blobs if ref.sha256 in stored}
    gone = kept.remove_beyond(doomed)
    after = with_summary(after, kept.head.conversation.summary)
    kept.head = rules.shrunk(context, after, len(gone), kept.newest())
    receipt = receipt_of(tenant, context, gone, summaries - len(kept.summaries))
    return Removed([own_message(newest[0][1])], receipt, kept.head.conversation.version, blobs)


def _clear(tenant: Tenant, context: Context, kept: Kept, remove: Remove) -> Removed:
    gone = [message for _, message in kept.all_messages()]
    branches, summaries = len(kept.head.lanes) - 1, len(kept.summaries)
    kept.head = rules.cleared(context, kept.head)
    kept.lines, kept.places, kept.sizes, kept.pinned, kept.summaries = {}, {}, {}, set(), []
    return Removed([], receipt_of(tenant, context, gone, summaries, branches), kept.head.conversation.version)
