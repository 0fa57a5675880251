"""Models through their providers' own SDKs, against a local server that speaks the same wire."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import anthropic
import openai
import pytest
from tests.chat import wire
from tests.chat.wire import serving

import hansard
from hansard import Chat, Unsupported, Usage, ValidationError
from hansard.chat import AnthropicModel, EchoModel, OpenAIModel, model_named


def weather(city: str, days: int = 1) -> str:
    """The weather in a city."""
    return f"Rain in {city} for {days} days."


def openai_script(path: str, body: dict[str, Any]) -> list[Any]:
    last = body["messages"][-1]
    if last["role"] == "tool":
        return [wire.chunk(content="It says: "), wire.chunk(content=last["content"]), wire.finish("stop")]
    if "weather" in last["content"]:
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
        pieces = [{"index": 0, "function": {"arguments": part}} for part in ('{"city":', '"Oslo"}')]
        return [
            wire.chunk(role="assistant", tool_calls=[call]),
            *(wire.chunk(tool_calls=[piece]) for piece in pieces),
            wire.finish("tool_calls"),
            wire.usage(20, 9),
        ]
    if "forbidden" in last["content"]:
        return [wire.chunk(content="I wi"), wire.finish("content_filter")]
    if "cut" in last["content"]:
        return [wire.chunk(content="Half a "), None]
    return [
        wire.chunk(role="assistant", content="Hell"),
        wire.chunk(content="o"),
        wire.finish("stop"),
        wire.usage(7, 2),
    ]


def test_openai() -> None:
    async def scenario() -> None:
        async with serving(openai_script) as server, hansard.connect("memory://") as store:
            model = OpenAIModel("m-1", base_url=f"{server.url}/v1", temperature=0)
            chat = Chat(store, model, conversation_id="c", system="Be short.", search=False)
            reply = await chat.send("Hi")
            assert (reply.text, reply.usage, reply.status) == ("Hello", Usage(7, 2, model="m-1"), "complete")
            path, body = server.requests[0]
            assert path == "/v1/chat/completions"
            assert (body["model"], body["temperature"], body["stream"]) == ("m-1", 0, True)
            assert [each["role"] for each in body["messages"]] == ["system", "user"]
            await chat.send("And?")
            assert [each["content"] for each in server.requests[1][1]["messages"][1:]] == ["Hi", "Hello", "And?"]
            await model.close()

    asyncio.run(scenario())


def test_openai_with_a_tool() -> None:
    async def scenario() -> None:
        async with serving(openai_script) as server, hansard.connect("memory://") as store:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k")
            chat = Chat(store, OpenAIModel("m-1", client=client), conversation_id="c", tools=[weather])
            pieces = [piece async for piece in chat.stream("How is the weather?")]
            assert pieces == ["It says: ", "Rain in Oslo for 1 days."]
            roles = [message.role for message in await store.get_messages("c")]
            assert roles == ["user", "assistant", "tool", "assistant"]
            tools = [each["function"]["name"] for each in server.requests[0][1]["tools"]]
            assert tools == ["weather", "conversation_search"]
            schema = server.requests[0][1]["tools"][0]["function"]["parameters"]
            assert schema["required"] == ["city"]
            assert schema["properties"]["days"] == {"type": "integer", "default": 1}
            asked, answered = server.requests[1][1]["messages"][-2:]
            assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
            assert (answered["tool_call_id"], answered["content"]) == ("call_1", "Rain in Oslo for 1 days.")
            await client.close()

    asyncio.run(scenario())


def test_openai_that_is_blocked_or_cut_off() -> None:
    async def scenario() -> None:
        async with serving(openai_script) as server, hansard.connect("memory://") as store:
            client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="k", max_retries=0)
            chat = Chat(store, OpenAIModel("m-1", client=client), conversation_id="c")
            reply = await chat.send("something forbidden")
            assert (reply.text, reply.status) == ("I wi", "blocked")
            cut = await chat.send("cut it")
            assert (cut.text, cut.status) == ("Half a ", "interrupted")
            await client.close()

    asyncio.run(scenario())


def anthropic_script(path: str, body: dict[str, Any]) -> list[Any]:
    last = body["messages"][-1]["content"]
    if isinstance(last, list) and last[-1]["type"] == "tool_result":
        return list(wire.message([{"type": "text", "text": "It rains."}]))
    if "weather" in json.dumps(last):
        thinking = {"type": "thinking", "thinking": "I look it up.", "signature": "c2ln"}
        call = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
        return list(wire.message([thinking, call], stop="tool_use"))
    if "cut" in json.dumps(last):
        return [*wire.message([{"type": "text", "text": "Half a word"}])[:3], None]
    if "forbidden" in json.dumps(last):
        return list(wire.message([{"type": "text", "text": "No."}], stop="refusal"))
    return list(wire.message([{"type": "text", "text": "Hello"}]))


def test_anthropic() -> None:
    async def scenario() -> None:
        async with serving(anthropic_script) as server, hansard.connect("memory://") as store:
            client = anthropic.AsyncAnthropic(base_url=server.url, api_key="k")
            model = AnthropicModel("m-1", client=client, max_tokens=100)
            chat = Chat(store, model, conversation_id="c", system="Be short.", tools=[weather])
            assert [piece async for piece in chat.stream("Hi")] == ["He", "llo"]
            assert chat.last is not None
            assert (chat.last.content, chat.last.usage) == ("Hello", Usage(11, 5, model="m-1"))
            path, body = server.requests[0]
            assert path == "/v1/messages"
            assert (body["max_tokens"], body["system"]) == (100, "Be short.")

            reply = await chat.send("And the weather?")
            assert reply.text == "It rains."
            stored = (await store.get_messages("c"))[3]
            assert [block["type"] for block in stored.content] == ["thinking", "tool_use"]
            sent = server.requests[-1][1]["messages"]
            assert sent[-2]["content"][0] == {"type": "thinking", "thinking": "I look it up.", "signature": "c2ln"}
            assert sent[-1]["content"][0]["tool_use_id"] == "toolu_1"

            refused = await chat.send("something forbidden")
            assert (refused.text, refused.status) == ("No.", "blocked")
            cut = await chat.send("cut it")
            assert (cut.text, cut.status) == ("Half ", "interrupted")
            await client.close()

    asyncio.run(scenario())


def test_both_continue_one_conversation() -> None:
    async def scenario() -> None:
        async with (
            serving(openai_script) as one,
            serving(anthropic_script) as other,
            hansard.connect("memory://") as store,
        ):
            first = openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="k")
            second = anthropic.AsyncAnthropic(base_url=other.url, api_key="k")
            chat = Chat(store, OpenAIModel("m-1", client=first), conversation_id="c", tools=[weather])
            await chat.send("The weather, please")
            chat.model = AnthropicModel("m-1", client=second)
            await chat.send("Thanks")
            sent = other.requests[0][1]["messages"]
            assert [each["role"] for each in sent] == ["user", "assistant", "user", "assistant", "user"]
            assert sent[1]["content"][0]["type"] == "tool_use"
            await first.close()
            await second.close()

    asyncio.run(scenario())


def test_models_by_name() -> None:
    assert model_named("echo").name == "echo"
    assert isinstance(model_named("echo"), EchoModel)
    model = model_named("openai:m-2", base_url="http://127.0.0.1:1/v1")
    assert (model.name, model.format) == ("m-2", "openai.chat")
    assert model_named("anthropic:m-3", api_key="k").format == "anthropic"
    for wrong in ("", "openai", "openai:", "gpt", "anthropic:"):
        with pytest.raises(ValidationError, match="unknown model"):
            model_named(wrong)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_the_extra_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(Unsupported, match=rf"pip install 'hansard\[{kind}\]'"):
        model_named(f"{kind}:m")
