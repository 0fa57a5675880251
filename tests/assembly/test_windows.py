"""`window` over a real store: by messages, turns or tokens; instructions and pinned messages stay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.assembly.talk import call, result

from hansard import Message, sync
from hansard.assembly import reader, window
from hansard.errors import ValidationError
from hansard.formats.dialogue import CLOSED


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.connect("memory://") as opened:
        yield opened


def roles(messages: list[Message]) -> str:
    return "".join(message.role[0] for message in messages)


def test_by_tokens(store: sync.Store) -> None:
    store.append("c", [Message("user", "x" * 36) for _ in range(250)])  # 13 tokens each
    assert len(store.window("c", tokens=130)) == 10
    assert len(store.window("c", tokens=13 * 220)) == 220, "it reads on, chunk by chunk"
    assert len(store.window("c", tokens=1)) == 1, "the newest is always there"
    assert len(store.window("c", tokens=10**6)) == 250


def test_instructions_and_pinned_messages_stay(store: sync.Store) -> None:
    store.append("c", [Message("system", "s"), Message("user", "p", pinned=True), Message("user", "x")])
    store.append("c", [Message("assistant", "y") for _ in range(50)])
    assert roles(store.window("c", messages=2)) == "suaa"
    assert roles(store.window("c", tokens=25)) == "suaaa"
    store.append("c", [Message("user", "z"), Message("assistant", "z")])
    assert roles(store.window("c", turns=1)) == "suua"
    assert roles(store.window("c", messages=60)) == "suu" + "a" * 50 + "ua", "none of them twice"


def test_what_is_pinned_in_the_middle_stays_with_its_group(store: sync.Store) -> None:
    store.append("c", [Message("user", "x") for _ in range(300)])
    middle = [Message("user", "q"), call("1", "2"), result("1"), result("2", "fact", pinned=True), Message("user", "p")]
    pinned = store.append("c", middle).messages[-1]
    store.append("c", [Message("assistant", "y") for _ in range(300)])
    assert roles(store.window("c", messages=2)) == "attaa"
    store.update_message("c", pinned.id, pinned=True)
    assert roles(store.window("c", messages=2)) == "attuaa"
    assert roles(store.window("c", tokens=70)) == "attuaaa"
    store.append("c", Message("user", "z"))
    assert roles(store.window("c", turns=1)) == "attuu"
    assert [message.content for message in store.get_messages("c", pinned=True)][-1] == "p"


def test_the_newest_pins_are_kept_where_there_are_too_many(store: sync.Store) -> None:
    store.append("c", [Message("user", f"{number}", pinned=True) for number in range(reader.MOST_PINNED + 5)])
    store.append("c", [Message("assistant", "y") for _ in range(5)])
    kept = store.window("c", messages=2)
    assert len(kept) == reader.MOST_PINNED + 2
    assert kept[0].content == "5"


def test_groups_within_tokens(store: sync.Store) -> None:
    store.append("c", [Message("user", "q"), call("1"), result("1", "x" * 400), Message("assistant", "a")])
    assert roles(store.window("c", tokens=50)) == "a"
    assert roles(store.window("c", tokens=500)) == "uata"


def test_a_dangling_call_is_closed_where_asked(store: sync.Store) -> None:
    store.append("c", [Message("user", "q"), call("1", "2"), result("2"), Message("user", "well?")])
    assert roles(store.window("c")) == "uu"
    closed = store.window("c", dangling="close")
    assert roles(closed) == "uattu"
    assert closed[2].content == [{"type": "tool_result", "id": "1", "output": CLOSED, "is_error": True}]
    assert window.valid(closed) == closed
    assert [item["role"] for item in store.to_openai_input(closed)] == ["user", "assistant", "tool", "tool", "user"]


def test_only_one_measure(store: sync.Store) -> None:
    with pytest.raises(ValidationError, match="messages and tokens cannot be used together"):
        store.window("c", messages=1, tokens=1)
    with pytest.raises(ValidationError, match="tokens is 0"):
        store.window("c", tokens=0)
    with pytest.raises(ValidationError, match="dangling is 'keep'"):
        store.window("c", dangling="keep")  # type: ignore[arg-type]
