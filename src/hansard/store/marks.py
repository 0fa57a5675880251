"""Ratings and labels: their checks, and the index that finds what has them.

The ratings and labels themselves are fields of messages, and metadata of conversations, so they are copied and deleted
with them. The index is a set of records that belong to the conversation:

- `("hansard", "marks", "label", label)`, conversation id: this conversation may have the label.
- `("hansard", "marks", "rating", value)`, conversation id: the ids of messages that may have such a rating.
- `("hansard", "members", user)`, conversation id: the user may be a member. `rules.membership` has this one.
- `("hansard", "marks", "rater", user, conversation id)`, message id: the user may have rated this message.

An entry is written before the mark and may outlive it, so readers compare it with what is stored. An entry is never
missing: what the index does not name has no mark.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from math import isnan
from typing import Any

from msgspec import structs

from hansard import rules
from hansard.analysis import Lookup, Match
from hansard.contract.backend import Backend
from hansard.contract.storage import RecordKey
from hansard.contract.types import Context, Draft, RecordQuery, RecordWrite
from hansard.errors import Conflict, Unavailable, ValidationError
from hansard.limits import Limits
from hansard.model import LABELS, MEMBERS, Conversation, Message, Rating, Record, texts_in
from hansard.shown import shown
from hansard.store import checks

MARKS = ("hansard", "marks")
_LABEL, _RATING, _RATER = "label", "rating", "rater"
_LARGEST = 1_000_000_000
_LONGEST_COMMENT = 10_000
_PAGE = 500
_TRIES = 100

# Checks


def checked_value(value: object) -> int | float:
    """Returns the value of a rating; a whole number as an integer, so that 1 and 1.0 are the same rating."""
    is_nan = isinstance(value, float) and isnan(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or is_nan:
        raise ValidationError(f"the value of a rating must be a number, not {shown(value)}")
    if abs(value) > _LARGEST:
        raise ValidationError(f"the value of a rating is {shown(value)}: it must be between ±{_LARGEST:,}")
    return int(value) if value == int(value) else float(value)


def checked_comment(comment: object) -> str | None:
    text = checks.optional_text(comment, "comment")
    if text is not None and len(text) > _LONGEST_COMMENT:
        raise ValidationError(f"comment has {len(text):,} characters; the limit is {_LONGEST_COMMENT:,}")
    return text


def checked_label(label: object, limits: Limits) -> str:
    if not isinstance(label, str):
        raise ValidationError(f"a label must be text, not {shown(label)}")
    name = checks.id_of(label, "a label", limits)
    if name != name.strip():
        raise ValidationError(f"the label {name!r} begins or ends with a space: leave it out")
    return name


def checked_labels(labels: object, limits: Limits) -> tuple[str, ...]:
    return tuple(dict.fromkeys(checked_label(each, limits) for each in checks.items(labels, "labels", "texts")))


def checked_ratings(ratings: object, limits: Limits) -> tuple[Rating, ...]:
    found = tuple(_checked_rating(each, limits) for each in checks.items(ratings, "ratings", "ratings"))
    if len({each.by for each in found}) < len(found):
        raise ValidationError("ratings has two by the same person: a message keeps one of each")
    return found


def _checked_rating(given: object, limits: Limits) -> Rating:
    if isinstance(given, Mapping):
        if unknown := set(given) - set(Rating.__struct_fields__):
            raise ValidationError(f"a rating has unknown fields {sorted(map(str, unknown))}")
        given = Rating(**{"value": None, **given})
    if not isinstance(given, Rating):
        raise ValidationError(f"a rating must be a Rating or a mapping, not {shown(given)}")
    return Rating(
        checked_value(given.value),
        checks.optional_id(given.by, "the rating's by", limits),
        checked_comment(given.comment),
        None if given.created_at is None else checks.time_of(given.created_at, "the rating's created_at"),
    )


def check_raters(user: str | None, drafts: Iterable[Draft]) -> None:
    """Refuses ratings in the name of others through a user's view."""
    if user is not None and any(each.by not in (None, user) for draft in drafts for each in draft.message.ratings):
        raise ValidationError("a user's view rates only for that user: leave the ratings of others out")


# Writing the index


async def note_labels(backend: Backend, context: Context, id: str, labels: Iterable[str]) -> None:
    """Notes that a conversation has, or is about to have, these labels."""
    await _note(backend, context, id, dict.fromkeys((_label_key(label, id) for label in labels), None))


async def note_members(backend: Backend, context: Context, id: str, members: Iterable[str]) -> None:
    """Notes that a conversation has, or is about to have, these members."""
    await _note(backend, context, id, dict.fromkeys((rules.membership_key(member, id) for member in members), None))


async def note_conversation(backend: Backend, context: Context, id: str, metadata: Mapping[str, Any]) -> None:
    """Notes the labels and members that metadata holds."""
    await note_labels(backend, context, id, texts_in(metadata, LABELS))
    await note_members(backend, context, id, texts_in(metadata, MEMBERS))


async def note_ratings(backend: Backend, context: Context, id: str, messages: Iterable[Message]) -> None:
    """Notes the ratings that messages have, or are about to have."""
    entries: dict[RecordKey, list[str] | None] = {}
    for message in messages:
        for rating in message.ratings:
            _ids_at(entries, _rating_key(rating.value, id)).append(message.id)
            if rating.by is not None:
                entries[(*MARKS, _RATER, rating.by, id), message.id] = None
    await _note(backend, context, id, entries)


