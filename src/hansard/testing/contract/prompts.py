"""Promises 9 and 10 in use: prompts and rolling summaries work the same on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from hansard.assembly import ExtractiveSummarizer, SummaryRequest
from hansard.errors import MessageNotFound, Unavailable, ValidationError
from hansard.model import Message, Participant
from hansard.testing.comparison import state
from hansard.testing.contract.base import Contract, races, require, say
from hansard.testing.contract.blobs import picture
from hansard.testing.contract.windows import TALK
from hansard.testing.targets import Driver

ANN = Participant("user", "ann", "Ann")
HELPER = Participant("agent", "helper")


class Failing:
    """A summarizer without a model behind it."""

    model: str | None = None
    prompt_id: str | None = None

    async def summarize(self, request: SummaryRequest) -> str:
        raise ConnectionError("no model")


def talk(store: Driver, count: int) -> None:
    store.append("c", [Message("assistant" if at % 2 else "user", f"This is number {at}.") for at in range(count)])


class TestPrompts(Contract):
    def test_a_prompt_is_projected_for_the_agent(self, store: Driver) -> None:
        store.append(
            "c",
            [
                Message("system", "Be kind."),
                Message("user", "Hi", participant=ANN),
                Message("assistant", "Hello", participant=HELPER),
            ],
        )
        prompt = store.assemble_prompt("c", agent_id="helper")
        assert prompt.messages == [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Ann: Hi"},
            {"role": "assistant", "content": "Hello"},
        ]
        assert [decision.why for decision in prompt.decisions] == ["system", "fits", "newest"]

    def test_a_prompt_has_the_newest_messages_within_the_budget(self, store: Driver) -> None:
        talk(store, 150)
        prompt = store.assemble_prompt("c", token_budget=100)
        assert [message["content"] for message in prompt.messages][-1] == "This is number 149."
        assert 1 < len(prompt.messages) < 100
        assert prompt.tokens <= 100
        assert (prompt.loaded, prompt.has_older) == (100, True)

    def test_every_format_keeps_whole_groups(self, store: Driver) -> None:
        store.append("c", TALK)
        for format in ("openai.chat", "openai.responses", "anthropic", "gemini", "langchain"):
            prompt: Any = store.assemble_prompt("c", format=format)
            assert prompt.losses == []
            assert all(decision.kept for decision in prompt.decisions)

    def test_windows_in_tokens_keep_instructions(self, store: Driver) -> None:
        store.append("c", [Message("system", "Be kind."), Message("user", "I am Ann.", pinned=True)])
        talk(store, 150)
        window = store.window("c", tokens=60)
        assert [message.content for message in window[:2]] == ["Be kind.", "I am Ann."]
        assert window[-1].content == "This is number 149."
        assert len(window) < 10

    def test_a_prompt_changes_nothing(self, store: Driver) -> None:
        talk(store, 60)
        before = state(store)
        store.assemble_prompt("c", agent_id="helper", token_budget=50)
        store.assemble_prompt("c", agent_id="helper", compat="toolpack")
        store.assemble_prompt("c", summarizer=Failing())
        assert state(store) == before

    def test_a_prompt_of_a_missing_conversation_is_empty(self, store: Driver) -> None:
        assert store.assemble_prompt("missing").messages == []


class TestStoredPrompts(Contract):
    def test_an_answer_keeps_the_prompt_that_its_model_was_given(self, store: Driver) -> None:
        talk(store, 30)
        prompt = store.assemble_prompt("c", agent_id="helper", token_budget=100, system="Be kind.")
        answer = store.append_message("c", "assistant", "Yes.", prompt_id=prompt.prompt_id, usage={"model": "m"})
        found = store.get_prompt("c", answer)
        assert found is not None
        assert [each.message_id for each in found.messages] == [each.message_id for each in prompt.kept]
        assert [each.why for each in found.messages] == [each.why for each in prompt.kept]
        assert {each.state for each in found.messages} == {"same"}
        assert (found.tokens, found.budget, found.reserved) == (prompt.tokens, 100, prompt.reserved)
        assert (found.dropped, found.model) == ({"over_budget": len(prompt.dropped)}, "m")
        again = store.assemble_prompt("c", before=answer, token_budget=100, system="Be kind.", **found.options)
        assert again.decisions == prompt.decisions
        assert "This is number" not in (prompt.prompt_id or ""), "it copies nothing"

    def test_a_prompt_tells_what_was_changed_and_deleted_since(self, store: Driver) -> None:
        first, second, third = say(store, "c", "one", "two", "three")
        answer = store.append_message("c", "assistant", "Yes.", prompt_id=store.assemble_prompt("c").prompt_id)
        store.update_message("c", second.id, content="TWO")
        store.update_message("c", third.id, pinned=True)
        store.delete_message("c", first.id)
        found = store.get_prompt("c", answer)
        assert found is not None
        assert [each.state for each in found.messages] == ["deleted", "changed", "same"]
        assert [each.message and each.message.content for each in found.messages] == [None, "TWO", "three"]

    def test_a_prompt_remembers_its_summary(self, store: Driver) -> None:
        talk(store, 60)
        store.summarize("c", ExtractiveSummarizer(), keep=20)
        answer = store.append_message("c", "assistant", "Yes.", prompt_id=store.assemble_prompt("c").prompt_id)
        found = store.get_prompt("c", answer)
        assert found is not None
        assert found.summary is not None
        assert (found.summary.state, found.summary.summary) == ("same", store.list_summaries("c")[0])
        store.delete_message("c", store.get_messages("c", limit=1)[0].id)
        found = store.get_prompt("c", answer)
        assert found is not None
        assert found.summary is not None
        assert (found.summary.state, found.summary.summary) == ("deleted", None)

    def test_a_prompt_goes_with_its_answer(self, store: Driver) -> None:
        require(store, "branches")
        say(store, "c", "one", picture(1))
        answer = store.append_message("c", "assistant", "Yes.", prompt_id=store.assemble_prompt("c").prompt_id)
        store.update_message("c", answer, content="No.")
        fork = store.fork("c")
        found = store.get_prompt(fork.id, answer)
        assert found is not None
        assert [each.state for each in found.messages] == ["same", "same"], "a picture is compared by its hash"
        store.delete_message("c", answer)
        with pytest.raises(MessageNotFound):
            store.get_prompt("c", answer)
        (other,) = say(store, "c", "three")
        assert store.get_prompt("c", other.id) is None, "nothing was stored with it"

    def test_a_foreign_prompt_id_is_refused(self, store: Driver) -> None:
        for wrong in ("", "prompt_", "prompt_x", "msg_1", "prompt_" + "A" * 100_000):
            with pytest.raises(ValidationError, match="prompt_id"):
                store.append_message("c", "assistant", "Yes.", prompt_id=wrong)
        assert store.get_conversation("c") is None

    def test_before_ends_the_history_early(self, store: Driver) -> None:
        messages = say(store, "c", "one", "two", "three")
        store.append_message("c", "user", "four", pinned=True)
        prompt = store.assemble_prompt("c", before=messages[2].id)
        assert [each["content"] for each in prompt.messages] == ["one", "two"]
        with pytest.raises(MessageNotFound):
            store.assemble_prompt("c", before="missing")


class TestRollingSummaries(Contract):
    def test_each_summary_extends_the_previous_one(self, store: Driver) -> None:
        talk(store, 60)
        first = store.summarize("c", ExtractiveSummarizer(), keep=20)
        assert first is not None
        talk(store, 10)
        second = store.summarize("c", ExtractiveSummarizer(), keep=20)
        assert second is not None
        assert (second.from_seq, second.to_seq > first.to_seq) == (first.from_seq, True)
        assert second.text.startswith(first.text)
        assert store.assemble_prompt("c").summary == second
        assert len(store.get_messages("c", last=100)) == 70

    def test_a_failed_summary_changes_nothing(self, store: Driver) -> None:
        talk(store, 60)
        before = state(store)
        with pytest.raises(Unavailable):
            store.summarize("c", Failing())
        assert state(store) == before

    @races
    def test_concurrent_summarizing_stores_one_summary(self, store: Driver) -> None:
        require(store, "records")
        talk(store, 60)
        done = store.together([lambda each: each.summarize("c", ExtractiveSummarizer())] * 4)
        assert [each for each in done if isinstance(each, Exception)] == []
        assert len(store.list_summaries("c")) == 1

    def test_deleting_a_conversation_deletes_its_summaries_and_records(self, store: Driver) -> None:
        require(store, "records")
        talk(store, 60)
        store.summarize("c", ExtractiveSummarizer(), in_metadata=True)
        store.assemble_prompt("c", agent_id="helper", compat="toolpack", summarizer=ExtractiveSummarizer())
        store.delete_conversation("c")
        assert list(store.records.iter()) == []
        say(store, "c", "again")
        assert store.assemble_prompt("c").summary is None
