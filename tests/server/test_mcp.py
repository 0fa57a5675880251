"""The tools for models, called by the official client: over stdio and over HTTP, fixed to a view."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from tests.server.kit import serving
from tests.server.test_auth import bearer

from hansard import sync
from hansard.model import Message, Participant
from hansard.server.key_file import KeyFile
from hansard.server.mcp import server
from hansard.server.settings import Settings


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/chats.db"
    with sync.connect(url) as store:
        acme = store.tenant("acme")
        ada = Participant("user", "ada", "Ada")
        acme.append("hers", [Message("user", f"said {n}", participant=ada) for n in range(5)], user_id="ada", title="T")
        acme.append("others", Message("user", "SECRET"), user_id="bob")
        store.append("elsewhere", Message("user", "SECRET"))
    return url


def play(server: Any, scene: Callable[[Client], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Client(server) as client:
            await scene(client)

    asyncio.run(run())


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer
    return answer.structured_content


def over_stdio(url: str) -> StdioServerParameters:
    arguments = ["-m", "hansard.cli", "mcp", url, "--tenant", "acme", "--user", "ada"]
    return StdioServerParameters(command=sys.executable, args=arguments)


async def the_scene(client: Client) -> None:
    listed = await client.list_tools()
    assert {tool.name for tool in listed.tools} == {
        "list_conversations",
        "read_conversation",
        "search_conversations",
    }
    for tool in listed.tools:
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.input_schema["additionalProperties"] is False
        limit = tool.input_schema["properties"]["limit"]
        assert (limit["minimum"], limit["maximum"]) == (1, 100)
    for unknown in ({"cursor": "x"}, {"tenant": "other"}):
        refused = await client.call_tool("list_conversations", unknown)
        assert refused.is_error
        assert next(iter(unknown)) in str(refused.content)
    found = await ask(client, "list_conversations")
    assert [(each["id"], each["title"]) for each in found["conversations"]] == [("hers", "T")]
    page = await ask(client, "read_conversation", conversation_id="hers", limit=2)
    assert [message["text"] for message in page["messages"]] == ["said 3", "said 4"]
    assert page["messages"][0]["by"] == "Ada"
    back = await ask(client, "read_conversation", conversation_id="hers", limit=9, before=page["first_cursor"])
    assert ([message["text"] for message in back["messages"]], back["has_more"]) == (
        ["said 0", "said 1", "said 2"],
        False,
    )
    for id in ("others", "elsewhere", "never"):
        missing = await client.call_tool("read_conversation", {"conversation_id": id})
        assert missing.is_error
        assert f"there is no conversation '{id}'" in str(missing.content)
    hits = await ask(client, "search_conversations", query="said 3")
    best = hits["hits"][0]
    assert (best["conversation_id"], best["text"]) == ("hers", "**said** **3**")
    pieces = await ask(client, "search_conversations", query="aid", match="part", around=1, limit=1)
    assert len(pieces["hits"][0]["passages"][0]) > 1
    grouped = await ask(client, "search_conversations", query="said", group_by="conversation")
    assert all(hit["passages"] for hit in grouped["hits"])
    assert (await ask(client, "search_conversations", query="SECRET"))["hits"] == []
    assert (await ask(client, "search_conversations", query="SECRET", conversation_id="others"))["hits"] == []
    wrong = await client.call_tool("read_conversation", {"conversation_id": "hers", "limit": 1000})
    assert wrong.is_error
    assert "SECRET" not in str(wrong)


def test_tools_work_over_stdio(url: str) -> None:
    play(over_stdio(url), the_scene)


def test_tools_work_over_http(url: str) -> None:
    with serving(url) as api:
        # A server that needs no key serves the operator, who sees the default tenant.
        async def scene(client: Client) -> None:
            found = await ask(client, "list_conversations")
            assert [each["id"] for each in found["conversations"]] == ["elsewhere"]
            assert (await client.call_tool("read_conversation", {"conversation_id": "hers"})).is_error

        play(f"{api.address}/mcp", scene)


CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
READ = CALL | {"params": {"name": "read_conversation", "arguments": {"conversation_id": "hers"}}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


def test_the_key_limits_what_tools_read(url: str, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")

    def asked(**bound: Any) -> httpx.Response:
        token = keys.create("x", bound.pop("scopes", ["read"]), **bound)[1]
        return api.post(api.address + "/mcp", json=READ, headers=bearer(token) | ACCEPT)

    with serving(url, Settings(keys=keys.path)) as api:
        assert "said 4" in asked(tenant="acme").text
        assert "said 4" in asked(tenant="acme", user="ada").text
        for bound in ({"tenant": "acme", "user": "bob"}, {"tenant": "evil"}, {"tenant": "evil", "user": "ada"}):
            answer = asked(**bound)
            assert answer.status_code == 200
            assert "said" not in answer.text
        assert asked(tenant="acme", scopes=["write"]).status_code == 403
        assert api.post(api.address + "/mcp", json=READ, headers=ACCEPT).status_code == 401
        assert api.post(api.address + "/mcp", json=READ, headers=ACCEPT | bearer("hsk_x_y")).status_code == 401


def test_tool_calls_are_audited_and_rate_limited(url: str, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    key, token = keys.create("x", ["read"], tenant="acme")
    path = tmp_path / "audit.jsonl"
    with serving(url, Settings(keys=keys.path, audit_log=path, max_body_bytes=1000)) as api:
        for body in (READ, CALL | {"params": {"name": "search_conversations", "arguments": {"query": "said"}}}):
            assert api.post(api.address + "/mcp", json=body, headers=bearer(token) | ACCEPT).status_code == 200
        large = READ | {"padding": "x" * 1000}
        assert api.post(api.address + "/mcp", json=large, headers=bearer(token) | ACCEPT).status_code == 413
        assert api.get(api.address + "/mcp", headers=bearer(token) | ACCEPT).status_code == 405
        assert api.post(api.address + "/mcp", json=READ, headers=ACCEPT).status_code == 401
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["status"] for each in entries] == [200, 200, 413, 405, 401]
    assert {each["action"] for each in entries} == {"use_tools"}
    assert (entries[0]["caller"], entries[0]["tenant"]) == (key.id, "acme")
    assert entries[0]["on"] == {"tool": "read_conversation", "conversation_id": "hers"}
    assert entries[1]["on"]["tool"] == "search_conversations"


def test_tools_are_built_once() -> None:
    assert server() is server()


def test_concurrent_callers_read_only_their_own_view(url: str, tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.json")
    tokens = {user: keys.create(user, ["read"], tenant="acme", user=user)[1] for user in ("ada", "bob")}
    body = CALL | {"params": {"name": "list_conversations", "arguments": {}}}

    async def run(address: str) -> list[tuple[str, str]]:
        async with httpx.AsyncClient(timeout=60) as client:

            async def asked(user: str) -> tuple[str, str]:
                answer = await client.post(f"{address}/mcp", json=body, headers=bearer(tokens[user]) | ACCEPT)
                found = answer.json()["result"]["structuredContent"]["conversations"]
                return user, ",".join(each["id"] for each in found)

            return await asyncio.gather(*(asked(user) for user in ("ada", "bob") * 20))

    with serving(url, Settings(keys=keys.path)) as api:
        assert set(asyncio.run(run(api.address))) == {("ada", "hers"), ("bob", "others")}
