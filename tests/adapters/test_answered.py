"""Results behind their calls: for frameworks to which a call that is not answered at once is an error."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hansard import Message
from hansard.adapters.history import answered

OWN = "langchain"


def call(*ids: str) -> Message:
    """As Gemini makes calls: without ids they are known by their names."""
    parts = [{"functionCall": {"name": id, "args": {}}} for id in ids]
    return Message("assistant", {"role": "model", "parts": parts}, format="gemini")


def result(*ids: str) -> Message:
    parts = [{"functionResponse": {"name": id, "response": {}}} for id in ids]
    return Message("tool", {"role": "user", "parts": parts}, format="gemini")


def user(text: str = "Hm?") -> Message:
    return Message("user", text)


def own(kind: str, **data: Any) -> Message:
    return Message("assistant", {"type": kind, "data": {"content": "", **data}}, format=OWN)


@pytest.mark.parametrize(
    ("messages", "order"),
    [
        ([call("a"), call("b"), result("a"), result("b")], [0, 2, 1, 3]),
        ([call("a"), call("b"), result("b"), result("a")], [0, 3, 1, 2]),
        ([call("a", "b"), result("b"), result("a")], [0, 1, 2]),
        ([call("a"), call("b"), result("a", "b")], [0, 1, 2]),
        ([call("a"), user(), result("a")], [0, 2, 1]),
        ([call("a"), own("ai"), result("a")], [0, 2, 1]),
        ([call("a"), call("a"), result("a"), result("a")], [0, 2, 1, 3]),
        ([user(), call("a"), user(), call("a"), result("a")], [0, 1, 2, 3, 4]),
        ([call("a"), user(), call("a"), call("a"), result("a"), result("a"), result("a")], [0, 6, 1, 2, 4, 3, 5]),
        ([result("a"), call("a")], [0, 1]),
        ([call("a"), result("a"), result("a")], [0, 1, 2]),
        ([call("a"), user(), own("tool", tool_call_id="a")], [0, 1, 2]),
        ([user(), call("a"), user()], [0, 1, 2]),
        ([], []),
    ],
)
def test_the_order(messages: list[Message], order: list[int]) -> None:
    told = answered(messages, OWN)
    assert [next(at for at, each in enumerate(messages) if each is message) for message in told] == order


@pytest.mark.parametrize("seed", range(50))
def test_nothing_is_lost_and_nothing_comes_twice(seed: int) -> None:
    chance = random.Random(seed)
    made = (lambda: call(*ids()), lambda: result(*ids()), user, lambda: own("ai"))

    def ids() -> list[str]:
        return chance.choices("abc", k=chance.randint(1, 2))

    messages = [chance.choice(made)() for _ in range(chance.randint(1, 30))]
    told = answered(messages, OWN)
    assert sorted(map(id, told)) == sorted(map(id, messages))
    assert [each for each in told if each.role != "tool"] == [each for each in messages if each.role != "tool"]
