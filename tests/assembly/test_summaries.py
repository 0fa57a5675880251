"""Promise 10: summaries never cost the originals, build on the last, and are verified before they are used."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.assembly.talk import call, result
from tests.wait import coming, until

import hansard
from hansard import Message, Record, Store, Summary, sync
from hansard.assembly import ExtractiveSummarizer, SummaryRequest, summaries
from hansard.assembly.tokens import DEFAULT_COUNTER
from hansard.backends.memory import MemoryBackend
from hansard.contract.types import Context, RecordWrite
from hansard.errors import ConversationNotFound, TimedOut, Unavailable, ValidationError
from hansard.testing import Clock


class Model:
    """A summarizer with scripted answers, which records its requests."""

    model = "test-model"
    prompt_id = "test-prompt"

    def __init__(self, answer: Callable[[SummaryRequest], Any] | None = None) -> None:
        self._answer = answer
        self.requests: list[SummaryRequest] = []

    async def summarize(self, request: SummaryRequest) -> str:
        self.requests.append(request)
        return self._answer(request) if self._answer else f"Summary {len(self.requests)}."


class Hanging(Model):
    async def summarize(self, request: SummaryRequest) -> str:
        self.requests.append(request)
        await asyncio.sleep(3600)
        raise AssertionError("unreachable")


class Slow(Model):
    async def summarize(self, request: SummaryRequest) -> str:
        await asyncio.sleep(0.05)
        return await super().summarize(request)


def raising(request: SummaryRequest) -> str:
    raise ConnectionError("the model is away")


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.connect("memory://") as opened:
        yield opened


def talk(store: sync.Store, count: int, first: int = 0) -> None:
    store.append(
        "c",
        [
            Message("assistant" if at % 2 else "user", f"This is what was said as number {at}.")
            for at in range(first, first + count)
        ],
    )


def ranges(store: sync.Store) -> list[tuple[int, int]]:
    return [(each.from_seq, each.to_seq) for each in store.list_summaries("c")]


# --- summarize --------------------------------------------------------------------------------------------------------


def test_each_builds_on_the_last(store: sync.Store) -> None:
    talk(store, 50)
    model = Model()
    first = store.summarize("c", model, keep=20)
    assert first is not None
    assert (first.from_seq, first.to_seq, first.text) == (1, 30, "Summary 1.")
    assert (first.model, first.prompt_id, first.token_count) == ("test-model", "test-prompt", 3)
    assert store.summarize("c", model, keep=20) is None, "nothing new"
    talk(store, 10, 50)
    second = store.summarize("c", model, keep=20)
    assert second is not None
    assert (second.from_seq, second.to_seq) == (1, 40)
    assert model.requests[0].previous is None
    assert model.requests[1].previous == "Summary 1."
    assert [message.seq for message in model.requests[1].messages] == list(range(31, 41))
    assert store.get_conversation("c").summary == "Summary 2."  # type: ignore[union-attr]
    assert len(list(store.iter_messages("c"))) == 60


def test_a_long_history_goes_in_chunks(store: sync.Store) -> None:
    talk(store, 350)
    model = Model()
    done = store.summarize("c", model, keep=50)
    assert done is not None
    assert ranges(store) == [(1, 100), (1, 200), (1, 300)]
    assert [request.previous for request in model.requests] == [None, "Summary 1.", "Summary 2."]


def test_what_is_cut_off_goes_on(store: sync.Store) -> None:
    talk(store, 250)

    def once(request: SummaryRequest) -> str:
        return raising(request) if request.previous else "The first part."

    with pytest.raises(Unavailable):
        store.summarize("c", Model(once), keep=50)
    assert ranges(store) == [(1, 100)]
    store.summarize("c", Model(), keep=50)
    assert ranges(store) == [(1, 100), (1, 200)]


def test_rebuilding(store: sync.Store) -> None:
    talk(store, 150)
    store.summarize("c", Model(lambda request: "Old."), keep=10)
    rebuilt = store.rebuild_summaries("c", Model(), keep=10)
    assert [(each.from_seq, each.to_seq, each.text) for each in rebuilt] == [
        (1, 100, "Summary 1."),
        (1, 140, "Summary 2."),
    ]
    prompt = store.assemble_prompt("c")
    assert prompt.summary is not None
    assert prompt.summary.text == "Summary 2."


def test_a_rebuilding_reaches_as_far_as_what_it_takes_the_place_of(store: sync.Store) -> None:
    talk(store, 50)
    assert store.rebuild_summaries("c", Model(), keep=500) == []
    store.summarize("c", Model(lambda request: "Old."), keep=10)
    (rebuilt,) = store.rebuild_summaries("c", Model(), keep=30)
    assert rebuilt.to_seq == 40
    assert store.assemble_prompt("c").summary == rebuilt


@pytest.mark.parametrize("rebuild", [False, True])
@pytest.mark.parametrize("deleted", ["m5", "m30"])
def test_what_is_deleted_meanwhile_does_not_live_on(store: sync.Store, deleted: str, rebuild: bool) -> None:
    store.append("c", [Message("user", f"This is what was said as number {at}.", id=f"m{at}") for at in range(40)])
    store.summarize("c", Model(), keep=20)

    def deleting(request: SummaryRequest) -> str:
        store.delete_message("c", deleted)
        return "Late."

    with pytest.raises(Unavailable, match="deleted meanwhile"):
        (store.rebuild_summaries if rebuild else store.summarize)("c", Model(deleting), keep=5)
    assert all(each.text != "Late." for each in store.list_summaries("c"))


def test_what_was_blocked_is_not_told(store: sync.Store) -> None:
    talk(store, 10)
    store.append("c", [Message("user", "Forbidden words.", status="blocked"), Message("user", {"city": "Oslo"})])
    model = Model()
    store.summarize("c", model, keep=0)
    assert "Forbidden" not in model.requests[0].transcript
    assert model.requests[0].transcript.endswith('user: {"city":"Oslo"}')


def test_a_beginning_without_words_is_no_end(store: sync.Store) -> None:
    store.append("c", [each for at in range(60) for each in (call(str(at)), result(str(at)))])
    talk(store, 10)
    summary = store.summarize("c", Model(), keep=0)
    assert summary is not None
    assert (summary.from_seq, summary.to_seq) == (1, 130)


def test_a_summary_tears_no_group(store: sync.Store) -> None:
    talk(store, 10)
    store.append("c", [call("1", "2"), result("1"), result("2")])
    store.summarize("c", Model(), keep=1)
    prompt = store.assemble_prompt("c")
    assert [message["role"] for message in prompt.messages] == ["system", "assistant", "tool", "tool"]


def test_a_summary_tells_nothing_of_other_scopes(store: sync.Store) -> None:
    store.append("c", [Message("user", f"A secret {at}, said in private.", scope="dm") for at in range(50)])
    store.append("c", [Message("user", "Hello everybody", scope="channel")])
    store.summarize("c", Model(lambda request: "Secrets."), keep=1)
    for narrowed in ({"scope": "channel"}, {"time_window": timedelta(days=1)}):
        prompt = store.assemble_prompt("c", summarizer=Model(), **narrowed)
        assert prompt.summary is None
    assert store.assemble_prompt("c").summary is not None


def test_a_rebuilding_that_fails_changes_nothing(store: sync.Store) -> None:
    talk(store, 150)
    store.summarize("c", Model(), keep=10)
    before = store.list_summaries("c")
    with pytest.raises(Unavailable, match="ConnectionError: the model is away"):
        store.rebuild_summaries("c", Model(raising), keep=10)
    assert store.list_summaries("c") == before


def test_the_convention_of_makers(store: sync.Store) -> None:
    talk(store, 30)
    store.summarize("c", Model(), keep=10, in_metadata=True)
    conversation = store.get_conversation("c")
    assert conversation is not None
    last = store.get_messages("c", limit=20)[-1]
    assert conversation.metadata == {"summary": "Summary 1.", "summarizedUntil": last.id}


def test_wrong_arguments(store: sync.Store) -> None:
    with pytest.raises(ConversationNotFound):
        store.summarize("missing", Model())
    talk(store, 3)
    for arguments in ({"keep": -1}, {"max_tokens": 0}, {"timeout": 0}, {"timeout": "1"}, {"in_metadata": 1}):
        with pytest.raises(ValidationError):
            store.summarize("c", Model(), **arguments)


# --- verified ---------------------------------------------------------------------------------------------------------

BAD_ANSWERS = {
    "nothing": lambda request: "",
    "spaces": lambda request: " \n ",
    "not text": lambda request: {"summary": "x"},
    "none": lambda request: None,
    "html": lambda request: "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>",
    "html without a doctype": lambda request: "\n<html>",
    "json error": lambda request: '{"error": {"message": "overloaded"}}',
    "an error": lambda request: "Error: 429 Too Many Requests",
    "error code": lambda request: "Error code: 500 - internal",
    "status line": lambda request: "HTTP/1.1 503 Service Unavailable",
    "status": lambda request: "502 Bad Gateway",
    "fenced html": lambda request: "```html\n<html>oops</html>\n```",
    "server error": lambda request: "Internal Server Error",
    "rate limit": lambda request: "Rate limit exceeded, try again later.",
    "refusal": lambda request: "I'm sorry, but I can't help with that.",
    "apology": lambda request: "I cannot summarize this conversation.",
    "traceback": lambda request: "Traceback (most recent call last):",
    "too long": lambda request: request.transcript + " and much more besides, in many words",
    "raises": raising,
}


@pytest.mark.parametrize("answer", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_a_bad_answer_changes_nothing(store: sync.Store, answer: Callable[[SummaryRequest], Any]) -> None:
    talk(store, 60)
    with pytest.raises(Unavailable) as failure:
        store.summarize("c", Model(answer), keep=30)
    assert failure.value.outcome == "not_applied"
    assert store.list_summaries("c") == []
    prompt = store.assemble_prompt("c", summarizer=Model(answer))
    assert prompt.problems == [str(failure.value)], "it is said, and the prompt is made without"
    assert prompt.summary is None
    assert prompt.messages == store.assemble_prompt("c").messages
    assert list(store.records.iter()) == [], "the lease was given back"


@pytest.mark.parametrize(
    "text",
    [
        "Ann fixed the error in the build.",
        "The user was sorry that the train was late.",
        "An error was found and fixed.",
    ],
)
def test_a_summary_about_errors_is_one(text: str) -> None:
    request = SummaryRequest((Message("user", "x" * 900),))
    assert summaries.problem_with(text, request, DEFAULT_COUNTER) is None


def test_one_that_will_not_be_cancelled() -> None:
    async def main() -> None:
        may_end, has_ended = asyncio.Event(), asyncio.Event()

        class Stubborn(Model):
            async def summarize(self, request: SummaryRequest) -> str:
                while not may_end.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await may_end.wait()
                has_ended.set()
                return "Too late."

        async with hansard.connect("memory://") as store:
            await store.append("c", [Message("user", f"This is what was said as number {at}.") for at in range(60)])
            with pytest.raises(TimedOut):
                await store.summarize("c", Stubborn(), timeout=0.05)
            assert not has_ended.is_set(), "nobody waits for it"
            may_end.set()
            await has_ended.wait()
            assert await store.list_summaries("c") == []

    asyncio.run(main())


def test_one_that_cancels_itself(store: sync.Store) -> None:
    def cancelled(request: SummaryRequest) -> str:
        raise asyncio.CancelledError

    talk(store, 60)
    assert store.assemble_prompt("c", summarizer=Model(cancelled)).problems == [
        "the summarizer failed: RuntimeError: it was cancelled"
    ]


def test_one_that_hangs(store: sync.Store) -> None:
    talk(store, 60)
    with pytest.raises(TimedOut, match=r"did not answer within 0\.05 seconds"):
        store.summarize("c", Hanging(), timeout=0.05)
    prompt = store.assemble_prompt("c", summarizer=Hanging(), summary_timeout=0.05)
    assert "did not answer" in prompt.problems[0]
    assert len(prompt.messages) > 40


# --- in a prompt ------------------------------------------------------------------------------------------------------


def test_a_prompt_rolls_when_there_is_too_much(store: sync.Store) -> None:
    talk(store, 40)
    model = Model()
    assert store.assemble_prompt("c", summarizer=model).summary is None
    talk(store, 1, 40)
    prompt = store.assemble_prompt("c", summarizer=model)
    assert prompt.summary is not None
    assert (prompt.summary.from_seq, prompt.summary.to_seq) == (1, 20)
    assert prompt.messages[0]["content"].endswith(": Summary 1.")
    assert len(prompt.messages) == 22
    assert [each.why for each in prompt.decisions[:2]] == ["summary", "summarized"]
    assert model.requests[0].max_tokens == 750
    # The next one keeps it, without being asked to summarize.
    talk(store, 1, 41)
    again = store.assemble_prompt("c")
    assert again.summary == prompt.summary
    assert len(again.messages) == 23


def test_no_turn_is_torn(store: sync.Store) -> None:
    turn = [Message("user", "Question with words."), call("1"), result("1"), Message("assistant", "Answer with words.")]
    for _ in range(11):
        store.append("c", turn)
    prompt = store.assemble_prompt("c", summarizer=Model())
    assert prompt.summary is not None
    assert prompt.summary.to_seq == 24
    assert prompt.messages[1]["role"] == "user"
    assert prompt.losses == []


def test_it_covers_what_was_not_loaded_too(store: sync.Store) -> None:
    talk(store, 240)
    before = store.assemble_prompt("c")
    assert before.has_older
    prompt = store.assemble_prompt("c", summarizer=Model())
    assert prompt.summary is not None
    assert prompt.summary.from_seq == 1
    assert not prompt.has_older


def test_a_small_budget_keeps_the_summary(store: sync.Store) -> None:
    talk(store, 60)
    store.summarize("c", Model(), keep=20)
    prompt = store.assemble_prompt("c", token_budget=40)
    assert prompt.messages[0]["content"].endswith("Summary 1.")
    assert prompt.messages[-1]["content"].endswith("number 59.")
    assert prompt.tokens <= 40


def test_the_newest_is_there_whatever_is_covered(store: sync.Store) -> None:
    talk(store, 10)
    store.summarize("c", Model(), keep=0)
    prompt = store.assemble_prompt("c")
    assert [decision.why for decision in prompt.kept] == ["summary", "newest"]


def test_instructions_and_pins_are_not_summarized_away(store: sync.Store) -> None:
    store.append("c", [Message("system", "Be kind."), Message("user", "Call me Ann.", pinned=True)])
    talk(store, 60)
    prompt = store.assemble_prompt("c", summarizer=Model())
    assert [message["content"] for message in prompt.messages[:3]] == [
        "Be kind.",
        "[Summary of what was said before the messages below]: Summary 1.",
        "Call me Ann.",
    ]


def test_a_message_in_progress_is_not_summarized(store: sync.Store) -> None:
    talk(store, 30)
    growing = store.append("c", Message("assistant", "It begins", status="in_progress")).messages[0]
    talk(store, 30)
    model = Model()
    summary = store.summarize("c", model, keep=0)
    assert summary is not None
    assert summary.to_seq == growing.seq - 1
    assert store.summarize("c", model, keep=0) is None, "there is nothing to do until it has ended"
    prompt = store.assemble_prompt("c", summarizer=model, summary_threshold=5)
    assert prompt.summary == summary
    assert "It begins" in [message["content"] for message in prompt.messages]
    store.update_message("c", growing.id, content="It begins, and ends.", status="complete")
    summary = store.summarize("c", model, keep=10)
    assert summary is not None
    assert summary.to_seq == 51


def test_a_deleted_message_takes_the_summary(store: sync.Store) -> None:
    talk(store, 60)
    store.summarize("c", Model())
    store.delete_message("c", store.get_messages("c", limit=1)[0].id)
    prompt = store.assemble_prompt("c")
    assert prompt.summary is None
    assert len(prompt.messages) == 59


def test_of_branches(store: sync.Store) -> None:
    talk(store, 30)
    messages = store.get_messages("c", limit=30)
    store.summarize("c", Model(lambda request: "Of main."), keep=10)
    store.branch("c", at=messages[24].id, branch_id="late")
    store.branch("c", source="main", at=messages[4].id, branch_id="early")
    store.append("c", Message("user", "other"), branch="early")
    assert store.assemble_prompt("c", branch="late").summary is not None, "it shares all that the summary covers"
    assert store.assemble_prompt("c", branch="early").summary is None


def test_which_summary() -> None:
    def summary(branch: str, to_seq: int, text: str = "") -> Summary:
        return Summary("c", 1, to_seq, text, branch)

    main = [summary("main", 10), summary("main", 20), summary("main", 20, "rebuilt"), summary("main", 5)]
    assert summaries.latest(main, "main", []) is main[2]
    assert summaries.latest([], "main", []) is None
    side = hansard.Branch("side", "c", "main", 12)
    leaf = hansard.Branch("leaf", "c", "side", 15)
    assert summaries.latest(main, "side", [side]) is main[0]
    assert summaries.latest([*main, summary("side", 14)], "leaf", [side, leaf]) == summary("side", 14)
    assert summaries.latest([*main, summary("side", 16)], "leaf", [side, leaf]) is main[0]


# --- in the background, once ------------------------------------------------------------------------------------------


def test_in_the_background() -> None:
    async def main() -> None:
        async with hansard.connect("memory://") as store:
            await store.append("c", [Message("user", f"Number {at} said.") for at in range(60)])
            model = Slow()
            prompt = await store.assemble_prompt("c", summarizer=model, in_background=True)
            assert prompt.summary is None, "nobody waited"
            await coming(lambda: model.requests)
            await coming(lambda: not store._view.tasks)
            assert (await store.assemble_prompt("c")).summary is not None

    asyncio.run(main())


def test_in_the_background_of_the_blocking_api(store: sync.Store) -> None:
    talk(store, 60)
    model = Slow()
    store.assemble_prompt("c", summarizer=model, in_background=True)
    until(lambda: store.list_summaries("c"))
    assert len(model.requests) == 1


def test_closing_ends_what_goes_on() -> None:
    store = sync.connect("memory://")
    talk(store, 60)
    store.assemble_prompt("c", summarizer=Hanging(), in_background=True)
    store.close()
    with pytest.raises(hansard.Closed):
        store.get_messages("c")


def test_a_background_that_fails_is_logged(caplog: pytest.LogCaptureFixture, store: sync.Store) -> None:
    talk(store, 60)
    store.assemble_prompt("c", summarizer=Model(raising), in_background=True)
    until(lambda: caplog.records)
    assert "the model is away" in caplog.text


def test_once_when_two_notice_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        url = f"sqlite:///{tmp_path}/store.db"
        async with hansard.connect(url) as one, hansard.connect(url) as other:
            await one.append("c", [Message("user", f"Number {at} said.") for at in range(60)], user_id="u")
            model = Slow()
            views: list[Store] = [one, other, one.user("u"), other.user("u")]
            done = await asyncio.gather(*(view.summarize("c", model) for view in views))
            assert sum(each is not None for each in done) == 1
            assert len(model.requests) == 1
            assert len(await one.list_summaries("c")) == 1

    asyncio.run(main())


PROCESS = """
    import asyncio, pathlib, sys, time
    import hansard
    from hansard.assembly import ExtractiveSummarizer

    class Noting(ExtractiveSummarizer):
        async def summarize(self, request):
            with open(sys.argv[2], "a") as file:
                file.write("called\\n")
            await asyncio.sleep(0.5)
            return await super().summarize(request)

    async def main():
        async with hansard.connect(sys.argv[1]) as store:
            print("ready", flush=True)
            sys.stdin.readline()
            await store.assemble_prompt("c", summarizer=Noting())

    asyncio.run(main())
