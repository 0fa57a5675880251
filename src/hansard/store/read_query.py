"""Turns the arguments of a read into one query: positions, direction, filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from hansard import codec, cursors, rules
from hansard.contract.types import Context, MessageQuery
from hansard.errors import Corrupt
from hansard.limits import Limits
from hansard.model import SCOPES, Message, MessageSort, Order
from hansard.store import checks
from hansard.store.core import View

BlobMode = Literal["inline", "refs"]
NO_BLOBS: Mapping[str, bytes] = {}


class Filters(Struct, frozen=True):
    """The checked filters of a read."""

    roles: frozenset[str] | None = None
    participant_ids: frozenset[str] | None = None
    scope: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    pinned: bool | None = None


def filters(
    roles: Iterable[str] | None,
    participant_ids: Iterable[str] | None,
    scope: str | None,
    since: datetime | None,
    until: datetime | None,
    pinned: bool | None = None,
) -> Filters:
    wanted = checks.filter_set(roles, "roles")
    for role in wanted or ():
        checks.role(role)
    return Filters(
        wanted,
        checks.filter_set(participant_ids, "participant_ids"),
        scope if scope is None else checks.one_of(scope, SCOPES, "scope"),
        checks.optional_time(since, "since"),
        checks.optional_time(until, "until"),
        pinned if pinned is None else checks.flag(pinned, "pinned"),
    )


def query(limits: Limits, branch: str | None, sort: MessageSort, narrow: Filters) -> MessageQuery:
    return MessageQuery(
        branch=checks.optional_id(branch, "branch", limits),
        max_bytes=limits.page_bytes,
        sort=checks.one_of(sort, ("seq", "time"), "sort"),
        roles=narrow.roles,
        participant_ids=narrow.participant_ids,
        scope=narrow.scope,
        since=narrow.since,
        until=narrow.until,
        pinned=narrow.pinned,
    )


def unfiltered(query: MessageQuery) -> MessageQuery:
    return structs.replace(query, roles=None, participant_ids=None, scope=None, since=None, until=None, pinned=None)


def with_positions(
    base: MessageQuery, order: Order, after: tuple[int, int] | None, before: tuple[int, int] | None
) -> MessageQuery:
    """Returns the query with its direction and positions.

    `after` and `before` follow `order`; backends always count upwards.
    """
    newest_first = (order == "desc") != (before is not None)
    above, below = (after, before) if order == "asc" else (before, after)
    return structs.replace(base, newest_first=newest_first, above=above, below=below)


async def position(view: View, context: Context, conversation_id: str, place: str | None) -> tuple[int, int] | None:
    """Returns the position that a message id or a cursor names."""
    if place is None:
        return None
    text = checks.text(place, "after or before")
    if cursors.is_cursor(text):
        return cursors.message_position(text, conversation_id)
    found = await view.backend.find_messages(context, conversation_id, [text])
    if not found:
        raise rules.no_message(conversation_id, text)
    return rules.position(found[0])


async def with_blobs(
    view: View, context: Context, messages: list[Message], mode: BlobMode, known: Mapping[str, bytes] = NO_BLOBS
) -> list[Message]:
    """Returns the messages as callers see them: leases applied and blobs put back, unless references were requested.

    `known` are blobs already in memory: bytes just written need not be read again.
    """
    messages = rules.end_lapsed(messages, context.now)
    if mode == "refs" or not any(message.blobs for message in messages):
        return messages
    digests = dict.fromkeys(ref.sha256 for message in messages for ref in message.blobs if ref.sha256 not in known)
    found = {**known, **await _read_blobs(view, context, list(digests))}
    if any(ref.sha256 not in found for message in messages for ref in message.blobs):
        return await _with_blobs_still(view, context, messages, found)
    return [_whole(message, found) for message in messages]


async def _read_blobs(view: View, context: Context, digests: list[str]) -> dict[str, bytes]:
    found = await view.backend.get_blobs(context, digests) if digests else {}
    for sha256, data in found.items():
        codec.check_blob(sha256, data, f"tenant {context.tenant!r}")
    return found


async def _with_blobs_still(
    view: View, context: Context, messages: list[Message], found: Mapping[str, bytes]
) -> list[Message]:
    """Handles missing blobs: their messages were deleted or changed since they were read, or the blobs are lost.

    Messages and blobs are read one after the other, so a deletion between the two reads is not an error. A replica may
    not know of a deletion yet, so the primary decides.
    """
    context = structs.replace(context, replica=False)
    ids = [message.id for message in messages if message.blobs]
    now = {
        message.id: message for message in await view.backend.find_messages(context, messages[0].conversation_id, ids)
    }
    whole: list[Message] = []
    for message in messages:
        lost = next((ref for ref in message.blobs if ref.sha256 not in found), None)
        if lost is None:
            whole.append(_whole(message, found))
        elif message.id in now and now[message.id].blobs != message.blobs:
            whole += await with_blobs(view, context, [now[message.id]], "inline", found)
        elif message.id in now:
            where = f"message {message.id!r} of conversation {message.conversation_id!r}"
            raise Corrupt(f"blob {lost.sha256} of {where} is missing", where=where)
    return whole


def _whole(message: Message, found: Mapping[str, bytes]) -> Message:
    if not message.blobs:
        return message
    try:
        content = codec.restore(message.content, message.blobs, found)
    except (LookupError, TypeError) as error:
        where = f"message {message.id!r} of conversation {message.conversation_id!r}"
        raise Corrupt(f"{where} has no place for its blobs", where=where) from error
    return structs.replace(message, content=content, blobs=())
