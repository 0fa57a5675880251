"""Google ADK's session and memory services, with ADK's own runner and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.models import BaseLlm
from google.adk.models._capabilities import LlmCapabilities
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from pydantic import Field
from tests.test_sync import suspending

from hansard import Conversation, Message, Store, Unavailable, ValidationError, sync
from hansard.adapters.adk.events import Events
from hansard.adapters.adk.sessions import AdkSessionService
from hansard.adapters.adk.window_cache import Windows
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend
from hansard.testing.faulty import Fault, faulty

pytestmark = pytest.mark.anyio

WHO: Any = {"app_name": "app", "user_id": "ann"}


class Scripted(BaseLlm):
    """A model that says what it was told to, and remembers what it was asked."""

    model: str = "scripted"
    script: list[types.Part]
    asked: list[list[types.Content]] = Field(default_factory=list)

    @property
    def capabilities(self) -> LlmCapabilities:
        return LlmCapabilities(output_schema_and_tools=True)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append([content.model_copy(deep=True) for content in llm_request.contents])
        spent = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=2)
        said = types.Content(role="model", parts=[self.script.pop(0)])
        yield LlmResponse(content=said, usage_metadata=spent, model_version="scripted-1")


def content(text: str, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


def event(text: str = "", author: str = "user", state: dict[str, Any] | None = None, **fields: Any) -> Event:
    said = content(text, "user" if author == "user" else "model") if text else None
    actions = EventActions(state_delta=state or {})
    return Event(author=author, invocation_id="i", content=said, actions=actions, **fields)


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [part.text or "" for each in session.events if each.content for part in each.content.parts or []]


async def loaded(service: AdkSessionService, id: str = "s", **config: Any) -> Session:
    found = await service.get_session(**WHO, session_id=id, config=GetSessionConfig(**config))
    assert found is not None
    return found


# Sessions


async def test_sessions_come_and_go(store: Store) -> None:
    service = store.adk_session_service()
    assert await service.get_session(**WHO, session_id="s") is None
    await service.delete_session(**WHO, session_id="s")
    made = await service.create_session(**WHO, session_id=" s ", state={"a": 1, "temp:x": 2})
    assert (made.id, made.app_name, made.user_id, made.state, made.events) == ("s", "app", "ann", {"a": 1}, [])
    assert await service.get_session(**WHO, session_id="  s") == made
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, session_id="s")
    conversation = await store.get_conversation("s")
    assert conversation is not None
    assert (conversation.user_id, conversation.agent_id) == ("ann", "app")
    assert (await service.create_session(**WHO)).id not in ("", "s")
    await service.delete_session(**WHO, session_id="s")
    assert await store.get_conversation("s") is None
    with pytest.raises(SessionNotFoundError):
        await service.append_event(made, event("Hi"))


async def test_each_user_and_app_has_sessions_of_its_own(store: Store) -> None:
    service = store.adk_session_service()
    for app, user in (("app", "ann"), ("app", "bob"), ("other", "ann")):
        session = await service.create_session(
            app_name=app, user_id=user, session_id="s", state={"of": f"{app} {user}"}
        )
        await service.append_event(session, event(f"for {app} {user}"))
    for app, user in (("app", "ann"), ("app", "bob"), ("other", "ann")):
        found = await service.get_session(app_name=app, user_id=user, session_id="s")
        assert texts(found) == [f"for {app} {user}"]
        assert found is not None
        assert found.state == {"of": f"{app} {user}"}
    everyone = (await service.list_sessions(app_name="app")).sessions
    assert [session.user_id for session in everyone] == ["ann", "bob"]
    assert [len(session.events) for session in everyone] == [0, 0]
    assert len((await service.list_sessions(app_name="app", user_id="ann")).sessions) == 1
    assert (await service.list_sessions(app_name="app", user_id="")).sessions == []
    await service.delete_session(app_name="app", user_id="bob", session_id="s")
    assert await service.get_session(**WHO, session_id="s") is not None


async def test_state_by_its_prefixes(store: Store) -> None:
    service = store.adk_session_service()
    first = await service.create_session(**WHO, session_id="one", state={"app:a": 1, "user:u": 1, "s": 1, "temp:t": 1})
    assert first.state == {"app:a": 1, "user:u": 1, "s": 1}
    change = {"app:a": 2, "user:u": None, "s": {"deep": [1]}, "temp:t": 2}
    appended = await service.append_event(first, event("Hi", state=change))
    assert first.state["temp:t"] == 2, "in memory, for the rest of the run"
    assert "temp:t" not in appended.actions.state_delta
    again = await loaded(service, "one")
    assert again.state == {"app:a": 2, "user:u": None, "s": {"deep": [1]}}
    second = await service.create_session(**WHO, session_id="two")
    assert second.state == {"app:a": 2, "user:u": None}
    stranger = await service.create_session(app_name="app", user_id="bob")
    assert stranger.state == {"app:a": 2}
    assert await service.get_user_state(**WHO) == {"u": None}
    await service.delete_session(**WHO, session_id="one")
    assert await service.get_user_state(**WHO) == {"u": None}
    await store.erase_user("ann")
    assert await service.get_user_state(**WHO) == {}
    assert (await service.list_sessions(**WHO)).sessions == []


async def test_events_come_back_exactly_in_the_order_of_arrival(store: Store) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    image = types.Part(inline_data=types.Blob(data=b"\xff\xfe\x00" * 50, mime_type="image/png"))
    events = [
        event("late", timestamp=2000.5),
        event("early", timestamp=1000.25, custom_metadata={"x": [None, 1]}),
        Event(author="agent", invocation_id="i", content=types.Content(role="model", parts=[image])),
        event(state={"only": "state"}, author="agent"),
        event("é\x00\U0001f600", author="agent", branch="a.b", long_running_tool_ids={"b", "a"}, error_code="E"),
    ]
    for each in events:
        await service.append_event(session, each)
    partial = await service.append_event(session, event("part", author="agent", partial=True))
    assert partial.partial
    assert session.events == events
    found = await loaded(service)
    assert found.events == events
    assert texts(await loaded(service, num_recent_events=2)) == ["é\x00\U0001f600"]
    assert (await loaded(service, num_recent_events=0)).events == []
    assert (await loaded(service, num_recent_events=0)).state == {"only": "state"}
    assert "early" not in texts(await loaded(service, after_timestamp=2000.5))
    assert "late" in texts(await loaded(service, after_timestamp=2000.5))


async def test_a_stale_session_is_known_by_its_version(store: Store) -> None:
    service = store.adk_session_service()
    await service.create_session(**WHO, session_id="s")
    one, other = await loaded(service), await loaded(service)
    await service.append_event(one, event("first", timestamp=5.0))
    with pytest.raises(StaleSessionError):
        await service.append_event(other, event("second", state={"k": "lost"}, timestamp=6.0))
    assert texts(await loaded(service)) == ["first"]
    assert (await loaded(service)).state == {}
    await service.append_event(one, event("third", timestamp=1.0))
    await store.append_message("s", "user", "from elsewhere")
    with pytest.raises(StaleSessionError):
        await service.append_event(one, event("fourth"))
    unmarked = (await loaded(service)).model_copy(deep=True)
    unmarked._storage_update_marker = None
    await service.append_event(unmarked, event("fourth"))
    assert texts(await loaded(service)) == ["first", "third", "from elsewhere", "fourth"]


async def test_an_event_that_is_sent_again_is_stored_once(store: Store) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    said = event("Hi", state={"count": 1})
    await service.append_event(session, said)
    await service.append_event(session, event("More", state={"count": 2}))
    await service.append_event(session, said)
    assert texts(session) == texts(await loaded(service)) == ["Hi", "More"]
    assert (await loaded(service)).state == {"count": 2}
    await service.append_event(session, event("On"))


@pytest.mark.parametrize("config", [{}, {"num_recent_events": 3}])
async def test_what_is_remembered_is_what_is_stored(store: Store, config: dict[str, Any]) -> None:
    service, other = store.adk_session_service(), store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    call = types.Part(function_call=types.FunctionCall(name="f", args={"a": [1, {"b": 2}]}, id="c"))
    parts = [types.Part(text="said"), call, types.Part(inline_data=types.Blob(data=b"\x00\xff", mime_type="x/y"))]
    first = Event(author="helper", invocation_id="i", content=types.Content(role="model", parts=parts))
    await service.append_event(session, first)
    for number in range(4):
        session = await loaded(service, **config)
        assert session == await loaded(other, **config)
        assert session.events[0] == (first if number < 3 or not config else session.events[0])
        # Whoever gets a session may do with it as they like.
        for each in session.events:
            for part in (each.content or content("")).parts or []:
                part.text = "spoilt"
                if part.function_call and part.function_call.args:
                    part.function_call.args["a"].append("spoilt")
            each.actions.state_delta["spoilt"] = 1
        session = await loaded(service, **config)
        assert "spoilt" not in repr(session)
        await service.append_event(session, event(f"n{number}"))
    session = await loaded(service, **config)
    assert texts(session)[-3:] == ["n1", "n2", "n3"]
    gone, changed = session.events[-2].id, session.events[-1].id
    await store.delete_message("s", gone)
    row = await store.get_message("s", changed)
    await store.update_message("s", changed, content={**row.content, "author": "someone"}, format="adk")
    session = await loaded(service, **config)
    assert [each.id for each in session.events][-1:] == [changed]
    assert gone not in [each.id for each in session.events]
    assert session.events[-1].author == "someone"
    await store.delete_conversation("s")
    await service.create_session(**WHO, session_id="s")
    assert (await loaded(service, **config)).events == []


async def test_an_event_of_a_deleted_session_is_never_heard_again(store: Store) -> None:
    service = store.adk_session_service()
    for text in ("a secret", "something else"):
        session = await service.create_session(**WHO, session_id="s")
        await service.append_event(session, Event(id="e1", author="user", content=content(text)))
        assert texts(await loaded(service)) == [text]
        await store.delete_conversation("s")


def test_what_is_remembered_is_bounded() -> None:
    events, windows = Events(), Windows()
    conversation = Conversation("s")
    for number in range(40):
        inside = {"author": "user", "invocation_id": "i", "content": {"parts": [{"text": f"{number}" * 1_000_000}]}}
        row = Message("user", inside, id=f"e{number}", conversation_id="s", seq=number + 1, format="adk")
        assert events.event_of(row).content is not None
        windows.keep(conversation, None, [row])
        assert windows.get(conversation, None) == ([row] if number < 10 else None), "only what is small is kept"
        windows.keep(conversation, 1, [])
        windows.extend("s", 0, 0, row)
        assert windows.get(conversation, 1) == ([row] if number < 10 else None)
    held = sum(made.size for _, made in events._made.items())
    assert held == events._made.weight <= 32_000_000
    assert ("s", "e39") in events._made, "the newest stay"


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5])
async def test_a_cancelled_append_has_ended_when_the_caller_hears_of_it(store: Store, turns: int) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    said = event("Hi", state={"s": 1, "user:u": 2})
    task = asyncio.ensure_future(service.append_event(session, said))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    found = await loaded(service)
    assert texts(found) == (["Hi"] if turns else [])
    assert found.state == ({"s": 1, "user:u": 2} if turns else {})
    await service.append_event(found, said)
    await service.append_event(found, event("On"))
    assert texts(await loaded(service)) == ["Hi", "On"]


async def test_an_event_that_cannot_be_kept_is_refused(store: Store) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    half = "\ud83d"
    bad = [event(half), event("Hi", state={"k": half}), event("Hi", id="i" * 300)]
    for each in [*bad, *(event("Hi", timestamp=float(time)) for time in ("inf", "nan", "1e18"))]:
        with pytest.raises(ValidationError):
            await service.append_event(session, each)
    assert session.events == (await loaded(service)).events == []
    await service.append_event(session, event("Hi"))


async def test_a_cancelled_append_to_a_stale_session_stores_nothing(store: Store) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s")
    await store.append_message("s", "user", "from elsewhere")
    task = asyncio.ensure_future(service.append_event(session, event("Hi")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises((asyncio.CancelledError, StaleSessionError)):
        await task
    assert texts(await loaded(service)) == ["from elsewhere"]


async def test_two_writers_lose_nothing(store: Store) -> None:
    service = store.adk_session_service()
    await service.create_session(**WHO, session_id="s")

    async def write(name: str) -> None:
        for number in range(5):
            while True:
                session = await loaded(service)
                try:
                    await service.append_event(session, event(f"{name}{number}", state={f"user:{name}{number}": 1}))
                    break
                except StaleSessionError:
                    continue

    await asyncio.gather(write("a"), write("b"))
    assert sorted(texts(await loaded(service))) == [f"{name}{number}" for name in "ab" for number in range(5)]
    assert len(await service.get_user_state(**WHO)) == 10


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_between_event_and_state_loses_neither(when: Any) -> None:
    change = {"s": 1, "user:u": 2, "app:a": 3}
    for at in range(1, 30):
        backend = MemoryBackend()
        service = Store(backend).adk_session_service()
        session = await service.create_session(**WHO, session_id="s")
        fault = Fault(at=at, when=when)
        failing = Store(faulty(backend, fault)).adk_session_service()
        with suppress(Unavailable):
            await failing.append_event(session, event("Hi", state=change))
        found = await loaded(service)
        is_stored = bool(found.events)
        assert found.state == (change if is_stored else {}), (at, fault.struck)
        if fault.struck is None:
            assert is_stored
            return
    raise AssertionError("the fault always struck")


async def test_state_is_found_without_reading_everything(store: Store) -> None:
    service = store.adk_session_service()
    session = await service.create_session(**WHO, session_id="s", state={"a": 1})
    for number in range(70):
        await service.append_event(session, event(f"{number}", state={"a": number} if number == 3 else None))
    record = await store.records.get(("adk-sessions", "app", "ann"), "s")
    assert record is not None
    assert record.value["applied"] == 64
    assert (await loaded(service, num_recent_events=1)).state == {"a": 3}


# The runner


async def run(runner: Runner, text: str, id: str = "s") -> list[str]:
    said = []
    async for each in runner.run_async(user_id="ann", session_id=id, new_message=content(text)):
        said += [part.text for part in (each.content.parts if each.content else None) or [] if part.text]
    return said


def add(a: int, b: int) -> str:
    """Adds."""
    return f"{a + b} it is"


def adder(store: Store, *script: types.Part, agent: str = "helper") -> tuple[Runner, Scripted]:
    model = Scripted(script=list(script))
    made = LlmAgent(name=agent, model=model, tools=[add], output_key="answer")
    service = store.adk_session_service(agent_name=agent)
    return Runner(app_name="app", agent=made, session_service=service, memory_service=store.adk_memory_service()), model


async def test_the_runner_end_to_end(store: Store) -> None:
    call = types.Part(function_call=types.FunctionCall(id="c1", name="add", args={"a": 1, "b": 2}))
    runner, _ = adder(store, call, types.Part(text="It is 3."))
    await runner.session_service.create_session(**WHO, session_id="s")
    assert await run(runner, "What is 1 + 2?") == ["It is 3."]
    rows = await store.get_messages("s")
    assert [(row.role, row.text) for row in rows] == [
        ("user", "What is 1 + 2?"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "It is 3."),
    ]
    assert [row.participant.id if row.participant else None for row in rows] == [None, "helper", "helper", "helper"]
    again, model = adder(store, types.Part(text="Sure."))
    assert await run(again, "Sure?") == ["Sure."]
    asked = model.asked[-1]
    assert [each.role for each in asked] == ["user", "model", "user", "model", "user"]
    assert (asked[1].parts or [])[0].function_call is not None
    found = await loaded(store.adk_session_service())
    assert found.state == {"answer": "Sure."}
    assert sum(row.input_tokens for row in await store.usage()) == 21
    assert {row.model for row in await store.usage()} == {"scripted-1"}
    await runner.close()


async def test_a_conversation_that_others_began(store: Store) -> None:
    await store.append_message("s", "user", "The code word is heron.", user_id="ann")
    service = store.adk_session_service(agent_name="helper")
    assert await service.get_session(app_name="app", user_id="bob", session_id="s") is None
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, session_id="s")
    runner, model = adder(store, types.Part(text="Heron."))
    assert await run(runner, "Which?") == ["Heron."]
    assert [(part.text or "") for each in model.asked[-1] for part in each.parts or []] == [
        "The code word is heron.",
        "Which?",
    ]
    assert [session.id for session in (await service.list_sessions(**WHO)).sessions] == ["s"]


# Memory


async def test_memories_are_found_by_words(store: Store) -> None:
    service, memory = store.adk_session_service(), store.adk_memory_service()
    session = await service.create_session(**WHO, session_id="s")
    for text in ("My cat is called Mews.", "The weather is fine.", "Mews sleeps all day."):
        await service.append_event(session, event(text))
    assert (await memory.search_memory(**WHO, query="cat")).memories == []
    await memory.add_session_to_memory(session)
    await memory.add_session_to_memory(session)
    found = (await memory.search_memory(**WHO, query="what is the name of my cat Mews")).memories
    assert [(part.text or "") for part in found[0].content.parts or []] == ["My cat is called Mews."]
    assert (found[0].author, found[0].id) == ("user", session.events[0].id)
    assert len((await memory.search_memory(**WHO, query="mews")).memories) == 2
    assert (await memory.search_memory(**WHO, query=" ")).memories == []
    assert (await memory.search_memory(app_name="app", user_id="bob", query="cat")).memories == []
    assert (await memory.search_memory(app_name="other", user_id="ann", query="cat")).memories == []
    await memory.delete_memory(**WHO, memory_id=session.events[0].id)
    await memory.add_session_to_memory(session)
    assert len((await memory.search_memory(**WHO, query="mews")).memories) == 1
    await store.delete_message("s", session.events[2].id)
    assert (await memory.search_memory(**WHO, query="mews")).memories == []


async def test_memories_of_what_is_in_no_session(store: Store) -> None:
    memory = store.adk_memory_service()
    await memory.add_events_to_memory(**WHO, events=[event("Lives in Oslo"), event()], custom_metadata={"k": 1})
    await memory.add_memory(**WHO, memories=[MemoryEntry(content=content("Likes Oslo and rain"), author="app")])
    found = (await memory.search_memory(**WHO, query="oslo rain")).memories
    assert [(each.content.parts or [])[0].text for each in found] == ["Likes Oslo and rain", "Lives in Oslo"]
    assert found[1].custom_metadata == {"k": 1}
    assert found[0].id
    await memory.delete_memory(**WHO, memory_id=found[0].id)
    assert len((await memory.search_memory(**WHO, query="oslo")).memories) == 1
    with pytest.raises(ValueError, match="memory_id"):
        await memory.delete_memory(**WHO)


async def test_deleting_and_erasing_take_everything(store: Store) -> None:
    service, memory = store.adk_session_service(), store.adk_memory_service()
    for id in ("one", "two"):
        session = await service.create_session(**WHO, session_id=id, state={"user:u": 1, "s": 2})
        await service.append_event(session, event("Hello Mews"))
        await memory.add_session_to_memory(session)
    await store.delete_conversation("one")
    assert await service.get_session(**WHO, session_id="one") is None
    assert len((await memory.search_memory(**WHO, query="mews")).memories) == 1
    await store.erase_user("ann")
    assert [record async for record in store.records.iter()] == []
    assert [record async for record in store.user("ann").records.iter()] == []
    assert (await memory.search_memory(**WHO, query="mews")).memories == []


@pytest.mark.parametrize("backend", [MemoryBackend, suspending])
def test_on_a_blocking_store(backend: Any) -> None:
    made: Backend = backend()
    with sync.Store.over(made) as store:

        async def talk() -> list[str]:
            service = store.adk_session_service()
            session = await service.create_session(**WHO, session_id="s")
            await service.append_event(session, event("Hi", state={"a": 1}))
            return texts(await loaded(service))

        assert asyncio.run(talk()) == ["Hi"]
        assert [message.text for message in store.get_messages("s")] == ["Hi"]
