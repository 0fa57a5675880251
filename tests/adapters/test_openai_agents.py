"""The session of the OpenAI Agents SDK, with the SDK's own runner and scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import httpx2
import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    RunState,
    Session,
    SessionSettings,
    Usage,
    function_tool,
)
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI
from tests.test_sync import suspending

from hansard import Message, Store, ValidationError, sync
from hansard.adapters.openai_agents import OpenAISession, in_window
from hansard.backends.memory import MemoryBackend
from hansard.contract.backend import Backend

pytestmark = pytest.mark.anyio

QUIET = RunConfig(tracing_disabled=True)
ODD: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "user", "content": "Hi"},
    {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "…"},
    {
        "id": "fc_1",
        "type": "function_call",
        "call_id": "c1",
        "name": "add",
        "arguments": '{"a": 1}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "c1", "output": "é\x00\U0001f600"},
    {"type": "something_new", "big": 12345678901234567890, "none": None, "of": [1.5, {"type": "input_text"}]},
    {"id": "msg_1", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
]


@function_tool
def add(a: int, b: int) -> int:
    return a + b


def items(*given: dict[str, Any]) -> list[Any]:
    return list(given)


def calling(id: str, name: str = "add") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": "3"}


def adding(answer: str = "It is 3.") -> ScriptedModel:
    return ScriptedModel([[function_call("add", {"a": 1, "b": 2}, call_id="c1")], [assistant_message(answer)]])


async def test_it_is_a_session(store: Store) -> None:
    assert isinstance(store.openai_session("s"), Session)
    assert await store.openai_session("s").get_items() == []
    assert await store.openai_session("s").pop_item() is None
    await store.openai_session("s").clear_session()
    await store.openai_session("s").add_items([])
    assert await store.get_conversation("s") is None


async def test_items_come_back_exactly(store: Store) -> None:
    session = store.openai_session("s", user_id="ann", agent_id="helper")
    await session.add_items(items(*ODD))
    found = await session.get_items()
    assert found == ODD
    assert json.dumps(found) == json.dumps(ODD), "with their keys in the same order"
    cast("dict[str, Any]", found[0])["content"] = "changed"
    assert await session.get_items() == ODD
    conversation = await store.get_conversation("s")
    assert conversation is not None
    assert (conversation.user_id, conversation.agent_id, conversation.message_count) == ("ann", "helper", len(ODD))
    roles = [message.role for message in await store.get_messages("s")]
    assert roles == ["user", "user", "assistant", "assistant", "tool", "assistant", "assistant"]


async def test_limits_are_of_the_newest(store: Store) -> None:
    session = store.openai_session("s")
    await session.add_items(items(*ODD))
    assert await session.get_items(limit=2) == ODD[-2:]
    assert await session.get_items(limit=0) == []
    assert await session.get_items(limit=-1) == []
    session.session_settings = SessionSettings(limit=3)
    assert await session.get_items() == ODD[-3:]
    assert await session.get_items(limit=1) == ODD[-1:]


@pytest.mark.parametrize("size", range(1, 9))
async def test_a_window_never_tears_a_group(store: Store, size: int) -> None:
    session = store.openai_session("s", max_items=size)
    history = [
        *ODD[:5],
        *items(calling("c2"), calling("c3"), output("c3"), output("c2"), {"role": "user", "content": "?"}),
    ]
    await session.add_items(history)
    window = await session.get_items()
    assert len(window) <= size
    assert window[-1:] == history[-1:]
    called: set[Any] = set()
    for item in window:
        if item.get("type") == "function_call_output":
            assert item.get("call_id") in called
        called.add(item.get("call_id"))
    assert await session.get_items(limit=100) == history


def test_what_reasoning_led_to_stays_with_it() -> None:
    history = [{"type": "reasoning", "id": "rs_1"}, calling("c1"), output("c1"), {"role": "user", "content": "?"}]
    assert in_window(history, 4) == history
    assert in_window(history, 3) == history[-1:]


def test_calls_that_wait_stay() -> None:
    assert in_window([{"role": "user", "content": "?"}, calling("c1")], 1) == [calling("c1")]


async def test_large_items_are_read_page_by_page(store: Store) -> None:
    small = Store(store.backend, limits=type(store.limits)(page_bytes=300, page=2))
    session = small.openai_session("s")
    history = items(*({"role": "user", "content": f"{number} " + "x" * 200} for number in range(7)))
    await session.add_items(history)
    assert await session.get_items(limit=6) == history[1:]
    assert await session.get_items() == history


async def test_pop_and_clear(store: Store) -> None:
    session = store.openai_session("s")
    await session.add_items(items(*ODD))
    assert await session.pop_item() == ODD[-1]
    assert await session.get_items() == ODD[:-1]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    assert [len(await store.get_messages("s", branch=each.id)) for each in await store.list_branches("s")] == [6, 0]
    await session.add_items(items({"role": "user", "content": "Again"}))
    await session.clear_session()
    await session.clear_session()
    assert len(await store.list_branches("s")) == 3, "an empty session is not cleared again"


async def test_a_session_of_one_branch(store: Store) -> None:
    session = store.openai_session("s")
    await session.add_items(items({"role": "user", "content": "1"}, {"role": "user", "content": "2"}))
    newest = (await store.get_messages("s", last=1))[0]
    edited = await store.branch("s", before=newest.id)
    await session.add_items(items({"role": "user", "content": "two"}))
    assert [item.get("content") for item in await session.get_items()] == ["1", "two"]
    pinned = store.openai_session("s", branch="main")
    assert [item.get("content") for item in await pinned.get_items()] == ["1", "2"]
    assert await pinned.pop_item() == {"role": "user", "content": "2"}
    with pytest.raises(ValidationError, match="cannot leave it"):
        await store.openai_session("s", branch=edited.id).clear_session()


async def test_what_others_wrote_is_read(store: Store) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": "Rain"}
    await store.append(
        "s",
        [
            Message("user", "Hello"),
            Message("user", [image, {"type": "text", "text": "What is it?"}], format="anthropic"),
            Message("assistant", [{"type": "text", "text": "Let me see."}, use], format="anthropic"),
            Message("user", [answer], format="anthropic"),
            Message("user", " "),
            Message("user", [{"type": "input_text", "text": "Bye"}], format="openai.responses"),
            Message("assistant", [calling("c1"), calling("c2")], format="openai.responses"),
        ],
    )
    session = store.openai_session("s")
    said = [(item.get("role"), item.get("type")) for item in await session.get_items()]
    assert said == [
        ("user", None),
        ("user", None),
        ("assistant", None),
        (None, "function_call"),
        (None, "function_call_output"),
        ("user", None),
        (None, "function_call"),
        (None, "function_call"),
    ]
    assert await session.pop_item() == calling("c2"), "and its message goes whole"
    assert (await session.get_items(limit=1))[0].get("role") == "user"
    await session.pop_item()
    assert await session.pop_item() == output("t1") | {"output": "Rain"}, "a message without items goes unseen"


# Runner


async def test_a_run_with_tools(store: Store) -> None:
    session = store.openai_session("s")
    await Runner.run(Agent(name="a", model=adding(), tools=[add]), "1 + 2?", session=session, run_config=QUIET)
    kinds = [item.get("type") or item.get("role") for item in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]

    model = ScriptedModel([[assistant_message("Sure.")]])
    await Runner.run(Agent(name="a", model=model), "Sure?", session=store.openai_session("s"), run_config=QUIET)
    assert model.last_call is not None
    assert len(model.last_call.input) == 5
    assert [message.text for message in await store.get_messages("s", roles=["assistant"])][-1] == "Sure."


async def test_a_streamed_run(store: Store) -> None:
    session = store.openai_session("s")
    run = Runner.run_streamed(Agent(name="a", model=adding(), tools=[add]), "1 + 2?", session=session, run_config=QUIET)
    async for _ in run.stream_events():
        pass
    assert [message.role for message in await store.get_messages("s")] == ["user", "assistant", "tool", "assistant"]


async def test_a_window_in_a_run(store: Store) -> None:
    session = store.openai_session("s", max_items=2)
    await Runner.run(Agent(name="a", model=adding(), tools=[add]), "1 + 2?", session=session, run_config=QUIET)
    model = ScriptedModel([[assistant_message("Sure.")]])
    await Runner.run(Agent(name="a", model=model), "Sure?", session=session, run_config=QUIET)
    assert model.last_call is not None
    assert [item.get("type") or item.get("role") for item in cast("list[Any]", model.last_call.input)] == [
        "message",
        "user",
    ]


async def test_a_handoff(store: Store) -> None:
    expert = Agent(name="expert", model=ScriptedModel([[assistant_message("It is 3.")]]))
    first = Agent(
        name="first", model=ScriptedModel([[function_call("transfer_to_expert", {}, call_id="h1")]]), handoffs=[expert]
    )
    result = await Runner.run(first, "1 + 2?", session=store.openai_session("s"), run_config=QUIET)
    assert result.last_agent.name == "expert"
    assert [message.role for message in await store.get_messages("s")] == ["user", "assistant", "tool", "assistant"]


async def test_a_retried_model_call_stores_once(store: Store) -> None:
    model = ScriptedModel([ModelStep.raise_error(ConnectionError("lost")), [assistant_message("Here.")]])
    retry = ModelRetrySettings(max_retries=1, policy=lambda _: True)
    agent = Agent(name="a", model=model, model_settings=ModelSettings(retry=retry))
    await Runner.run(agent, "Hi", session=store.openai_session("s"), run_config=QUIET)
    assert [message.role for message in await store.get_messages("s")] == ["user", "assistant"]


async def test_a_failed_run_keeps_what_was_said(store: Store) -> None:
    model = ScriptedModel([ModelStep.raise_error(ConnectionError("lost"))])
    with pytest.raises(ConnectionError):
        await Runner.run(Agent(name="a", model=model), "Hi", session=store.openai_session("s"), run_config=QUIET)
    assert await store.openai_session("s").get_items() == [{"role": "user", "content": "Hi"}]


async def test_an_approval_and_a_resumed_run(store: Store) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    model = ScriptedModel([[function_call("pay", {"amount": 5}, call_id="p1")], [assistant_message("Done.")]])
    agent = Agent(name="a", model=model, tools=[pay])
    run = await Runner.run(agent, "Pay", session=store.openai_session("s"), run_config=QUIET)
    state = await RunState.from_json(agent, run.to_state().to_json())
    state.approve(state.get_interruptions()[0])
    await Runner.run(agent, state, session=store.openai_session("s"), run_config=QUIET)
    kinds = [item.get("type") or item.get("role") for item in await store.openai_session("s").get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]


async def test_usage_is_booked_where_it_arose(store: Store) -> None:
    used = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
    steps = [
        ModelStep(output=[function_call("add", {"a": 1, "b": 2}, call_id="c1")], usage=used),
        ModelStep(output=[assistant_message("3")], usage=used),
    ]
    session = store.openai_session("s", user_id="ann", agent_id="helper")
    for question in ("1 + 2?", "Again?"):
        agent = Agent(name="a", model=ScriptedModel(steps), tools=[add])
        await Runner.run(agent, question, session=session, run_config=QUIET)
    rows = await store.usage()
    assert [(row.user_id, row.agent_id, row.input_tokens, row.output_tokens) for row in rows] == [
        ("ann", "helper", 400, 40)
    ]
    assert [message.usage is not None for message in await store.get_messages("s", last=4)] == [
        False,
        False,
        True,
        True,
    ]


async def test_compaction_keeps_the_originals(store: Store) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/v1/responses/compact"
        said = json.loads(request.content)
        assert len(said["input"]) == 2
        compacted = {"id": "cmp_1", "type": "compaction", "encrypted_content": "…"}
        usage = {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        }
        body = {"id": "r1", "object": "response.compaction", "created_at": 1, "output": [compacted], "usage": usage}
        return httpx2.Response(200, json=body)

    web = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    client = AsyncOpenAI(api_key="none", base_url="http://localhost/v1", http_client=web)
    under = store.openai_session("s")
    session = OpenAIResponsesCompactionSession("s", under, client=client, compaction_mode="input")
    await session.add_items(items({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}))
    await session.run_compaction({"force": True})
    assert [item.get("type") for item in await under.get_items()] == ["compaction"]
    assert [message.text for message in await store.get_messages("s", branch="main")] == ["Hi", "Hello"]
    await client.close()


# Around it


async def test_writers_at_once_lose_nothing(store: Store) -> None:
    batches = [items(*({"role": "user", "content": f"{one}.{two}"} for two in range(3))) for one in range(20)]
    await asyncio.gather(*(store.openai_session("s").add_items(batch) for batch in batches))
    said = [item.get("content") for item in await store.openai_session("s").get_items()]
    assert len(said) == 60
    assert all(said[at : at + 3] == [f"{str(said[at])[:-2]}.{two}" for two in range(3)] for at in range(0, 60, 3))


async def test_a_cancelled_write_has_ended_when_the_caller_hears_of_it(store: Store) -> None:
    session = store.openai_session("s")
    task = asyncio.ensure_future(session.add_items(items({"role": "user", "content": "Hi"})))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await session.get_items()) == 1


async def test_sessions_can_be_listed_and_erased(store: Store) -> None:
    for name in ("s1", "s2"):
        await store.openai_session(name, user_id="ann").add_items(items({"role": "user", "content": "Hi"}))
    await store.openai_session("s3", user_id="ben").add_items(items({"role": "user", "content": "Hi"}))
    page = await store.list_conversations(user_id="ann")
    assert {conversation.id for conversation in page.items} == {"s1", "s2"}
    await store.erase_user("ann")
    assert await store.openai_session("s1").get_items() == []
    assert len(await store.openai_session("s3").get_items()) == 1


async def test_views_are_walls(store: Store) -> None:
    await store.user("ann").openai_session("s").add_items(items({"role": "user", "content": "Hi"}))
    assert await store.user("ben").openai_session("s").get_items() == []
    assert await store.tenant("other").openai_session("s").get_items() == []


@pytest.mark.parametrize("backend", [MemoryBackend, suspending])
def test_a_blocking_store_serves_it_too(backend: Callable[[], Backend]) -> None:
    with sync.Store.over(backend()) as store:
        session: OpenAISession = store.openai_session("s")
        model = ScriptedModel([[assistant_message("Hello")]])
        asyncio.run(Runner.run(Agent(name="a", model=model), "Hi", session=session, run_config=QUIET))
        assert [message.text for message in store.get_messages("s")] == ["Hi", "Hello"]


@pytest.mark.parametrize("items", ["hello", ["hello"], [{"role": "user", "content": "x"}, 5], {"role": "user"}])
async def test_what_is_no_list_of_items_is_refused(store: Store, items: Any) -> None:
    session = store.openai_session("s")
    with pytest.raises(ValidationError, match="items must be a list of dicts"):
        await session.add_items(items)
    assert await session.get_items() == []
