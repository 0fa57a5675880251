"""Values: frozen, equal by id where they are messages, exact where they are times and sums."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard import model
from hansard.model import BlobRef, Conversation, Message, Messages, Participant, Receipt, Record, from_micros, to_micros
from hansard.testing import strategies

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_two_messages_are_the_same_when_their_ids_are() -> None:
    assert Message("user", "a", id="1") == Message("assistant", "b", id="1")
    assert Message("user", "a", id="1") != Message("user", "a", id="2")
    assert len({Message("user", "a", id="1"), Message("user", "b", id="1")}) == 1
    assert Message("user", "a", id="1") != "1"


def test_messages_without_an_id_are_the_same_only_as_themselves() -> None:
    one, other = Message("user", "a"), Message("user", "a")
    assert one == one  # noqa: PLR0124
    assert one != other
    assert len({one, other}) == 2


@pytest.mark.parametrize(
    "value", [Message("user", "x"), Conversation("c"), Participant("user", "u"), Record(("n",), "k", 1)]
)
def test_values_are_frozen(value: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        value.id = "other"  # type: ignore[attr-defined]


def test_defaults_are_not_shared() -> None:
    one, other = Conversation("a"), Conversation("b")
    one.metadata["x"] = 1
    assert other.metadata == {}


@given(st.datetimes(timezones=st.just(UTC)))
def test_micros_are_exact(time: datetime) -> None:
    assert from_micros(to_micros(time)) == time


@given(strategies.times(), strategies.times())
def test_micros_keep_the_order(one: datetime, other: datetime) -> None:
    assert (to_micros(one) < to_micros(other)) == (one < other)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain", "plain"),
        (None, ""),
        (5, ""),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}], "a"),
        ({"role": "user", "content": "a"}, "a"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"parts": [{"text": "a"}, {"functionCall": {"name": "f"}}]}, "a"),
        ({"type": "message", "content": [{"type": "output_text", "text": "a"}]}, "a"),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "found"}]}], "found"),
    ],
)
def test_the_text_of_any_format(content: object, text: str) -> None:
    assert Message("user", content).text == text


@pytest.mark.parametrize(
    ("prefix", "media_type"),
    [
        ("data:image/png;base64,", "image/png"),
        ("", None),
        ("data:;base64,", None),
        ("data:a/b;charset=x;base64,", "a/b"),
    ],
)
def test_the_media_type_of_a_blob(prefix: str, media_type: str | None) -> None:
    assert BlobRef("0" * 64, 1, (), prefix).media_type == media_type


def test_receipts_add_up() -> None:
    one = Receipt(conversations=1, messages=2, blobs=3, at=NOW, physically_gone=True)
    other = Receipt(messages=1, records=4, usage_rows=5, branches=6, summaries=7, at=NOW + timedelta(1))
    total = one + other
    assert total == Receipt(
        conversations=1, messages=3, blobs=3, records=4, usage_rows=5, branches=6, summaries=7, at=other.at
    )
    assert not total.physically_gone
    assert (one + Receipt(at=NOW, physically_gone=True)).physically_gone


def test_a_receipt_of_nothing_is_false() -> None:
    assert not Receipt(at=NOW, physically_gone=True)
    for name in ("conversations", "messages", "branches", "summaries", "records", "blobs", "usage_rows"):
        assert msgspec.structs.replace(Receipt(at=NOW), **{name: 1})


def test_a_page_knows_whether_there_is_more() -> None:
    assert Messages([Message("user", "x")], has_more=True).has_more
    assert not Messages().has_more
    assert Messages([Message("user", "x", id="1")]) == [Message("user", "x", id="1")]


def test_the_public_names_are_there() -> None:
    for name in hansard.__all__:
        assert getattr(hansard, name) is not None
    values = {
        name for name, value in vars(model).items() if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    assert values - {"Struct"} <= set(hansard.__all__), "every value that a caller can meet is importable from hansard"
