"""Many tasks at once, doing everything: afterwards every count, order and branch must still be right.

This is what finds a backend that is right alone and wrong in a crowd, such as a group commit that mixes its jobs up.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import hansard
from hansard import HansardError, Message, Store

TASKS, STEPS = 24, 40


async def append(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    ids = [f"{name}-{index}" if dice.random() < 0.7 else "" for index in range(dice.randrange(1, 4))]
    appended = await store.append(conversation, [Message("user", name, id=id) for id in ids])
    places = [message.seq for message in appended.messages]
    assert places == list(range(places[0], places[0] + len(places)))
    if dice.random() < 0.3:
        await store.append(conversation, [Message("user", "again", id=id) for id in ids if id])


async def branch(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    await store.branch(conversation)


async def pop(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    await store.pop_message(conversation)


async def delete(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    for message in (await store.get_messages(conversation, last=3))[:1]:
        await store.delete_message(conversation, message.id)


async def update(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    for message in await store.get_messages(conversation, last=1):
        await store.update_message(conversation, message.id, content=f"changed by {name}")


async def retitle(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    await store.update_conversation(conversation, title=name)


async def replace(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    kept = [Message(each.role, each.content, id=each.id) for each in await store.get_messages(conversation, limit=3)]
    await store.replace_messages(conversation, [*kept, Message("user", name)])


async def switch(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    for each in (await store.list_branches(conversation))[-1:]:
        await store.switch_branch(conversation, each.id)


async def delete_branch(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    branches = await store.list_branches(conversation)
    if branches:
        await store.delete_branch(conversation, dice.choice(branches).id)


async def delete_conversation(store: Store, conversation: str, dice: random.Random, name: str) -> None:
    if dice.random() < 0.1:
        await store.delete_conversation(conversation)


STEPS_TO_TAKE = [
    *([append] * 8),
    branch,
    pop,
    delete,
    update,
    retitle,
    replace,
    switch,
    delete_branch,
    delete_conversation,
]


async def wander(store: Store, task: int, seed: int) -> set[str]:
    """One task's random walk; gives the kinds of refusals that it met."""
    dice = random.Random(seed * 1000 + task)
    refused = set()
    for step in range(STEPS):
        action = dice.choice(STEPS_TO_TAKE)
        try:
            await action(store, f"c{dice.randrange(4)}", dice, f"{task}-{step}")
        except HansardError as error:
            refused.add(error.code)
    return refused


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/a.db", "file://{}/files?timeout=60"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_crowd_leaves_everything_right(tmp_path: Path, url: str, seed: int) -> None:
    async def run() -> None:
        async with hansard.connect(url.format(tmp_path)) as store:
            refused = await asyncio.gather(*(wander(store, task, seed) for task in range(TASKS)))
            assert set().union(*refused) <= {"conflict", "not_found", "message_not_found", "conversation_not_found"}
            assert await store.check() == []
            for number in range(4):
                messages = [message async for message in store.iter_messages(f"c{number}")]
                places = [message.seq for message in messages]
                assert places == sorted(set(places))

    asyncio.run(run())
