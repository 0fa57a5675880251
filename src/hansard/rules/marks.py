"""Ratings and labels: what adding and removing them means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from hansard.contract.types import ConversationChange, MessageChange
from hansard.errors import QuotaExceeded
from hansard.model import LABELS, Message, Rating, labels_in

MOST_LABELS = 100
MOST_RATINGS = 1000


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
    """Returns the labels in the order in which they were added, each once."""
    left = tuple(each for each in dict.fromkeys((*labels, *added)) if each not in removed)
    if added:
        _check_number(len(left), MOST_LABELS, "labels")
    return left


def labelled(metadata: dict[str, Any], change: ConversationChange) -> dict[str, Any]:
    """Returns the metadata of a conversation with its labels changed: the same object if they did not change."""
    before = labels_in(metadata)
    after = changed_labels(before, change.added_labels, change.removed_labels)
    if after == before:
        return metadata
    others = {key: value for key, value in metadata.items() if key != LABELS}
    return {**others, LABELS: list(after)} if after else others


def _check_number(count: int, most: int, what: str) -> None:
    if count > most:
        raise QuotaExceeded(f"it would have {count:,} {what}; the limit is {most:,}", limit=most, value=count)