def _ids_at(entries: dict[RecordKey, list[str] | None], key: RecordKey) -> list[str]:
    found = entries.setdefault(key, [])
    assert found is not None
    return found


async def _note(backend: Backend, context: Context, id: str, entries: Mapping[RecordKey, list[str] | None]) -> None:
    """Adds entries that are missing. A value of None has only a key; a list is merged with the stored one."""
    if not entries or not can_index(backend):
        return
    context = shared(context)
    for _ in range(_TRIES):
        found = await backend.get_records(context, list(entries))
        writes = [
            write
            for (key, value), record in zip(entries.items(), found, strict=True)
            if (write := _merged(key, value, record, id)) is not None
        ]
        try:
            if writes:
                await backend.write_records(context, writes)
        except Conflict:
            continue  # another process is writing one of them
        return
    raise Unavailable(f"other processes keep changing the ratings of conversation {id!r}: try again")


def _merged(key: RecordKey, value: list[str] | None, record: Record | None, id: str) -> RecordWrite | None:
    known: Any = None if record is None else record.value
    merged = list(dict.fromkeys([*(known or ()), *value])) if value is not None else True
    if merged == known:
        return None
    return RecordWrite(*key, merged, expected_revision=record.revision if record else 0, conversation_id=id)


async def forget_rater(backend: Backend, context: Context, user_id: str, id: str, message_ids: Sequence[str]) -> None:
    writes = [RecordWrite((*MARKS, _RATER, user_id, id), message_id, delete=True) for message_id in message_ids]
    await backend.write_records(shared(context), writes)


# Reading the index


def is_index(record: Record) -> bool:
    """Returns whether a record belongs to the index, which every store makes for itself."""
    return record.namespace[:2] in (MARKS, rules.MEMBERSHIPS)


def can_index(backend: Backend) -> bool:
    return backend.capabilities.records and backend.capabilities.keeps


def shared(context: Context) -> Context:
    """Returns the context of records that belong to conversations, not to a user's own."""
    return structs.replace(context, user=None)


def _label_key(label: str, id: str) -> RecordKey:
    return (*MARKS, _LABEL, label), id


def _rating_key(value: float, id: str) -> RecordKey:
    return (*MARKS, _RATING, repr(value)), id


async def rated_by(backend: Backend, context: Context, user_id: str, limit: int) -> dict[str, list[str]]:
    """Returns messages that the user may have rated, by conversation: at most `limit` messages."""
    if not can_index(backend):
        return {}
    query = RecordQuery(prefix=(*MARKS, _RATER, user_id), limit=limit)
    found, _ = await backend.scan_records(shared(context), query)
    messages: dict[str, list[str]] = {}
    for record in found:
        messages.setdefault(record.namespace[-1], []).append(record.key)
    return messages


class MarkFilter:
    """Conversations that have a label, a message with a rating, or both."""

    def __init__(self, backend: Backend, context: Context, label: str | None, rating: float | None) -> None:
        self._backend = backend
        self._context = context
        self._label = label
        self._rating = rating

    async def candidates(self, most: int) -> list[str] | None:
        """Returns the ids of all conversations that may match; None if there are more than `most`."""
        for namespace in self._namespaces():
            found = [id async for id in self._ids(namespace, most + 1)]
            if len(found) <= most:
                return found
        return None

    def _namespaces(self) -> list[tuple[str, ...]]:
        kinds = ((_LABEL, self._label), (_RATING, None if self._rating is None else repr(self._rating)))
        return [(*MARKS, kind, value) for kind, value in kinds if value is not None]

    async def _ids(self, namespace: tuple[str, ...], most: int) -> AsyncIterator[str]:
        query = RecordQuery(prefix=namespace, exact=True, limit=min(_PAGE, most))
        more = True
        while more and most > 0:
            page, more = await self._backend.scan_records(shared(self._context), query)
            for record in page:
                yield record.key
            most -= len(page)
            if page:
                query = structs.replace(query, after=(namespace, page[-1].key))

    async def matching(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """Returns those that really match, in their order."""
        label = self._label
        found = [each for each in conversations if label is None or label in each.labels]
        if self._rating is None or not found:
            return found
        keys = [_rating_key(self._rating, each.id) for each in found]
        entries = await self._backend.get_records(shared(self._context), keys)
        return [
            each
            for each, entry in zip(found, entries, strict=True)
            if entry is not None and await self._has_rating(each.id, entry.value)
        ]

    async def _has_rating(self, id: str, message_ids: Sequence[str]) -> bool:
        found = await self._backend.find_messages(self._context, id, message_ids)
        return any(rating.value == self._rating for message in found for rating in message.ratings)


def passes(match: Match, lookup: Lookup) -> bool:
    """Whether the message has the label, or is in a conversation that has it; and has such a rating."""
    label, rating = lookup.label, lookup.rating
    is_labelled = label is None or label in match.message.labels or label in match.conversation.labels
    return is_labelled and (rating is None or any(each.value == rating for each in match.message.ratings))