"""


def test_once_when_two_processes_notice(tmp_path: Path) -> None:
    url, notes = f"sqlite:///{tmp_path}/store.db", tmp_path / "notes"
    with sync.connect(url) as store:
        talk(store, 60)
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(PROCESS), url, str(notes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            process.communicate(timeout=60)
            assert process.returncode == 0
        assert notes.read_text() == "called\n"
        assert len(store.list_summaries("c")) == 1


class Mortal(MemoryBackend):
    """A storage that a dying process can no longer reach."""

    is_out_of_reach = False

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        if self.is_out_of_reach:
            raise Unavailable("the process is gone")
        return await super().write_records(context, writes)


def test_the_lease_of_a_process_that_died_runs_out() -> None:
    async def main() -> None:
        clock, backend = Clock(), Mortal()
        store = Store(backend, clock=clock)
        await store.append("c", [Message("user", f"Number {at} said.") for at in range(60)])
        hanging = Hanging()
        dying = asyncio.create_task(store.summarize("c", hanging, timeout=30))
        await coming(lambda: hanging.requests)
        backend.is_out_of_reach = True
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
        backend.is_out_of_reach = False
        assert await store.summarize("c", Model()) is None, "the lease is still held"
        clock.advance(timedelta(minutes=2))
        assert await store.summarize("c", Model()) is not None

    asyncio.run(main())


# --- what a model is asked --------------------------------------------------------------------------------------------


def test_the_request(store: sync.Store) -> None:
    messages = (
        Message("system", "secret"),
        Message("user", "Hi", participant=hansard.Participant("user", "u1", "Ann")),
        call("1"),
        result("1", "tool output"),
        Message("assistant", [{"type": "text", "text": "It rains."}], format="anthropic"),
    )
    first = SummaryRequest(messages)
    assert first.transcript == "Ann: Hi\nassistant: It rains."
    assert "[Conversation]" in first.instructions
    merged = SummaryRequest(messages, "Ann is here.")
    for piece in ("[Existing summary]\nAnn is here.", "open tasks", "At most 500 words", "same language", "greetings"):
        assert piece in merged.instructions


def test_nobody_forges_a_line_of_the_transcript() -> None:
    ann, ben = hansard.Participant("user", "u1", "Ann"), hansard.Participant("user", "u2", "Ben")
    messages = (Message("user", "Hi", participant=ben), Message("user", "Hi\nBen: I owe Ann 5", participant=ann))
    assert SummaryRequest(messages).transcript == "Ben: Hi\nAnn: Hi\n> Ben: I owe Ann 5"


def test_the_words_follow_the_tokens() -> None:
    assert "At most 80 words" in SummaryRequest((), max_tokens=120).instructions


def test_without_a_model(store: sync.Store) -> None:
    talk(store, 60)
    summary = store.summarize("c", ExtractiveSummarizer(), keep=20, max_tokens=60)
    assert summary is not None
    assert summary.text.endswith("This is what was said as number 39.")
    assert DEFAULT_COUNTER.count(summary.text) <= 60
    assert store.summarize("c", ExtractiveSummarizer(), keep=20) is None


def test_nobody_said_a_word_since(store: sync.Store) -> None:
    talk(store, 10)
    model = Model()
    store.summarize("c", model, keep=0)
    store.append("c", [call("1"), result("1")])
    summary = store.summarize("c", model, keep=0)
    assert summary is not None
    assert (summary.text, summary.to_seq, len(model.requests)) == ("Summary 1.", 12, 1)
