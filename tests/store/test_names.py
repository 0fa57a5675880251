"""Messages given as mappings may use the names and times of other stores, and results have their attributes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import hansard.sync
from hansard import Message, Participant, Source, ValidationError

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def store() -> Iterator[hansard.sync.Store]:
    with hansard.sync.connect("memory://") as store:
        yield store


def test_a_message_of_modernpath_and_one_of_toolpack(store: hansard.sync.Store) -> None:
    store.append(
        "c",
        [
            {
                "messageId": "m1",
                "conversationId": "c",
                "role": "assistant",
                "content": "Yes",
                "timestamp": NOON,
                "traceId": "t-1",
                "sources": [{"documentId": "d1", "documentName": "Guide", "chunk": "…", "score": 0.5}],
            },
            {
                "id": "m2",
                "role": "user",
                "participant": {"kind": "user", "id": "U7", "displayName": "Ann"},
                "content": "Hello",
                "timestamp": "2026-01-31T13:00:00+01:00",
                "usage": {"inputTokens": 3},
            },
        ],
    )
    first, second = store.get_messages("c")
    assert (first.id, first.created_at, first.trace_id) == ("m1", NOON, "t-1")
    assert first.sources == (Source("d1", "Guide", "…", 0.5),)
    assert second.participant == Participant("user", "U7", display_name="Ann")
    assert second.created_at == NOON
    assert second.usage is not None
    assert second.usage.input_tokens == 3


@pytest.mark.parametrize("name", ["created_at", "createdAt", "timestamp"])
@pytest.mark.parametrize(
    ("time", "kept"),
    [
        ("2026-01-31T12:00:00Z", NOON),
        ("2026-01-31T12:00:00.000001+00:00", NOON + timedelta(microseconds=1)),
        (NOON.astimezone(timezone(timedelta(hours=5))), NOON),
    ],
)
def test_times_of_other_stores_are_read(store: hansard.sync.Store, name: str, time: Any, kept: datetime) -> None:
    store.append("c", {"role": "user", "content": "Hello", name: time})
    assert store.get_messages("c")[0].created_at == kept


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"timestamp": "yesterday"}, "created_at is 'yesterday', which is not a time: write it as"),
        ({"timestamp": "2026-01-31T12:00:00"}, "created_at has no time zone"),
        ({"createdAt": 1767225600000}, "created_at must be a datetime, not a int"),
        ({"id": "a", "messageId": "a"}, "a message says its 'id' twice, once as 'messageId'"),
        ({"timestamp": NOON, "createdAt": NOON}, "a message says its 'created_at' twice"),
        ({"mood": 1, "messageId": "a"}, r"a message has unknown fields \['mood'\]"),
        ({"participant": {"kind": "user", "id": "u", "displayName": "A", "display_name": "B"}}, "unknown fields"),
        ({"sources": [{"documentid": "d1"}]}, "a source has unknown fields"),
    ],
)
def test_unreadable_names_and_times_are_refused(store: hansard.sync.Store, given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        store.append("c", {"role": "user", "content": "Hello", **given})
    assert store.get_conversation("c") is None


def test_results_have_the_attributes_of_other_stores(store: hansard.sync.Store) -> None:
    id = store.append_message("c", "user", "Hello")
    message, conversation = store.get_messages("c")[0], store.get_conversation("c")
    assert (message.message_id, message.conversation_id) == (id, "c")
    assert conversation is not None
    assert conversation.conversation_id == "c"
    assert Message("user", "Hello").message_id == ""
    with pytest.raises(AttributeError):
        message.message_id = "other"  # type: ignore[misc]
