"""`compat="toolpack"`: exactly the prompt that toolpack makes, and nothing deleted.

`Oracle` does what toolpack 3.0.0 does, written from a description of its behaviour, with a store that really deletes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.assembly.talk import ANN, BEN, HELPER, SCOUT, said

from hansard import Message, Participant, sync
from hansard.assembly import SummaryRequest
from hansard.testing import Clock

SYSTEM = Participant("system", "s")


class Counting:
    """A summarizer that says how many messages it was shown, and remembers the requests."""

    model = "test"
    prompt_id = None

    def __init__(self) -> None:
        self.requests: list[SummaryRequest] = []

    async def summarize(self, request: SummaryRequest) -> str:
        self.requests.append(request)
        return f"summary {len(self.requests)}"


class Failing(Counting):
    async def summarize(self, request: SummaryRequest) -> str:
        raise RuntimeError("no model today")


class Oracle:
    def __init__(self) -> None:
        self.stored: list[dict[str, Any]] = []
        self.rolled = 0

    def append(self, message: Message, at: datetime) -> None:
        who = message.participant
        assert who is not None
        said = {"kind": who.kind, "by": who.id, "name": who.display_name, "text": message.content}
        self._put({"id": message.id, "at": at, "mentions": message.mentions, **said})

    def _put(self, entry: dict[str, Any]) -> None:
        self.stored = sorted([*self.stored, entry], key=lambda each: each["at"])

    def assemble(self, agent: str, *, budget: int, threshold: int, limit: int, addressed: bool, summarize: bool) -> Any:
        found = self.stored[-limit:]
        if addressed:
            found = [
                each
                for at, each in enumerate(found)
                if each["by"] == agent
                or agent in each["mentions"]
                or at == len(found) - 1
                or (found[at + 1]["kind"] == "agent" and found[at + 1]["by"] == agent)
            ]
        if len(found) > threshold:
            found = self._roll(found) if summarize else found[-threshold:]
        said = [self._said(each, agent) for each in found]
        kept: list[Any] = []
        spent = 0
        for message in reversed(said):
            cost = math.ceil(len(message["content"].encode("utf-16-le")) / 2 / 4)
            if kept and spent + cost > budget:
                break
            kept.insert(0, message)
            spent += cost
        return kept, spent

    def _roll(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        old, new = found[: len(found) // 2], found[len(found) // 2 :]
        self.rolled += 1
        raw = sum(not each["id"].startswith("summary") for each in old)
        gone = {each["id"] for each in old}
        text = f"[Summary of {raw} earlier turns]: summary {self.rolled}"
        rolled: dict[str, Any] = {
            "id": f"summary{self.rolled}",
            "kind": "system",
            "by": "summarizer",
            "name": None,
            "text": text,
        }
        rolled |= {"at": old[0]["at"], "mentions": ()}
        self._put(rolled)
        self.stored = [each for each in self.stored if each["id"] not in gone]
        return [rolled, *new]

    @staticmethod
    def _said(each: dict[str, Any], agent: str) -> dict[str, str]:
        name = each["by"] if each["name"] is None else each["name"]
        if each["kind"] == "system":
            return {"role": "system", "content": each["text"]}
        if each["kind"] == "agent" and each["by"] == agent:
            return {"role": "assistant", "content": each["text"]}
        label = f"{name} (agent)" if each["kind"] == "agent" else name
        return {"role": "user", "content": f"{label}: {each['text']}"}


SPEAKERS = [ANN, BEN, HELPER, SCOUT, SYSTEM, Participant("user", "helper"), Participant("user", "u9", "")]
STEPS = st.lists(
    st.tuples(st.sampled_from(SPEAKERS), st.sampled_from(["hi", "😀" * 7, "x" * 90]), st.booleans(), st.integers(0, 2)),
    max_size=14,
)
CALLS = st.fixed_dictionaries(
    {
        "budget": st.sampled_from([0, 20, 60, 3000]),
        "threshold": st.integers(1, 6),
        "limit": st.integers(1, 20),
        "addressed": st.booleans(),
        "summarize": st.booleans(),
    }
)


HI = (ANN, "hi", False, 0)
ONE = {"budget": 0, "threshold": 1, "limit": 1, "addressed": False, "summarize": False}


@settings(deadline=None)
@example([([HI, HI], ONE), ([], {**ONE, "limit": 2, "summarize": True}), ([HI], ONE)])  # all at one time
@given(st.lists(st.tuples(STEPS, CALLS), max_size=5))
def test_it_is_what_toolpack_would_give(rounds: list[tuple[Any, dict[str, Any]]]) -> None:
    clock, oracle, summarizer = Clock(), Oracle(), Counting()
    clock.stop()
    count = 0
    with sync.connect("memory://", clock=clock) as store:
        for steps, options in rounds:
            for who, text, mentions, later in steps:
                at = clock.advance(timedelta(seconds=later))
                message = said(who, text, id=f"m{count}", mentions=("helper",) if mentions else ())
                store.append("c", message)
                oracle.append(message, at)
                count += 1
            expected, tokens = oracle.assemble("helper", **options)
            prompt = store.assemble_prompt(
                "c",
                agent_id="helper",
                compat="toolpack",
                token_budget=options["budget"],
                summary_threshold=options["threshold"],
                max_turns=options["limit"],
                addressed_only=options["addressed"],
                summarizer=summarizer if options["summarize"] else None,
            )
            assert prompt.messages == expected
            assert prompt.tokens == tokens
        assert len(list(store.iter_messages("c"))) == count, "nothing is deleted"


# --- the cases that were measured on toolpack itself ------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.connect("memory://") as opened:
        yield opened


def turns(store: sync.Store, first: int, last: int) -> None:
    for number in range(first, last + 1):
        store.append("c", said(ANN if number % 2 else HELPER, f"t{number}"))


def assemble(store: sync.Store, **options: Any) -> list[dict[str, str]]:
    return store.assemble_prompt("c", agent_id="helper", compat="toolpack", **options).messages


def test_when_it_rolls(store: sync.Store) -> None:
    turns(store, 1, 40)
    summarizer = Counting()
    assert len(assemble(store, summarizer=summarizer)) == 40
    turns(store, 41, 41)
    rolled = assemble(store, summarizer=summarizer)
    assert len(rolled) == 22
    assert rolled[0] == {"role": "system", "content": "[Summary of 20 earlier turns]: summary 1"}
    assert rolled[1]["content"] == "Ann: t21"
    assert [request.max_tokens for request in summarizer.requests] == [750]


def test_its_summary_vanishes_from_the_next_prompt(store: sync.Store) -> None:
    turns(store, 1, 41)
    assemble(store, summarizer=Counting())
    assert assemble(store)[0]["content"] == "Ann: t21"


def test_its_second_summary_forgets_the_first(store: sync.Store) -> None:
    turns(store, 1, 41)
    summarizer = Counting()
    assemble(store, summarizer=summarizer)
    turns(store, 42, 80)
    assemble(store, summarizer=summarizer)
    seen = [message.text for request in summarizer.requests for message in request.messages]
    assert summarizer.requests[1].previous is None
    assert seen[0] == "t1"
    # Ours does not: everything is still there, and the default mode builds on what was summarized.
    assert len(store.get_messages("c", last=200)) == 80


def test_a_deleted_message_takes_its_summary(store: sync.Store) -> None:
    turns(store, 1, 41)
    assemble(store, summarizer=Counting())
    assert [each.text for each in store.list_summaries("c")] == ["[Summary of 20 earlier turns]: summary 1"]
    assert "summary 1" not in str([record.value for record in store.records.iter()])
    store.delete_message("c", store.get_messages("c", limit=1)[0].id)
    assert store.list_summaries("c") == []
    assert len(assemble(store)) == 40, "what it stood for is seen again"


def test_a_summary_of_nothing_but_a_summary(store: sync.Store) -> None:
    for number in range(1, 4):
        store.append("c", said(ANN, f"t{number}"))
    options: dict[str, Any] = {"summarizer": Counting(), "summary_threshold": 1, "addressed_only": False}
    assert assemble(store, **options)[0]["content"] == "[Summary of 1 earlier turns]: summary 1"
    again = assemble(store, **options)
    assert [message["content"] for message in again] == [
        "[Summary of 0 earlier turns]: summary 2",
        "Ann: t2",
        "Ann: t3",
    ]


def test_its_summaries_are_its_own(store: sync.Store) -> None:
    turns(store, 1, 41)
    assemble(store, summarizer=Counting())
    assert store.assemble_prompt("c", agent_id="helper").summary is None


def test_a_small_budget_drops_its_summary(store: sync.Store) -> None:
    for number in range(41):
        store.append("c", said(HELPER if number % 2 else ANN, "x" * (400 if number % 2 else 395)))
    prompt = assemble(store, token_budget=500, summarizer=Counting())
    assert len(prompt) == 5
    assert all(message["role"] != "system" for message in prompt)


def test_a_summarizer_that_fails(store: sync.Store) -> None:
    turns(store, 1, 50)
    prompt = store.assemble_prompt("c", agent_id="helper", compat="toolpack", summarizer=Failing())
    assert len(prompt.messages) == 40
    assert prompt.problems == ["the summarizer failed: RuntimeError: no model today"]


def test_the_explanation(store: sync.Store) -> None:
    store.append("c", [said(BEN, "noise"), said(BEN, "noise"), said(HELPER, "own")])
    prompt = store.assemble_prompt("c", agent_id="helper", compat="toolpack")
    assert [decision.why for decision in prompt.decisions] == ["not_addressed", "fits", "newest"]
    assert prompt.loaded == 3


def test_scope_and_window(store: sync.Store) -> None:
    store.append("c", [said(ANN, "a", scope="dm"), said(ANN, "b", scope="thread")])
    assert assemble(store, scope="dm") == [{"role": "user", "content": "Ann: a"}]
    assert len(assemble(store, time_window=timedelta(hours=1), addressed_only=False)) == 2


def test_content_of_other_formats_is_its_text(store: sync.Store) -> None:
    store.append("c", Message("user", [{"type": "text", "text": "see"}], format="anthropic"))
    assert assemble(store) == [{"role": "user", "content": "user: see"}]
