"""A process that dies in the middle of a write: `run` exits before its change number `step`.

It ends with 0 when the act was done before it came to that.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any

import hansard
from hansard.model import Message, Participant, Usage

PICTURE = base64.b64encode(bytes(range(256)) * 30).decode()
DEAD = 9

Act = Callable[[hansard.Store], Awaitable[Any]]


async def prepare(store: hansard.Store) -> None:
    """What the acts work on."""
    await store.append("old", [Message("user", "first", id="f"), Message("user", PICTURE, id="p")], user_id="ann")
    await store.records.put(["n"], "k", 1, conversation_id="old")
    await store.append("other", Message("user", "x", id="x"), user_id="ann")


async def append(store: hansard.Store) -> None:
    said = Message("user", [PICTURE], id="a", participant=Participant("user", "bob"), usage=Usage(7, model="m"))
    await store.append("old", [said, Message("assistant", "b", id="b", usage=Usage(5, model="m"))])


async def append_more(store: hansard.Store) -> None:
    await store.append("old", Message("assistant", "c", id="c", usage=Usage(11, model="m")))


async def make(store: hansard.Store) -> None:
    await store.append("new", [Message("user", [PICTURE], id="a", usage=Usage(3))], user_id="bob", agent_id="agent")


async def hand_over(store: hansard.Store) -> None:
    await store.update_conversation("old", user_id="bob", title="t")


async def remove(store: hansard.Store) -> None:
    await store.delete_message("old", "p")


async def delete(store: hansard.Store) -> None:
    await store.delete_conversation("old")


async def link(store: hansard.Store) -> None:
    await store.records.put(["n"], "l", 2, conversation_id="old")


ACTS: dict[str, Act] = {each.__name__: each for each in (append, make, hand_over, remove, delete, link)}


async def main(url: str, act: str, step: int) -> None:
    store = await hansard.connect(url)
    nodes: Any = store.backend.storage.nodes  # type: ignore[attr-defined]
    ask, numbers = nodes.ask, itertools.count(1)

    async def ask_or_die(key: str, command: Any, *, write: bool, changes: bool = True) -> Any:
        if write and changes and next(numbers) == step:
            os._exit(DEAD)
        return await ask(key, command, write=write, changes=changes)

    nodes.ask = ask_or_die
    await ACTS[act](store)
    await store.close()


def run(url: str, act: str, step: int) -> None:
    asyncio.run(main(url, act, step))
