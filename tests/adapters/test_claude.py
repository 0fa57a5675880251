"""The session store of the Claude Agent SDK: its conformance kit, its CLI, and what the kit does not ask."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    rename_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance
from tests.adapters.claude_api import serving

from hansard import Corrupt, Message, Store, ValidationError
from hansard.adapters.claude.session_store import ClaudeSessionStore
from hansard.model import to_micros
from hansard.testing import Clock

pytestmark = pytest.mark.anyio

SESSION = "11111111-1111-4111-8111-111111111111"
KEY: Any = {"project_key": "proj", "session_id": SESSION}
SUB: Any = {**KEY, "subpath": "subagents/agent-1"}


def said(text: Any, role: str = "user", **more: Any) -> Any:
    message = {"role": role, "content": text}
    return {"type": role, "uuid": str(uuid.uuid4()), "message": message, "timestamp": "2026-01-01T00:00:00Z", **more}


def side(number: int, **more: Any) -> Any:
    return {"type": "queue-operation", "n": number, **more}


async def test_the_sdk_s_own_kit(store: Store) -> None:
    numbers = iter(range(1000))

    def make() -> ClaudeSessionStore:
        return store.tenant(f"t{next(numbers)}").claude_session_store()

    await run_session_store_conformance(make)
    assert next(numbers) > 10


async def test_a_transcript_comes_back_in_its_order(store: Store) -> None:
    sessions = store.claude_session_store()
    use = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    entries = [
        side(1),
        said("Hi"),
        side(2),
        said([use], "assistant"),
        side(3, uuid="u3"),
        said([{"type": "tool_result", "tool_use_id": "t1", "content": "é\x00"}]),
        said("hidden", isSidechain=True),
        said("meta", isMeta=True),
        {"type": "summary", "big": 12345678901234567890, "none": None},
    ]
    for at in range(0, len(entries), 4):
        await sessions.append(KEY, entries[at : at + 4])
    assert await sessions.load(KEY) == entries
    rows = await store.get_messages(SESSION)
    assert [row.role for row in rows] == ["user", "assistant", "tool"]
    assert {row.format for row in rows} == {"claude.transcript"}
    assert rows[0].text == "Hi"


async def test_what_is_retried_is_stored_once(store: Store) -> None:
    sessions = store.claude_session_store()
    batch = [said("Hi"), side(1, uuid="u1"), said("Hello", "assistant")]
    for _ in range(3):
        await sessions.append(KEY, batch)
        await sessions.append(SUB, batch)
    await sessions.append(KEY, [side(2), side(2)])
    assert await sessions.load(KEY) == [*batch, side(2), side(2)], "what has no uuid is never taken for a repetition"
    assert await sessions.load(SUB) == batch
    empty: Any = {**KEY, "session_id": "empty"}
    await sessions.append(empty, [])
    assert await sessions.load(empty) is None


async def test_writers_at_once(store: Store) -> None:
    batches = [[said(f"{one}.{two}") if two % 2 else side(one * 10 + two) for two in range(4)] for one in range(8)]
    await asyncio.gather(*(store.claude_session_store().append(KEY, batch) for batch in batches))
    await asyncio.gather(*(store.claude_session_store().append(SUB, batch) for batch in batches))
    main, sub = await store.claude_session_store().load(KEY), await store.claude_session_store().load(SUB)
    assert main is not None
    assert sub is not None
    assert len(main) == len(sub) == 32
    assert {repr(entry) for entry in main} == {repr(entry) for batch in batches for entry in batch}
    places = [sub.index(batch[0]) for batch in batches]
    assert all(sub[at : at + 4] == batch for at, batch in zip(places, batches, strict=True))


async def test_what_has_no_uuid_is_stored_once_where_writers_meet(store: Store) -> None:
    batches = [[{**said(str(number)), "uuid": None}, side(number)] for number in range(6)]
    await asyncio.gather(*(store.claude_session_store().append(KEY, batch) for batch in batches))
    rows = await store.get_messages(SESSION)
    assert sorted(row.text for row in rows) == [str(number) for number in range(6)]


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8, 12, 20])
@pytest.mark.parametrize("key", [KEY, SUB], ids=["main", "subagent"])
async def test_a_cancelled_append_is_all_there_when_the_caller_hears_of_it(store: Store, key: Any, turns: int) -> None:
    """The SDK gives an append up after a minute, by cancelling it."""
    sessions = store.claude_session_store()
    before, batch = [side(0), said("Hi")], [side(1), said("Where?"), side(2), said("There.", "assistant"), side(3)]
    await sessions.append(key, before)
    task = asyncio.ensure_future(sessions.append(key, cast(Any, batch)))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert await sessions.load(key) == [*before, *batch]
    await sessions.append(key, [side(4)])
    assert await sessions.load(key) == [*before, *batch, side(4)]


HALF = "\ud83d"


async def test_half_of_a_character_costs_only_that(store: Store) -> None:
    """What cuts texts off by UTF-16 leaves an emoji at that place in half."""
    sessions = store.claude_session_store()
    asked = said("Look: \U0001f600")
    quoting: Any = {"type": "last-prompt", "lastPrompt": f"Look: {HALF}", HALF: [HALF]}
    await sessions.append(KEY, [asked, quoting, said(f"cut{HALF}")])
    await sessions.append(SUB, [said(f"cut{HALF}")])
    main, sub = cast("list[Any]", await sessions.load(KEY)), cast("list[Any]", await sessions.load(SUB))
    assert main[:2] == [asked, {"type": "last-prompt", "lastPrompt": "Look: \ufffd", "\ufffd": ["\ufffd"]}]
    assert [main[2]["message"]["content"], sub[0]["message"]["content"]] == ["cut\ufffd"] * 2


async def test_a_batch_that_cannot_be_kept_is_refused_as_a_whole(store: Store) -> None:
    sessions = store.claude_session_store()
    deep: Any = []
    for _ in range(store.limits.depth):
        deep = [deep]
    bad: list[Any] = [
        *({"type": "x", "v": value} for value in (float("nan"), b"x", {1: 2}, deep)),
        {"type": "x", "uuid": "u" * 300},
        {"type": "x", "uuid": "u\0"},
        "text",
        None,
        said(float("inf")),
        said([float("nan")]),
    ]
    for begun in (False, True):
        before = await sessions.load(KEY)
        for entry in bad:
            with pytest.raises(ValidationError):
                await sessions.append(KEY, [side(1), said("Hi"), entry, said("Hello", "assistant")])
            assert await sessions.load(KEY) == before, (begun, entry)
        await sessions.append(KEY, [said("Hi"), side(1)])


async def test_an_entry_that_a_caller_repeats_is_there_twice(store: Store) -> None:
    sessions = store.claude_session_store()
    twice: Any = {**said("Hi"), "uuid": None}
    await sessions.append(KEY, [side(1), twice, side(1), twice])
    assert await sessions.load(KEY) == [side(1), twice, side(1), twice]


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_a_session_that_was_begun_anew_is_not_taken_for_the_one_remembered(store: Store, count: int) -> None:
    sessions, others = store.claude_session_store(), store.claude_session_store()
    for number in range(3):
        await sessions.append(KEY, [said(f"gone {number}"), side(number)])
    await store.delete_conversation(SESSION)
    # As many writes as before, so that revisions are the same, but more entries.
    titled = {"type": "custom-title", "customTitle": "Anew", "sessionId": SESSION}
    anew = [[said(f"new {number}"), titled, side(number), side(number)] for number in range(count)]
    for batch in anew:
        await others.append(KEY, batch)
    batch = [said("on"), side(9)]
    await sessions.append(KEY, batch)
    await others.append(KEY, [side(10)])
    entries = [entry for each in anew for entry in each]
    assert await sessions.load(KEY) == await others.load(KEY) == [*entries, *batch, side(10)]
    summary = (await sessions.list_session_summaries("proj"))[0]["data"]
    assert summary.get("custom_title") == ("Anew" if count else None)


async def test_what_is_remembered_of_a_session_is_no_reason_to_leave_it_out(store: Store) -> None:
    sessions = store.claude_session_store()
    for batch in ([said("Hi")], [side(1)], [said("Hi"), side(1)], [side(1, uuid="u1"), said("Hi")]):
        await sessions.append(KEY, [said("gone"), side(0), side(0, uuid="u1")])
        await store.delete_conversation(SESSION)
        await store.append_message(SESSION, "user", "Begun elsewhere")
        await sessions.append(KEY, batch)
        assert [each["session_id"] for each in await sessions.list_sessions("proj")] == [SESSION]
        loaded: Any = await sessions.load(KEY)
        assert loaded[0]["message"]["content"] == "Begun elsewhere"
        assert loaded[1 : 1 + len(batch)] == batch
        await sessions.delete(KEY)
        assert await sessions.list_sessions("proj") == []
        await sessions.append(SUB, [said("Below")])
        assert await sessions.list_subkeys(KEY) == [SUB["subpath"]]
        await sessions.delete(KEY)


async def test_sessions_of_one_millisecond_have_an_order(store: Store) -> None:
    """Written through two stores, as by two processes, and by a clock that moves a tenth of a millisecond a time."""
    clock = Clock(step=timedelta(0))
    stores = [Store(store.backend, clock=clock).claude_session_store() for _ in range(2)]
    names = [str(uuid.uuid4()) for _ in range(24)]
    for number, name in enumerate(names):
        clock.advance(timedelta(microseconds=100))
        await stores[number % 2].append({"project_key": "proj", "session_id": name}, [said("Hi"), side(1)])
    clock.advance(timedelta(microseconds=100))
    await stores[1].append({"project_key": "proj", "session_id": names[0]}, [said("Again")])
    order = [*names[1:], names[0]]
    listed: dict[str, int] = {}
    for sessions in stores:
        listed = {each["session_id"]: each["mtime"] for each in await sessions.list_sessions("proj")}
        assert sorted(order, key=lambda name: listed[name]) == order
        assert len(set(listed.values())) == len(order)
        summaries = await sessions.list_session_summaries("proj")
        assert {each["session_id"]: each["mtime"] for each in summaries} == listed
    clock.advance(timedelta(seconds=1))
    await stores[0].append({"project_key": "proj", "session_id": SESSION}, [said("Later")])
    later = {each["session_id"]: each["mtime"] for each in await stores[1].list_sessions("proj")}
    assert later[SESSION] == to_micros(clock()) // 1000, "a session that is alone in its millisecond has its very time"
    assert {name: later[name] for name in names} == listed, "and the times of the others stay"


async def test_a_subagent_is_deleted_while_it_writes(store: Store) -> None:
    sessions = store.claude_session_store()
    await sessions.append(SUB, [said("first")])

    async def write() -> None:
        for number in range(5):
            await sessions.append(SUB, [side(number)])

    await asyncio.gather(write(), *(store.claude_session_store().delete(SUB) for _ in range(3)))
    left: Any = await sessions.load(SUB)
    assert [entry["n"] for entry in left or []] == list(range(5))[5 - len(left or []) :]


async def test_projects_subagents_and_deletion(store: Store) -> None:
    sessions = store.claude_session_store()
    other: Any = {"project_key": "other", "session_id": SESSION}
    await sessions.append(KEY, [said("Hi")])
    await sessions.append(other, [said("Elsewhere")])
    await sessions.append(SUB, [said("Below")])
    deeper: Any = {**KEY, "subpath": "subagents/a:b/agent-2"}
    await sessions.append(deeper, [said("Deeper")])
    assert sorted(await sessions.list_subkeys(KEY)) == ["subagents/a:b/agent-2", "subagents/agent-1"]
    assert [row.text for row in await store.get_messages(SESSION)] == ["Hi"], "subagents are not in the history"
    await sessions.delete(SUB)
    await sessions.append(SUB, [said("Once more")])
    below = await sessions.load(SUB)
    assert below is not None
    assert len(below) == 1
    await store.delete_conversation(SESSION)
    assert await sessions.load(KEY) is None
    assert await sessions.load(SUB) is None
    assert await sessions.list_sessions("proj") == []
    elsewhere = await sessions.load(other)
    assert elsewhere is not None
    assert elsewhere[0]["message"]["content"] == "Elsewhere"  # type: ignore[typeddict-item]


async def test_what_others_said_is_loaded_too(store: Store) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    items: list[Any] = [{"role": "user", "content": "Hi"}, call, answer]
    await store.openai_session("trip").add_items(items)
    session_id = await store.claude_session_binding("trip")
    assert await store.claude_session_binding("trip") == session_id == str(uuid.UUID(session_id))
    assert await store.claude_session_binding(SESSION) == SESSION
    key: Any = {"project_key": "proj", "session_id": session_id}
    sessions = store.claude_session_store()
    first: Any = await sessions.load(key)
    assert [entry["type"] for entry in first] == ["user", "assistant", "user"]
    assert [entry["parentUuid"] for entry in first] == [None, first[0]["uuid"], first[1]["uuid"]]
    await sessions.append(key, [side(1), said("Go on", parentUuid=first[-1]["uuid"])])
    await store.append_message("trip", "user", "From elsewhere")
    entries: Any = await sessions.load(key)
    assert entries[:3] == first
    assert [entry["type"] for entry in entries[3:]] == ["queue-operation", "user", "user", "last-prompt"]
    assert entries[-1]["leafUuid"] == entries[-2]["uuid"]
    assert [row.role for row in await store.get_messages("trip")] == ["user", "assistant", "tool", "user", "user"]
    history = await store.openai_session("trip").get_items()
    assert [item.get("content") or item.get("type") for item in history][-2:] == ["Go on", "From elsewhere"]


async def test_the_sdk_s_helpers(store: Store) -> None:
    sessions: Any = store.claude_session_store()
    key: Any = {"project_key": project_key_for_directory("/proj"), "session_id": SESSION}
    question = said("Hi", sessionId=SESSION, parentUuid=None)
    reply = said([{"type": "text", "text": "Hello"}], "assistant", sessionId=SESSION, parentUuid=question["uuid"])
    await sessions.append(key, [question, reply])
    assert len(await get_session_messages_from_store(sessions, SESSION, directory="/proj")) == 2
    await rename_session_via_store(sessions, SESSION, "Greetings", directory="/proj")
    fork = await fork_session_via_store(sessions, SESSION, directory="/proj")
    listed = {info.session_id: info for info in await list_sessions_from_store(sessions, directory="/proj")}
    assert set(listed) == {SESSION, fork.session_id}
    assert listed[SESSION].custom_title == "Greetings"
    await delete_session_via_store(sessions, SESSION, directory="/proj")
    assert await store.get_conversation(SESSION) is None


# The CLI


async def ask(store: Store, folder: Path, url: str, prompt: str, **options: Any) -> ResultMessage:
    """One turn of the real CLI, in a process of its own, with an empty configuration."""
    config = folder / uuid.uuid4().hex
    project = folder / "project"
    for path in (config, project):
        path.mkdir(exist_ok=True)
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CONFIG_DIR": str(config),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    sessions: Any = store.claude_session_store()
    asked = ClaudeAgentOptions(
        session_store=sessions, cwd=project, env=env, tools=[], setting_sources=[], model="claude-test", **options
    )
    results = [each async for each in query(prompt=prompt, options=asked) if isinstance(each, ResultMessage)]
    return results[-1]


async def test_the_cli_writes_here_and_resumes_from_here(store: Store, tmp_path: Path) -> None:
    with serving("Hello there") as api:
        first = await ask(store, tmp_path, api.url, "Hi Claude")
        assert first.result == "Hello there"
        rows = await store.get_messages(first.session_id)
        assert [(row.role, row.text) for row in rows] == [("user", "Hi Claude"), ("assistant", "Hello there")]
        others = [Message("user", "Meanwhile, elsewhere"), Message("assistant", "Heard elsewhere")]
        await store.append(first.session_id, others)
        await ask(store, tmp_path, api.url, "Go on", resume=first.session_id)
        heard = str(api.asked[-1]["messages"])
    assert all(text in heard for text in ("Hi Claude", "Hello there", "Meanwhile", "Heard elsewhere", "Go on"))
    assert [row.role for row in await store.get_messages(first.session_id)] == ["user", "assistant"] * 3


async def test_the_cli_resumes_what_another_framework_began(store: Store, tmp_path: Path) -> None:
    await store.append("trip", [Message("user", "The code word is heron."), Message("assistant", "Noted.")])
    session_id = await store.claude_session_binding("trip")
    with serving("Heron") as api:
        await ask(store, tmp_path, api.url, "What is it?", resume=session_id)
        heard = str(api.asked[-1]["messages"])
    assert "The code word is heron." in heard
    assert [row.text for row in await store.get_messages("trip")][-2:] == ["What is it?", "Heron"]


async def test_the_cli_hears_the_results_of_calls_that_another_framework_made_at_once(
    store: Store, tmp_path: Path
) -> None:
    calls = [{"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"} for at in (1, 2)]
    results = [{"type": "function_call_output", "call_id": f"c{at}", "output": f"heron {at}"} for at in (1, 2)]
    items: Any = [{"role": "user", "content": "Look twice."}, *calls, *results]
    await store.openai_session("trip").add_items(items)
    session_id = await store.claude_session_binding("trip")
    with serving("Two herons") as api:
        await ask(store, tmp_path, api.url, "What is it?", resume=session_id)
        heard = [message["content"] for message in api.asked[-1]["messages"] if message["role"] != "system"]
    assert [block["id"] for block in heard[1]] == ["c1", "c2"]
    assert [block["tool_use_id"] for block in heard[2][:2]] == ["c1", "c2"]
    assert [block["content"] for block in heard[2][:2]] == ["heron 1", "heron 2"]


# Records of another layout


async def test_what_another_version_wrote_is_refused_clearly(store: Store) -> None:
    sessions = store.claude_session_store()
    await store.create_conversation(SESSION, metadata={"claude_project": "proj"})
    old = {"conversation_id": SESSION, "entries": 1, "summary": {"first_prompt": "Hi"}, "subagents": {}}
    await store.records.put(("claude-sessions", "proj"), SESSION, old, conversation_id=SESSION)
    calls: list[Any] = [
        lambda: sessions.load(KEY),
        lambda: sessions.append(KEY, [said("Hi"), side(1)]),
        lambda: sessions.list_sessions("proj"),
        lambda: sessions.list_session_summaries("proj"),
        lambda: sessions.list_subkeys(KEY),
    ]
    for call in calls:
        with pytest.raises(Corrupt, match=f"{SESSION}.*this version"):
            await call()
    assert await store.get_messages(SESSION) == [], "nothing is written beside it"
    await store.delete_conversation(SESSION)
    await sessions.append(KEY, [side(1)])
    await store.records.put(("claude-entries", "proj", SESSION), "000000000001.000000001", side(2))
    with pytest.raises(Corrupt, match=r"000000000001\.000000001.*this version"):
        await sessions.load(KEY)
