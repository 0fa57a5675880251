"""Cursors: opaque, of one listing only, refused when damaged or forged."""

from __future__ import annotations

import base64
import zlib
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard import cursors
from hansard.contract.types import RecordQuery
from hansard.errors import ValidationError
from hansard.model import Conversation, Message, Record, to_micros
from hansard.testing import strategies


@given(strategies.times(), st.integers(0, 2**60), strategies.ids())
def test_a_place_comes_back(time: datetime, seq: int, id: str) -> None:
    message = Message("user", "x", conversation_id=id, seq=seq, created_at=time)
    assert cursors.message_position(message.cursor, id) == (to_micros(time), seq)
    assert cursors.message_seen(message.cursor, id) is None
    growing = Message("user", "x", conversation_id=id, seq=seq, created_at=time, updated_at=time, status="in_progress")
    assert cursors.message_position(growing.cursor, id) == (to_micros(time), seq)
    assert cursors.message_seen(growing.cursor, id) == to_micros(time)
    conversation = Conversation(id, created_at=time, updated_at=time)
    for sort in ("last_message_at", "updated_at"):
        cursor = cursors.of_conversation(conversation, sort)
        assert cursors.conversation_position(cursor, sort) == (to_micros(time), id)
    record = Record(("a", id), id, None)
    scan = RecordQuery(prefix=("a",))
    assert cursors.record_position(cursors.of_record(record, scan), scan) == (("a", id), id)


def test_they_are_not_taken_for_ids() -> None:
    assert cursors.is_cursor(Message("user", "x", conversation_id="c").cursor)
    assert not cursors.is_cursor("msg_1")


def test_they_carry_nothing_but_a_place() -> None:
    message = Message("user", "secret", id="secret", conversation_id="secret", metadata={"a": "secret"})
    raw = base64.urlsafe_b64decode(message.cursor.removeprefix(cursors.PREFIX) + "==")
    assert b"secret" not in raw


def forge(payload: Any, home: str = "c") -> str:
    encoded = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
    check = zlib.crc32(encoded, zlib.crc32(home.encode())).to_bytes(4)
    return cursors.PREFIX + base64.urlsafe_b64encode(check + encoded).decode().rstrip("=")


def test_the_forger_knows_the_format() -> None:
    """Otherwise the test below would prove nothing."""
    assert cursors.message_position(forge(["m", 1, 2]), "c") == (1, 2)


@pytest.mark.parametrize(
    "payload",
    [
        [],
        ["m"],
        ["m", 1],
        ["m", "1", "2"],
        ["m", None, 2],
        ["m", 1.5, 2],
        ["m", 10**30, 2],
        ["m", 1, -(10**30)],
        ["c", 1, 2],
        ["r", 1, 2],
        {"m": 1},
        "m",
        5,
        None,
        b"m",
        b"",
        b"\xff\xff",
        ["m", [1], 2],
        ["m", 1, 2, "3"],
        ["m", 1, 2, 10**30],
    ],
    ids=repr,
)
def test_a_forged_one_is_refused(payload: Any) -> None:
    with pytest.raises(ValidationError, match="cursor"):
        cursors.message_position(forge(payload), "c")


@pytest.mark.parametrize(
    "text", ["cursor:", "cursor:!", "cursor:é", "cursor:AAAA", "cursor:" + "A" * 500, "", "x", "\0"]
)
def test_a_malformed_one_is_refused(text: str) -> None:
    for read in (
        lambda: cursors.message_position(text, "c"),
        lambda: cursors.conversation_position(text, "updated_at"),
        lambda: cursors.record_position(text, RecordQuery()),
    ):
        with pytest.raises(ValidationError, match="cursor") as refused:
            read()
        assert len(str(refused.value)) < 250, "an error does not repeat what an attacker sent at length"


@given(st.integers(0, 100), st.integers(0, 63))
def test_a_changed_character_is_noticed(at: int, letter: int) -> None:
    cursor = Message("user", "x", conversation_id="c", seq=12345).cursor
    at = len(cursors.PREFIX) + at % (len(cursor) - len(cursors.PREFIX))
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    changed = cursor[:at] + alphabet[letter] + cursor[at + 1 :]
    raw = [base64.urlsafe_b64decode(each.removeprefix(cursors.PREFIX) + "==") for each in (cursor, changed)]
    if raw[0] != raw[1]:
        with pytest.raises(ValidationError):
            cursors.message_position(changed, "c")
