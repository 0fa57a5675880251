"""A chat that streams, uses a tool, is stopped in the middle of an answer, and continues later.

It prints:

    You said: Hello
    Order 17 left this morning.
    You said: Tell me
    ['complete', 'complete', 'complete', 'interrupted']
    in another session: You said: And now?
"""

from __future__ import annotations

import asyncio

import hansard
from hansard.chat import EchoModel

URL = "sqlite:///chat.db"


def order_status(number: int) -> str:
    """The state of an order."""
    return f"Order {number} left this morning."


async def main() -> None:
    async with hansard.connect(URL) as store:
        # `OpenAIModel("gpt-5")` or `AnthropicModel("claude-sonnet-5")` instead, and nothing else changes.
        chat = hansard.Chat(store, EchoModel(), user_id="ann", tools=[order_status])
        for text in ("Hello", 'call order_status {"number": 17}'):
            async for piece in chat.stream(text):
                print(piece, end="", flush=True)
            print()

        # Ann stops the answer. The text so far is stored as interrupted.
        answer = chat.stream("Tell me a very long story")
        async for piece in answer:
            print(piece, end="")
            if piece.endswith("me"):
                await answer.aclose()
        print()
        print([message.status for message in await chat.history() if message.role == "assistant"])

    async with hansard.connect(URL) as store:
        chat = hansard.Chat(store, EchoModel(), user_id="ann")
        await chat.resume()
        print("in another session:", (await chat.send("And now?")).text)


asyncio.run(main())
