"""Two messages of a conversation, stored in a file and read back.

It prints:

    stored again: 0
    1 user Where is my order?
    2 assistant It left this morning.
    ['order-17']
"""

from __future__ import annotations

import asyncio

import hansard


async def main() -> None:
    async with hansard.connect("sqlite:///quickstart.db") as store:
        await store.append(
            "order-17",
            [
                {"role": "user", "content": "Where is my order?", "id": "q1"},
                {"role": "assistant", "content": "It left this morning.", "id": "a1"},
            ],
            user_id="ann",
        )
        # The same ids again: a retry stores nothing twice.
        again = await store.append("order-17", {"role": "user", "content": "Where is my order?", "id": "q1"})
        print("stored again:", again.stored)

    # Another process would do the same.
    async with hansard.connect("sqlite:///quickstart.db") as store:
        for message in await store.get_messages("order-17", last=50):
            print(message.seq, message.role, message.text)
        page = await store.list_conversations(user_id="ann")
        print([conversation.id for conversation in page.items])


asyncio.run(main())
