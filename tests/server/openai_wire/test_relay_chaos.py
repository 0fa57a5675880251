"""Live sessions in which anything happens in any order, and either side may go at any moment.

What is stored is what the endpoint has said: all of it where the line ended in order, else all of it up to some event.
`HANSARD_EXAMPLES=200 pytest tests/server/openai_wire/test_relay_chaos.py` looks longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
import websockets
from tests.server.openai_wire.test_relay import Kit, kit
from tests.servers.realtime import heard

EXAMPLES = int(os.environ.get("HANSARD_EXAMPLES", "0"))
ENDS = ("client closes", "client is lost", "endpoint closes", "endpoint fails", "endpoint is lost")


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    folder = tmp_path_factory.mktemp("relay")
    with kit("memory://" if request.param == "memory" else f"sqlite:///{folder}/chats.db") as made:
        yield made


class Chaos:
    """A client that does not know what it wants."""

    def __init__(self, kit: Kit, seed: int, socket: Any) -> None:
        self.kit = kit
        self.chance = random.Random(seed)
        self.socket = socket
        self.number = 0

    def ids(self) -> list[str]:
        """Of items that the endpoint has spoken of, there or not."""
        said = [each["item"]["id"] for each in list(self.kit.model.talk.said) if "item" in each]
        return said or ["item_never"]

    def event(self) -> dict[str, Any]:
        self.number += 1
        text = {"type": "input_text", "text": f"word {self.number}"}
        item: dict[str, Any] = {"type": "message", "role": self.chance.choice(["user", "system"]), "content": [text]}
        if self.chance.random() < 0.3:
            item["id"] = f"mine_{self.number}"
        kind = self.chance.choice(
            ("create", "create", "insert", "commit", "respond", "respond", "cancel", "truncate", "delete", "retrieve")
        )
        one = self.chance.choice(self.ids())
        events: dict[str, dict[str, Any]] = {
            "create": {"type": "conversation.item.create", "item": item},
            "insert": {
                "type": "conversation.item.create",
                "item": item,
                "previous_item_id": self.chance.choice(["root", one]),
            },
            "commit": {"type": "input_audio_buffer.commit"},
            "respond": {
                "type": "response.create",
                "response": {"conversation": self.chance.choice(["auto", "auto", "none"])},
            },
            "cancel": {"type": "response.cancel"},
            "truncate": {
                "type": "conversation.item.truncate",
                "item_id": one,
                "content_index": 0,
                "audio_end_ms": self.chance.randrange(500),
            },
            "delete": {"type": "conversation.item.delete", "item_id": one},
            "retrieve": {"type": "conversation.item.retrieve", "item_id": one},
        }
        return events[kind]

    async def talk(self) -> None:
        for _ in range(self.chance.randrange(3, 25)):
            await self.socket.send(json.dumps(self.event()))
            await asyncio.sleep(self.chance.choice([0, 0, 0.01, 0.05]))

    async def end(self, how: str) -> None:
        talk = self.kit.model.talk
        if how == "client closes":
            await self.socket.close()
        elif how == "client is lost":
            self.socket.transport.abort()
        else:
            code = {"endpoint closes": "1000", "endpoint fails": "1011", "endpoint is lost": "abort"}[how]
            await asyncio.to_thread(self.kit.model.do, talk.end(code))


@pytest.mark.parametrize("seed", range(EXAMPLES or 8))
def test_what_is_stored_is_what_was_said(made: Kit, seed: int) -> None:
    chance = random.Random(seed)
    how = ENDS[seed % len(ENDS)]
    made.model.prefix = f"{seed}_"
    made.model.pause = chance.choice([0.0, 0.01, 0.05])
    made.model.says = " ".join(f"w{number}" for number in range(chance.randrange(1, 30)))

    async def run() -> list[tuple[str, str, str, str]]:
        id = f"call-{seed}"
        await made.store("create_conversation", id)
        async with made.socket(f"conversation={id}") as socket:
            chaos = Chaos(made, seed, socket)
            await socket.recv()
            reading = asyncio.create_task(_read(socket))
            try:
                await chaos.talk()
                await chaos.end(how)
            except websockets.ConnectionClosed:
                assert how.startswith("endpoint")
            await asyncio.wait_for(reading, 60)
        assert await made.closed()
        return await made.said(id)

    stored = asyncio.run(run())
    said = made.model.talk.said
    if how != "endpoint is lost":
        assert stored == heard(said)
    else:
        assert any(stored == heard(said[:count]) for count in range(len(said) + 1))


async def _read(socket: Any) -> None:
    try:
        async for _ in socket:
            pass
    except websockets.ConnectionClosed:
        return
