"""Another answer, and an edited question, without losing the first ones.

It prints:

    main: Where to? / Rome.
    again: Where to? / Lisbon.
    edited: Where to, by train?
    2 messages on the active branch
"""

from __future__ import annotations

import asyncio

import hansard


async def show(store: hansard.Store, branch: str) -> None:
    messages = await store.get_messages("trip", branch=branch)
    print(f"{branch}: " + " / ".join(message.text for message in messages))


async def main() -> None:
    async with hansard.connect("memory://") as store:
        await store.append_message("trip", "user", "Where to?", id="q1")
        await store.append_message("trip", "assistant", "Rome.", id="a1")

        # Another answer to the same question.
        await store.branch("trip", at="q1", branch_id="again")
        await store.append_message("trip", "assistant", "Lisbon.")

        # Another question: the new branch leaves before the message that is edited.
        await store.branch("trip", before="q1", source="main", branch_id="edited")
        await store.append_message("trip", "user", "Where to, by train?")

        for branch in await store.list_branches("trip"):
            await show(store, branch.id)
        await store.switch_branch("trip", "main")
        print(len(await store.get_messages("trip")), "messages on the active branch")


asyncio.run(main())
