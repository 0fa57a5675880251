"""The pure decisions. What they come to in a store is proved by the contract; here is what only they can show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from hansard import codec, rules
from hansard.contract.types import (
    Append,
    Context,
    ConversationState,
    Draft,
    MessageQuery,
    NewConversation,
    StoredBranch,
)
from hansard.errors import Conflict, MessageNotFound, NotFound
from hansard.model import NOT_YET, Conversation, Message, Usage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTEXT = Context("t", NOW)


def stored(seq: int, **fields: Any) -> Message:
    return Message("user", "x", id=f"m{seq}", seq=seq, created_at=NOW + timedelta(seconds=seq), **fields)


def sound() -> tuple[ConversationState, list[tuple[int, Message]]]:
    """Four messages on two lines: `main` reads 1 2 3, `side` reads 1 2 and then 4."""
    branches = {
        "main": StoredBranch("main", 1, count=3),
        "side": StoredBranch("side", 2, path=((1, 2),), count=3, parent="main"),
    }
    conversation = Conversation("c", message_count=4, last_message_at=NOW + timedelta(seconds=4), branch="side")
    rows = [(1, stored(1)), (1, stored(2)), (1, stored(3)), (2, stored(4))]
    return ConversationState(conversation, 4, branches), rows


def problems(head: ConversationState, rows: list[tuple[int, Message]]) -> list[str]:
    return [problem.what for problem in rules.audit("here", head, rows)]


def test_a_sound_conversation_has_no_problems() -> None:
    assert problems(*sound()) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"message_count": 5}, "message_count is 5"),
        ({"last_message_at": NOW}, "last_message_at"),
        ({"last_message_at": None}, "last_message_at"),
        ({"branch": "gone"}, "the active branch 'gone' does not exist"),
    ],
)
def test_wrong_counters_are_found(change: dict[str, Any], says: str) -> None:
    head, rows = sound()
    wrong = structs.replace(head, conversation=structs.replace(head.conversation, **change))
    assert any(says in what for what in problems(wrong, rows))


def test_wrong_rows_are_found() -> None:
    head, rows = sound()
    assert any("the last seq is 3" in what for what in problems(structs.replace(head, seq=3), rows))
    missing = problems(head, rows[:2] + rows[3:])
    assert any("3 messages are stored" in what for what in missing)
    assert any("branch 'main' counts 3 messages, but reads 2" in what for what in missing)
    twice = [*rows, (2, structs.replace(stored(4), seq=5))]
    assert any("'m4' is stored twice" in what for what in problems(head, twice))
    swapped = [rows[1], rows[0], *rows[2:]]
    assert any("seq 1 of message 'm1' does not follow 2" in what for what in problems(head, swapped))


def test_a_place_beyond_what_a_branch_reads() -> None:
    head, _ = sound()
    side = head.branches["side"]
    assert rules.segments(side) == ((1, 2), (2, rules.NO_END))
    assert rules.sees(side, 1, 2)
    assert not rules.sees(side, 1, 3)
    assert rules.clip(side, 1, 1) == ((1, 1),)
    assert rules.clip(side, 2, 4) == ((1, 2), (2, 4))
    with pytest.raises(MessageNotFound):
        rules.clip(head.branches["main"], 2, 4)
    with pytest.raises(NotFound):
        head.branch("gone")


def test_seq_comes_from_the_head_and_not_from_what_is_stored() -> None:
    head = rules.new_state(CONTEXT, "c", NewConversation(), 1)
    head = structs.replace(head, seq=41)
    draft = Draft(Message("user", "x", id="m"), "x", 1, given_id=True)
    plan = rules.plan_append(CONTEXT, head, Append((draft,), None), {})
    assert [message.seq for message, _ in plan.fresh] == [42]
    assert plan.state.seq == 42


@pytest.mark.parametrize(
    ("written", "now", "last", "given"),
    [
        (NOT_YET, 5, None, 5),
        (NOT_YET, 5, 9, 9),
        (NOT_YET, 9, 5, 9),
        (NOW + timedelta(seconds=1), 5, 9, 1),
    ],
)
def test_the_time_of_a_message(written: datetime, now: int, last: int | None, given: int) -> None:
    context = Context("t", NOW + timedelta(seconds=now))
    conversation = Conversation("c", last_message_at=None if last is None else NOW + timedelta(seconds=last))
    draft = Draft(Message("user", "x", id="m", created_at=written), "x", 1, given_id=True)
    placed, _, newest = rules.place(context, conversation, "main", 0, [draft])
    assert placed[0][0].created_at == newest == NOW + timedelta(seconds=given)


def test_between_two_places() -> None:
    message = stored(5)
    here = rules.position(message)
    for sort in ("seq", "time"):
        query = MessageQuery(sort=sort)
        assert rules.is_between(message, query)
        assert not rules.is_between(message, structs.replace(query, above=here)), "a place is exclusive"
        assert not rules.is_between(message, structs.replace(query, below=here))
        assert rules.is_between(message, structs.replace(query, above=(here[0] - 1, 4), below=(here[0] + 1, 6)))
    # By seq, the time in a place says nothing.
    assert rules.is_between(message, MessageQuery(above=(here[0] + 99, 4)))
    assert not rules.is_between(message, MessageQuery(sort="time", above=(here[0] + 99, 4)))


def test_usage_that_changed_takes_the_old_back() -> None:
    conversation = Conversation("c", user_id="u", agent_id="a")
    rows = rules.usage_change(conversation, stored(1), Usage(5, model="m"), Usage(7, model="n"))
    assert [(key, row.messages, row.input_tokens) for key, row in rows] == [
        (("2026-01-01", "u", "a", "m"), -1, -5),
        (("2026-01-01", "u", "a", "n"), 1, 7),
    ]
    total = rules.add_usage(rows[0][1], rows[1][1])
    assert (total.messages, total.input_tokens) == (0, 2)


def test_who_may_see() -> None:
    mine = Conversation("c", user_id="u", expires_at=NOW + timedelta(seconds=1))
    assert rules.is_visible(mine, Context("t", NOW))
    assert rules.is_visible(mine, Context("t", NOW, "u"))
    assert not rules.is_visible(mine, Context("t", NOW, "v"))
    assert not rules.is_visible(mine, Context("t", NOW + timedelta(seconds=1), "u"))
    assert not rules.is_visible(Conversation("c"), Context("t", NOW, "u"))


def test_what_was_deleted_is_refused_by_name() -> None:
    head = ConversationState(Conversation("c"), 0, {}, has_tombstones=True)
    drafts = [Draft(Message("user", "x", id="m", created_at=NOW), "x", 1, given_id=True)]
    rules.refuse_deleted(CONTEXT, head, drafts, lambda _: None)
    has_tombstones = {codec.digest("c", "m"): NOW}
    with pytest.raises(Conflict, match="'m' of conversation 'c' was deleted"):
        rules.refuse_deleted(CONTEXT, head, drafts, has_tombstones.get)
    tombstone_digest = {rules.tombstone_digest(CONTEXT, "c"): NOW}
    with pytest.raises(Conflict, match=r"'c' was deleted at .* after message 'm' was written"):
        rules.refuse_deleted(CONTEXT, head, drafts, tombstone_digest.get)
    rules.refuse_deleted(CONTEXT, head, drafts, {rules.tombstone_digest(CONTEXT, "c"): NOW - timedelta(seconds=1)}.get)
