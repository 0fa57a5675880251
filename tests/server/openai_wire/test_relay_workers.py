"""Live sessions behind several workers: each is one worker's, and all are recorded in one store."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import websockets
from tests.server.openai_wire.test_relay import SAID, until
from tests.server.test_server import serving as serving_process
from tests.servers.realtime import Endpoint, endpoint
from tests.wait import PATIENCE, coming

SESSIONS = 6


class Calls:
    """Sessions through the SDK, each in a conversation of its own."""

    def __init__(self, client: openai.AsyncOpenAI, address: str) -> None:
        self._client = client
        self._http = httpx.Client(base_url=address + "/api/v1", timeout=PATIENCE)

    async def open(self, stack: AsyncExitStack, name: str) -> Any:
        headers = {"Hansard-Conversation": name}
        connecting = self._client.realtime.connect(
            model="m-voice", websocket_connection_options={}, extra_headers=headers
        )
        connection = await stack.enter_async_context(connecting)
        await until(connection, "session.created")
        return connection

    async def ask(self, connection: Any) -> None:
        await connection.conversation.item.create(item=SAID)
        await connection.response.create()
        done = await until(connection, "response.done")
        assert done.response.status == "completed"

    def said(self, name: str) -> list[tuple[str, str]]:
        found = self._http.get(f"/conversations/{name}/messages?last=50").json()["items"]
        return [(each["role"], each["status"]) for each in found]

    def close(self) -> None:
        self._http.close()


ASKED = [("user", "complete"), ("assistant", "complete")]


def test_a_worker_that_dies_takes_only_its_own_sessions(tmp_path: Path) -> None:
    with (
        endpoint() as model,
        serving_process(tmp_path, "sqlite:///made.db", "--workers", "2", "--upstream", model.address) as (
            address,
            process,
        ),
    ):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.exists():
            pytest.skip("this system does not tell a process's children")
        asyncio.run(asyncio.wait_for(_play(address, model, process, children), 240))


async def _play(address: str, model: Endpoint, process: subprocess.Popen[str], children: Path) -> None:
    names = [f"call-{number}" for number in range(SESSIONS)]
    async with (
        openai.AsyncOpenAI(base_url=address + "/v1", api_key="sk-mine", timeout=PATIENCE, max_retries=0) as client,
        AsyncExitStack() as stack,
    ):
        calls = Calls(client, address)
        stack.callback(calls.close)
        sessions = dict(zip(names, await asyncio.gather(*(calls.open(stack, name) for name in names)), strict=True))
        await asyncio.gather(*(calls.ask(each) for each in sessions.values()))
        assert {name: calls.said(name) for name in names} == dict.fromkeys(names, ASKED), "recorded before it is heard"

        victim = children.read_text().split()[0]
        os.kill(int(victim), signal.SIGKILL)
        # It may have had no session that would notice. Nobody must still take it for one that answers.
        await coming(lambda: victim not in children.read_text().split())
        results = await asyncio.gather(*(calls.ask(each) for each in sessions.values()), return_exceptions=True)
        ends = dict(zip(names, results, strict=True))
        assert all(each is None or isinstance(each, websockets.ConnectionClosed) for each in ends.values()), ends
        for name, end in ends.items():
            said = calls.said(name)
            assert said == ASKED * 2 if end is None else said[:2] == ASKED, "what was recorded stays"

        lost = [name for name, end in ends.items() if end is not None]
        for name in lost[:2] or names[:1]:
            before = calls.said(name)
            again = await calls.open(stack, name)
            await calls.ask(again)
            replayed = [text for text in model.talk.told if "conversation.item.create" in text]
            assert len(replayed) > 1, "another worker gives the endpoint what the first one recorded"
            assert calls.said(name)[len(before) :] == ASKED

        kept = next((each for name, each in sessions.items() if ends[name] is None), None)
        process.send_signal(signal.SIGTERM)
        if kept is not None:
            with pytest.raises(websockets.ConnectionClosed) as caught:
                await until(kept, "never")
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code in (1001, 1012), "the server ends"
    assert await asyncio.to_thread(process.wait, 60) == 0
