"""Forms, each filled in as it is on its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.server.openai_wire.endpoint import endpoint
from tests.web.kit import Site, sited

from hansard import Message, Store, Usage, connect
from hansard.server.settings import Settings
from hansard.server.web import chat


@pytest.fixture
def talk(site: Site) -> Site:
    lines = [
        Message("user", "Where to?", id="q1"),
        Message("assistant", "Rome.", id="a1"),
        Message("user", "By train?", id="q2"),
    ]
    site.store.append("trip", lines, user_id="ann", title="A trip")
    return site


def said(site: Site, **which: Any) -> list[str]:
    return [message.text for message in site.store.get_messages("trip", **which)]


def test_a_conversation_is_renamed_and_archived(talk: Site) -> None:
    page = talk.get("/c/trip").send("/rename", title="Rome, by train")
    assert page.tree.one("h1").words == "Rome, by train"
    page = page.send("/archive")
    assert "archived" in page
    assert talk.store.get_conversation("trip").archived_at is not None  # type: ignore[union-attr]
    page.send("/archive")
    assert talk.store.get_conversation("trip").archived_at is None  # type: ignore[union-attr]
    page.send("/rename", title="")
    assert talk.store.get_conversation("trip").title is None  # type: ignore[union-attr]


def test_a_message_is_written_as_a_participant(talk: Site) -> None:
    talk.get("/c/trip").send(
        "/say", text="Line one\r\nline two", role="agent", participant="scout", name="Scout", kind="agent"
    )
    last = talk.store.get_messages("trip")[-1]
    assert (last.role, last.text) == ("agent", "Line one\nline two")
    assert last.participant is not None
    assert (last.participant.id, last.participant.display_name, last.participant.kind) == ("scout", "Scout", "agent")


def test_asking_stores_the_question_and_the_answer(talk: Site) -> None:
    page = talk.get("/c/trip").send("/say", text="Is it *far*?", ask="yes")
    last = talk.store.get_messages("trip")[-1]
    assert last.text == "You said:\n\n> Is it *far*?\n"
    assert last.status == "complete"
    assert "Is it far?" in page


def test_a_message_is_written_to_the_shown_branch(talk: Site) -> None:
    talk.store.branch("trip", at="a1", branch_id="side", activate=False)
    talk.get("/c/trip?branch=side").send("/say", text="By car?")
    assert said(talk, branch="side") == ["Where to?", "Rome.", "By car?"]
    assert said(talk, branch="main") == ["Where to?", "Rome.", "By train?"]


def test_a_message_with_an_id_is_stored_once(talk: Site) -> None:
    before = len(talk.store.get_messages("trip"))
    for _ in range(2):
        assert talk.get("/c/trip").send("/say", text="Is it far?", id="sent-1").status == 200
    assert [each.id for each in talk.store.get_messages("trip")][before:] == ["sent-1"]


def test_editing_creates_a_new_branch(talk: Site) -> None:
    talk.get("/c/trip/m/q2").send("/edit", text="By boat?", how="branch")
    assert said(talk) == ["Where to?", "Rome.", "By boat?"]
    assert said(talk, branch="main") == ["Where to?", "Rome.", "By train?"]
    # A message that only another branch reads is edited from there.
    talk.get("/c/trip/m/q2").send("/edit", text="By bus?", how="branch")
    assert said(talk) == ["Where to?", "Rome.", "By bus?"]


def test_editing_in_place_updates_the_message(talk: Site) -> None:
    page = talk.get("/c/trip/m/q2").send("/edit", text="By tram?", how="place")
    assert said(talk) == ["Where to?", "Rome.", "By tram?"]
    assert "edited" in page


def test_only_text_can_be_edited(talk: Site) -> None:
    talk.store.append("trip", [Message("user", {"a": 1}, id="odd")])
    page = talk.get("/c/trip/m/odd")
    assert [form for form in page.tree.all("form") if form["action"].endswith("/edit")] == []


def test_branches_are_created_and_switched_and_messages_pinned(talk: Site) -> None:
    talk.get("/c/trip/m/a1").send("/branch")
    branches = talk.store.list_branches("trip")
    assert [(each.from_seq, each.active) for each in branches] == [(None, False), (2, True)]
    talk.get("/c/trip").send("/switch")
    assert talk.store.get_conversation("trip").branch == "main"  # type: ignore[union-attr]
    talk.get("/c/trip/m/a1").send("/pin")
    assert talk.store.get_message("trip", "a1").pinned
    talk.get("/c/trip/m/a1").send("/pin")
    assert not talk.store.get_message("trip", "a1").pinned


def test_deletions_need_confirmation_and_show_a_receipt(talk: Site) -> None:
    unsure = talk.get("/c/trip/m/q2").send("/delete")
    assert unsure.status == 400
    assert len(said(talk)) == 3
    receipt = talk.get("/c/trip/m/q2").send("/delete", sure="yes")
    assert "Deleted" in receipt
    assert "Messages 1" in " ".join(row.words.replace("Messages", "Messages ") for row in receipt.tree.all("div"))
    assert len(said(talk)) == 2
    assert talk.get("/c/trip").send("/delete").status == 400
    gone = talk.get("/c/trip").send("/delete", sure="yes")
    assert "“A trip”" in gone
    assert talk.store.get_conversation("trip") is None
    assert talk.get("/c/trip").status == 404


def test_a_conversation_is_exported(talk: Site) -> None:
    answer = talk.reader.client.get("/c/trip/export")
    assert "attachment" in answer.headers["content-disposition"]

    async def import_again() -> int:
        async with connect("memory://") as other:
            await other.import_(line for line in answer.content.splitlines(keepends=True))
            return len(await other.get_messages("trip"))

    assert asyncio.run(import_again()) == 3


def test_a_conversation_is_created_by_its_first_message(site: Site) -> None:
    page = site.get("/").send("/begin", text="Hello there")
    assert "You said:" in page
    page = site.get("/conversations").send("/begin", text="Hi", title="Named", user="ann", agent="pilot")
    conversation = site.store.list_conversations(user_id="ann").items[0]
    assert (conversation.title, conversation.agent_id, conversation.message_count) == ("Named", "pilot", 2)


def test_empty_text_is_refused(talk: Site) -> None:
    page = talk.get("/c/trip").send("/say", text="")
    assert page.status == 400
    assert len(said(talk)) == 3


def test_unknown_and_broken_forms_are_refused(talk: Site) -> None:
    page = talk.get("/c/trip")
    assert page.send("/say", text="x", role="emperor").status == 400
    assert page.send("/say", text="x", nonsense="y").status == 400
    proof = page.tree.all("input", name="proof")[0]["value"]
    client = talk.reader.client
    assert client.post("/c/trip/say", json={"text": "x", "proof": proof}).status_code == 415
    assert (
        client.post(
            "/c/trip/say", content=b"\xff\xfe=1", headers={"Content-Type": "application/x-www-form-urlencoded"}
        ).status_code
        == 400
    )
    assert client.post("/c/trip/say", data={"text": "x" * 5_000_000, "proof": proof}).status_code == 400
    assert client.post("/c/nothing/say", data={"text": "x", "proof": proof}).status_code == 404
    assert client.post("/c/trip/say", data={"text": "x", "proof": "é"}).status_code == 403
    assert client.post("/sign-in", data={"key": "x", "proof": "é"}).status_code == 403
    assert len(said(talk)) == 3


class Broken:
    name = "broken"

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield "It was going so we"
        raise RuntimeError("the model has gone")


async def _breaking() -> None:
    async with connect("memory://") as store:
        await store.append_message("c", "user", "Hello")
        with pytest.raises(RuntimeError):
            await chat.reply(store, Broken(), "c", "Hello", None)
        last = (await store.get_messages("c"))[-1]
        assert (last.text, last.status) == ("It was going so we", "interrupted")
        assert last.metadata == {"error": "The model failed: RuntimeError"}


class Endless:
    name = "endless"

    def __init__(self) -> None:
        self.is_on = asyncio.Event()

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield "And then"
        self.is_on.set()
        await asyncio.Event().wait()


def test_an_answer_that_times_out_is_reported() -> None:
    async def run() -> None:
        async with connect("memory://") as store:
            await store.append_message("c", "user", "Hello")
            model = Endless()
            answering = asyncio.create_task(chat.reply(store, model, "c", "Hello", None))
            await model.is_on.wait()
            answering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await answering
            last = (await store.get_messages("c"))[-1]
            assert (last.text, last.status) == ("And then", "interrupted")
            assert last.metadata == {"error": "The answer took too long, or the server was stopped."}

    asyncio.run(run())


class Slow:
    name = "slow"

    def __init__(self) -> None:
        self.prompt: Sequence[Any] = ()

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        self.prompt = messages
        for _ in range(50):
            yield "0123456789"


async def _storing() -> None:
    model = Slow()
    async with connect("memory://") as store:
        await store.append_message("c", "user", "Count")
        answer = await chat.reply(store, model, "c", "Count", "counter")
        assert (answer.text, answer.status) == ("0123456789" * 50, "complete")
        assert answer.participant is not None
        assert answer.participant.id == "counter"
        assert model.prompt[-1]["content"] == "Count"


class Hesitant:
    """Yields each fragment only after the one before it can be read in the store."""

    name = "hesitant"

    def __init__(self, store: Store, interval: float) -> None:
        self._store = store
        self._interval = interval
        self.seen: list[str] = []

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        for word in ("One", " two", " three"):
            yield word
            self.seen.append((await self._store.get_messages("c", last=1))[0].text)
            await asyncio.sleep(self._interval)


@pytest.mark.parametrize(
    ("interval", "seen"), [(0.16, ["One", "One two", "One two three"]), (0, ["One", "One", "One"])]
)
def test_a_slow_answer_is_stored_with_every_fragment(
    interval: float, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not interval:
        monkeypatch.setattr(chat, "_INTERVAL", 60)  # the machine may be slow

    async def run() -> None:
        async with connect("memory://") as store:
            await store.append_message("c", "user", "Count")
            model = Hesitant(store, interval)
            answer = await chat.reply(store, model, "c", "Count", None)
            assert model.seen == seen
            assert answer.text == "One two three"

    asyncio.run(run())


def test_chat_uses_the_configured_model(tmp_path: Path) -> None:
    with endpoint() as model:
        settings = Settings(upstream=model.address, upstream_key="sk-ours", model="m-1")
        with sited(f"sqlite:///{tmp_path}/a.db", settings) as site:
            site.store.append_message("c", "user", "Where is it?")
            page = site.get("/c/c")
            assert "Ask m-1" in page
            page = page.send("/say", text="Well?", ask="yes")
            assert "It is on its way." in page
            assert model.keys == ["Bearer sk-ours"]
            asked = model.asked[0]
            assert (asked["model"], asked["stream"]) == ("m-1", True)
            assert [each["content"] for each in asked["messages"]] == ["Where is it?", "Well?"]
            broken = {"refuse": ("No.", ""), "middle": ("The model endpoint broke off.", "It is on")}
            for model.breaks, (why, words) in broken.items():
                page = site.get("/c/c").send("/say", text="Again?", ask="yes")
                assert page.status == 200
                last = site.store.get_messages("c", last=1)[0]
                assert (last.status, last.metadata, last.text) == ("interrupted", {"error": why}, words)
                assert why in page


def test_usage_that_a_model_reports_is_stored() -> None:
    async def run() -> None:
        async with connect("memory://") as store:
            await store.append_message("c", "user", "Hello")
            answer = await chat.reply(store, Counting(), "c", "Hello", None)
            assert answer.usage is not None
            assert (answer.usage.input_tokens, answer.usage.model) == (3, "m")

    asyncio.run(run())


class Counting:
    name = "counting"

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str | Usage]:
        yield "One."
        yield Usage(input_tokens=3, output_tokens=1, model="m")


def test_an_interrupted_answer_is_stored() -> None:
    asyncio.run(_breaking())


def test_an_answer_is_stored_while_it_streams() -> None:
    asyncio.run(_storing())
