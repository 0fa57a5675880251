"""`assemble_prompt` over a real store: what is loaded, kept, dropped and said, and why."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.assembly.talk import ANN, BEN, HELPER, SCOUT, call, result, said
from tests.formats.histories import histories
from tests.formats.test_any_history import CHECKS

from hansard import Message, Prompt, sync
from hansard.assembly import Tokenizer, reader
from hansard.errors import NotFound, ValidationError
from hansard.testing import Clock


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.connect("memory://") as opened:
        yield opened


def texts(prompt: Prompt) -> list[Any]:
    return [message.get("content") for message in prompt.messages]


def whys(prompt: Prompt) -> list[str]:
    return [decision.why for decision in prompt.decisions]


def test_a_plain_conversation(store: sync.Store) -> None:
    store.append("c", [Message("system", "Be kind."), Message("user", "Hi"), Message("assistant", "Hello")])
    prompt = store.assemble_prompt("c")
    assert prompt.messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]
    assert whys(prompt) == ["system", "fits", "newest"]
    assert prompt.tokens == sum(decision.tokens for decision in prompt.kept)
    assert not prompt.is_over_budget
    assert prompt.loaded == 3
    assert not prompt.has_older
    assert prompt.explain().endswith(f"3 kept, 0 dropped, {prompt.tokens} of 3000 tokens")
    assert "reserved" not in prompt.explain()


def test_the_explanation_adds_up(store: sync.Store) -> None:
    store.append("c", [Message("user", "Hi")])
    prompt = store.assemble_prompt("c", system="Be kind.")
    message, reserved, total = prompt.explain().splitlines()
    assert reserved.split() == ["kept", "reserved", str(prompt.reserved), "system", "prompt", "and", "tools"]
    assert int(message.split()[2]) + prompt.reserved == prompt.tokens
    assert total == f"1 kept, 0 dropped, {prompt.tokens} of 3000 tokens"


def test_of_a_missing_conversation(store: sync.Store) -> None:
    prompt = store.assemble_prompt("missing", system="Be kind.")
    assert prompt.messages == [{"role": "system", "content": "Be kind."}]
    assert prompt.decisions == []


def test_the_newest_within_the_budget(store: sync.Store) -> None:
    store.append("c", [Message("user" if at % 2 else "assistant", f"{at:02} " + "x" * 77) for at in range(20)])
    prompt = store.assemble_prompt("c", token_budget=72)
    assert [text[:2] for text in texts(prompt)] == ["17", "18", "19"]
    assert whys(prompt) == ["over_budget"] * 17 + ["fits", "fits", "newest"]
    assert prompt.tokens == 72


def test_a_message_larger_than_the_budget_is_kept_alone(store: sync.Store) -> None:
    store.append("c", [Message("user", "small"), Message("user", "x" * 4000)])
    prompt = store.assemble_prompt("c", token_budget=10)
    assert len(prompt.messages) == 1
    assert prompt.is_over_budget


@pytest.mark.parametrize("budget", [0, -1, 1.5, True, None])
def test_a_budget_must_be_a_number_above_zero(store: sync.Store, budget: Any) -> None:
    with pytest.raises(ValidationError, match="token_budget"):
        store.assemble_prompt("c", token_budget=budget)


def test_a_system_prompt_larger_than_the_budget_stays(store: sync.Store) -> None:
    store.append("c", [Message("user", "old"), Message("user", "new")])
    prompt = store.assemble_prompt("c", token_budget=50, system="x" * 400)
    assert texts(prompt) == ["x" * 400, "new"]
    assert prompt.is_over_budget
    assert prompt.reserved == 104


def test_tools_take_their_share(store: sync.Store) -> None:
    store.append("c", [Message("user", "x" * 76) for _ in range(10)])
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    with_tools = store.assemble_prompt("c", token_budget=120, tools=[tool])
    without = store.assemble_prompt("c", token_budget=120)
    assert len(with_tools.messages) < len(without.messages) == 5
    assert with_tools.tokens <= 120
    assert with_tools.reserved > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"format": "klingon"}, "unknown format 'klingon': one of openai.chat"),
        ({"scope": "moon"}, "scope is 'moon'"),
        ({"names": "shout"}, "names is 'shout'"),
        ({"dangling": "keep"}, "dangling is 'keep'"),
        ({"compat": "other"}, "compat is 'other'"),
        ({"compat": "toolpack"}, "needs agent_id"),
        ({"max_turns": 0}, "max_turns is 0"),
        ({"summary_threshold": -1}, "summary_threshold is -1"),
        ({"summary_timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"time_window": 5}, "time_window must be a timedelta"),
        ({"agent_aliases": "x"}, "agent_aliases must be a list"),
        ({"addressed_only": 1}, "addressed_only must be True or False"),
    ],
)
def test_wrong_arguments(store: sync.Store, arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        store.assemble_prompt("c", **arguments)


def test_an_unknown_branch(store: sync.Store) -> None:
    store.append("c", Message("user", "x"))
    with pytest.raises(NotFound):
        store.assemble_prompt("c", branch="missing")


# --- many voices ------------------------------------------------------------------------------------------------------


def test_only_what_concerns_the_agent(store: sync.Store) -> None:
    store.append(
        "c",
        [
            Message("system", "Be kind."),
            said(ANN, "Ben, lunch?"),
            said(BEN, "Sure"),
            said(ANN, "@helper, is it open?", mentions=("helper",)),
            said(HELPER, "It is."),
            said(SCOUT, "I found a table."),
            said(BEN, "Thanks"),
        ],
    )
    prompt = store.assemble_prompt("c", agent_id="helper")
    assert texts(prompt) == ["Be kind.", "Ann: @helper, is it open?", "It is.", "Ben: Thanks"]
    assert whys(prompt) == ["system", "not_addressed", "not_addressed", "fits", "fits", "not_addressed", "newest"]
    assert len(store.assemble_prompt("c", agent_id="helper", addressed_only=False).messages) == 7


def test_noise_does_not_push_out_what_was_addressed(store: sync.Store) -> None:
    for turn in range(20):
        store.append("c", said(ANN, f"question {turn}", mentions=("helper",)))
        store.append("c", [said(BEN, f"noise {turn} {at}") for at in range(5)])
    prompt = store.assemble_prompt("c", agent_id="helper", max_turns=10)
    assert [text for text in texts(prompt) if "question" in text] == [f"Ann: question {turn}" for turn in range(11, 20)]
    assert prompt.has_older


def test_noise_is_read_past_only_so_far(store: sync.Store) -> None:
    store.append("c", said(ANN, "long ago", mentions=("helper",)))
    store.append("c", [said(ANN if at % 2 else BEN, "noise") for at in range(499)])
    prompt = store.assemble_prompt("c", agent_id="helper", max_turns=10)
    assert prompt.loaded <= 10 * reader.MOST_NOISE + reader.HEAD
    assert texts(prompt) == ["Ben: noise"]


def test_names_as_fields(store: sync.Store) -> None:
    store.append("c", [said(ANN, "Hi"), said(SCOUT, "Found it.")])
    prompt = store.assemble_prompt("c", agent_id="helper", names="field", addressed_only=False)
    assert prompt.messages == [
        {"role": "user", "content": "Hi", "name": "Ann"},
        {"role": "user", "content": "Found it.", "name": "Scout"},
    ]
    spoken = store.assemble_prompt("c", agent_id="helper", names="field", addressed_only=False, format="anthropic")
    assert [block["text"] for block in spoken.messages[0]["content"]] == ["Ann: Hi", "Scout (agent): Found it."]


@pytest.mark.parametrize("names", ["prefix", "field", "none"])
def test_json_has_no_place_for_a_name(store: sync.Store, names: Any) -> None:
    store.append_message("c", "user", {"a": 1}, participant=ANN)
    assert texts(store.assemble_prompt("c", agent_id="helper", names=names)) == [{"a": 1}]


def test_aliases_of_channels(store: sync.Store) -> None:
    store.append("c", [said(ANN, "hey", mentions=("U1",)), said(BEN, "x"), said(BEN, "y")])
    assert len(store.assemble_prompt("c", agent_id="helper", channels=[{"bot_user_id": "U1"}]).messages) == 2
    assert len(store.assemble_prompt("c", agent_id="helper").messages) == 1


def test_scope_and_time(store: sync.Store) -> None:
    store.append("c", [said(ANN, "a", scope="dm"), said(ANN, "b", scope="thread")])
    assert texts(store.assemble_prompt("c", scope="dm")) == ["Ann: a"]
    clock = Clock()
    with sync.connect("memory://", clock=clock) as timed:
        timed.append("c", Message("user", "old"))
        clock.advance(timedelta(hours=1))
        timed.append("c", Message("user", "new"))
        assert texts(timed.assemble_prompt("c", time_window=timedelta(minutes=30))) == ["new"]


# --- tools, pins, pictures --------------------------------------------------------------------------------------------


def test_tool_groups_go_whole(store: sync.Store) -> None:
    store.append(
        "c", [Message("user", "q"), call("1", "2"), result("1", "x" * 400), result("2"), Message("assistant", "a")]
    )
    assert whys(store.assemble_prompt("c", token_budget=60)) == ["over_budget"] * 4 + ["newest"]
    assert whys(store.assemble_prompt("c")) == ["fits"] * 4 + ["newest"]


def test_a_dangling_call(store: sync.Store) -> None:
    store.append("c", [Message("user", "q"), call("1", "2"), result("1")])
    assert whys(store.assemble_prompt("c")) == ["newest", "tool_pair", "tool_pair"]
    closed = store.assemble_prompt("c", dangling="close")
    assert [message["role"] for message in closed.messages] == ["user", "assistant", "tool", "tool"]
    assert closed.messages[-1]["content"] == "No result: the call was interrupted."


def test_the_results_of_own_calls_concern_the_agent(store: sync.Store) -> None:
    store.append("c", [said(ANN, "q", mentions=("helper",)), call("1", "2", participant=HELPER), said(BEN, "noise")])
    store.append("c", [result("1"), result("2"), said(BEN, "noise"), said(ANN, "well?")])
    prompt = store.assemble_prompt("c", agent_id="helper")
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "tool", "tool", "user"]


def test_what_is_pinned_or_instructs_stays(store: sync.Store) -> None:
    store.append("c", [Message("system", "Be kind."), Message("user", "My name is Ann.", pinned=True)])
    store.append("c", [Message("user", f"{at}") for at in range(300)])
    prompt = store.assemble_prompt("c", token_budget=30, max_turns=10)
    assert texts(prompt)[:2] == ["Be kind.", "My name is Ann."]
    assert whys(prompt)[:2] == ["system", "pinned"]
    assert texts(prompt)[-1] == "299"


def test_a_pinned_result_keeps_its_call(store: sync.Store) -> None:
    store.append("c", [Message("user", "q"), call("1", "2"), result("1"), result("2", "the fact", pinned=True)])
    store.append("c", [Message("user", "x" * 40) for _ in range(20)])
    prompt = store.assemble_prompt("c", token_budget=100)
    assert [message["role"] for message in prompt.messages[:3]] == ["assistant", "tool", "tool"]
    assert whys(prompt)[:4] == ["over_budget", "pinned", "pinned", "pinned"]


def test_what_is_pinned_in_the_middle_stays(store: sync.Store) -> None:
    store.append("c", [Message("system", "Be kind.")] + [Message("user", "x") for _ in range(300)])
    pinned = store.append("c", [Message("user", "Call me Ann.", pinned=True), call("1"), result("1")]).messages[0]
    store.append("c", [Message("user", f"{at}") for at in range(300)])
    prompt = store.assemble_prompt("c", max_turns=10)
    assert texts(prompt)[:3] == ["Be kind.", "Call me Ann.", "290"]
    assert whys(prompt)[:3] == ["system", "pinned", "fits"]
    assert prompt.has_older
    store.update_message("c", pinned.id, pinned=False)
    assert texts(store.assemble_prompt("c", max_turns=10))[1] == "290"


def test_a_pin_outlasts_the_time_window_but_not_the_scope(store: sync.Store) -> None:
    old = datetime.now(UTC) - timedelta(days=9)
    store.append(
        "c",
        [
            Message("system", "Be kind.", created_at=old),
            Message("user", "Call me Ann.", pinned=True, created_at=old, scope="channel"),
            Message("user", "My secret.", pinned=True, created_at=old, scope="dm"),
            Message("user", "Now.", scope="channel"),
        ],
    )
    window = timedelta(days=1)
    assert texts(store.assemble_prompt("c", time_window=window)) == ["Be kind.", "Call me Ann.", "My secret.", "Now."]
    told = texts(store.assemble_prompt("c", time_window=window, scope="channel"))
    assert told == ["Be kind.", "Call me Ann.", "Now."]


def test_each_text_is_counted_once(store: sync.Store) -> None:
    asked: list[str] = []

    class Words:
        name = "words"
        is_exact = True

        def count(self, text: str) -> int:
            asked.append(text)
            return len(text.split())

    store.append("c", [said(ANN, "one two"), said(BEN, "three " * 100), call("1"), result("1", "four")])
    first = store.assemble_prompt("c", counter=Words(), system="Be kind.")
    counted = list(asked)
    assert len(counted) == len(set(counted)) > 4
    assert store.assemble_prompt("c", counter=Words(), system="Be kind.") == first
    store.window("c", tokens=500, counter=Words())
    store.window("c", tokens=500, counter=Words())
    assert len(asked) == len(set(asked)), "a counter is known by its class and name"
    store.update_message("c", store.get_messages("c")[1].id, content="three " * 99)
    changed = store.assemble_prompt("c", counter=Words(), system="Be kind.")
    assert changed.tokens == first.tokens - 1


def test_what_was_blocked_or_says_nothing_is_left_out(store: sync.Store) -> None:
    store.append("c", [Message("user", "bad", status="blocked"), Message("assistant", " "), Message("user", "good")])
    prompt = store.assemble_prompt("c")
    assert whys(prompt) == ["blocked", "empty", "newest"]
    assert texts(prompt) == ["good"]


def test_pictures_come_whole_and_cost_little(store: sync.Store) -> None:
    data = base64.b64encode(bytes(range(256)) * 400).decode()
    content = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]
    store.append("c", Message("user", content, format="anthropic"))
    prompt = store.assemble_prompt("c", format="openai.chat")
    assert prompt.messages[0]["content"] == [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    ]
    assert prompt.tokens < 1000


def test_reported_usage_corrects_the_estimates(store: sync.Store) -> None:
    store.append("c", [Message("assistant", "x" * 384, usage={"output_tokens": 150}) for _ in range(4)])  # type: ignore[arg-type]
    prompt = store.assemble_prompt("c")
    assert prompt.calibration == 1.5
    assert {decision.tokens for decision in prompt.decisions} == {150}
    exact = store.assemble_prompt("c", counter=Tokenizer())
    assert (exact.counter, exact.calibration) == ("o200k_base", 1.0)


# --- formats and views ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", sorted(CHECKS))
def test_every_format(store: sync.Store, format: Any) -> None:
    store.append("c", [Message("system", "Be kind."), Message("user", "q"), call("1"), result("1"), said(ANN, "ok?")])
    prompt = store.assemble_prompt("c", format=format, system="You are Helper.")
    CHECKS[format](prompt.messages)  # type: ignore[arg-type]
    if format == "anthropic":
        assert prompt.system == "You are Helper.\n\nBe kind."


@settings(deadline=None)
@given(history=histories(), format=st.sampled_from(sorted(CHECKS)), budget=st.integers(1, 60))
def test_any_history_makes_a_valid_prompt(history: list[Message], format: Any, budget: int) -> None:
    with sync.connect("memory://") as store:
        store.append("c", [Message(each.role, each.content, format=each.format) for each in history])
        prompt = store.assemble_prompt("c", agent_id="helper", format=format, token_budget=budget)
        CHECKS[format](prompt.messages)  # type: ignore[arg-type]
        assert len(prompt.decisions) == len(history)


def test_through_views(store: sync.Store) -> None:
    ann, ben = store.user("ann"), store.user("ben")
    ann.append("c", Message("user", "mine"))
    assert texts(ann.assemble_prompt("c")) == ["mine"]
    assert ben.assemble_prompt("c").messages == []
    assert store.tenant("acme").assemble_prompt("c").messages == []


def test_of_a_branch(store: sync.Store) -> None:
    first = store.append("c", [Message("user", "a"), Message("user", "b")]).messages[0]
    store.branch("c", at=first.id, branch_id="side")
    store.append("c", Message("user", "c"))
    assert texts(store.assemble_prompt("c")) == ["a", "c"]
    assert texts(store.assemble_prompt("c", branch="main")) == ["a", "b"]


DATA = base64.b64encode(bytes(range(256)) * 1000).decode()
PICTURES: dict[str, Any] = {
    "openai.chat": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}],
    "openai.responses": [{"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"}],
    "anthropic": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}],
    "gemini": [{"inlineData": {"mimeType": "image/png", "data": DATA}}],
    "langchain": {"type": "human", "data": {"content": [{"type": "image", "base64": DATA, "mime_type": "image/png"}]}},
    "parts": [{"type": "image", "media_type": "image/png", "data": DATA}],
}


@pytest.mark.parametrize("format", sorted(PICTURES))
def test_pictures_of_every_format_come_whole(store: sync.Store, format: str) -> None:
    store.append_message("c", "user", PICTURES[format], format=format)
    assert store.get_messages("c", blobs="refs")[0].blobs
    for target in PICTURES:
        prompt = store.assemble_prompt("c", format=target)  # type: ignore[arg-type]
        assert DATA in str(prompt.messages)
        assert prompt.tokens < 1000
    assert DATA not in str(store.get_messages("c", blobs="refs")[0].content)


def test_base64_that_is_text_costs_what_it_is(store: sync.Store) -> None:
    store.append("c", [Message("user", DATA), Message("user", "What is that?")])
    prompt = store.assemble_prompt("c")
    assert whys(prompt) == ["over_budget", "newest"]
