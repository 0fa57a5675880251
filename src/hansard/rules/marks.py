"""Ratings, labels and members: what adding and removing them means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from hansard.contract.types import ConversationChange, MessageChange
from hansard.errors import QuotaExceeded
from hansard.model import LABELS, MEMBERS, Message, Rating, texts_in

MOST_LABELS = 100
MOST_RATINGS = 1000
MOST_MEMBERS = 1000


def is_marking(change: MessageChange) -> bool:
    return bool(
        change.rating is not UNSET or change.unrated_by is not UNSET or change.added_labels or change.removed_labels
    )


def changed_marks(message: Message, change: MessageChange) -> dict[str, Any]:
    """Returns the ratings and labels of a message that a change alters; nothing if it has no effect on them."""
    ratings = changed_ratings(message.ratings, change)
    labels = changed_labels(message.labels, change.added_labels, change.removed_labels)
    changes: dict[str, Any] = {}
    if ratings != message.ratings:
        changes["ratings"] = ratings
    if labels != message.labels:
        changes["labels"] = labels
    return changes


def changed_ratings(ratings: tuple[Rating, ...], change: MessageChange) -> tuple[Rating, ...]:
    given = change.rating
    if isinstance(given, Rating):
        if any(_is_same_opinion(each, given) for each in ratings):
            return ratings
        ratings = (*(each for each in ratings if each.by != given.by), given)
        _check_number(len(ratings), MOST_RATINGS, "ratings")
    return tuple(each for each in ratings if each.by != change.unrated_by)


def _is_same_opinion(one: Rating, other: Rating) -> bool:
    """Returns whether repeating a call would change nothing but the time."""
    return (one.by, one.value, one.comment) == (other.by, other.value, other.comment)


def changed_labels(labels: tuple[str, ...], added: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    return _changed(labels, added, removed, MOST_LABELS, "labels")


def _changed(
    texts: tuple[str, ...], added: Sequence[str], removed: Sequence[str], most: int, what: str
) -> tuple[str, ...]:
    """Returns the texts in the order in which they were added, each once."""
    left = tuple(each for each in dict.fromkeys((*texts, *added)) if each not in removed)
    if added:
        _check_number(len(left), most, what)
    return left


def labelled(metadata: dict[str, Any], change: ConversationChange) -> dict[str, Any]:
    """Returns metadata with the labels and members changed: the same object if they did not change."""
    labels = changed_labels(texts_in(metadata, LABELS), change.added_labels, change.removed_labels)
    members = texts_in(metadata, MEMBERS)
    members = _changed(members, change.added_members, change.removed_members, MOST_MEMBERS, "members")
    return _with_texts(_with_texts(metadata, LABELS, labels), MEMBERS, members)


def _with_texts(metadata: dict[str, Any], key: str, texts: tuple[str, ...]) -> dict[str, Any]:
    if texts == texts_in(metadata, key):
        return metadata
    others = {name: value for name, value in metadata.items() if name != key}
    return {**others, key: list(texts)} if texts else others


def _check_number(count: int, most: int, what: str) -> None:
    if count > most:
        raise QuotaExceeded(f"it would have {count:,} {what}; the limit is {most:,}", limit=most, value=count)
