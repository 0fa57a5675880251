"""Two agents in one channel: one line records each, it reads the other's messages, and answers when it is mentioned.

It prints:

    sales heard 1, answered: A lamp costs 25.
    support heard 3, answered: Ann, the lamp is in stock: Sales said 'A lamp costs 25.'
    4 messages in the channel, by ann, sales, ann, support
"""

from __future__ import annotations

import asyncio

import hansard
from hansard import Participant
from hansard.capture import Capture, Inbound

ANN = Participant("user", "ann", display_name="Ann")


def read(event: dict[str, str]) -> Inbound:
    """A message of the channel, as its webhook brings it."""
    mentions = [word[1:] for word in event["text"].split() if word.startswith("@")]
    return Inbound(
        conversation_id=event["channel"],
        content=event["text"],
        id=event["id"],
        participant=ANN,
        mentions=mentions,
        scope="channel",
    )


async def main() -> None:
    async with hansard.connect("sqlite:///channel.db") as store:

        async def heard_by(agent_id: str) -> list[str]:
            prompt = await store.assemble_prompt("C042", agent_id=agent_id, addressed_only=False)
            return [message["content"] for message in prompt.messages]

        # One line makes an agent a recorded one.
        @Capture(store, agent_id="sales", agent_name="Sales", inbound=read, spool="spool")
        async def sales(event: dict[str, str]) -> str:
            print(f"sales heard {len(await heard_by('sales'))},", end=" ")
            return "A lamp costs 25."

        @Capture(store, agent_id="support", agent_name="Support", inbound=read, spool="spool")
        async def support(event: dict[str, str]) -> str:
            heard = await heard_by("support")
            print(f"support heard {len(heard)},", end=" ")
            said = heard[1].removeprefix("Sales (agent): ")
            return f"Ann, the lamp is in stock: Sales said {said!r}"

        events = [
            (sales, {"channel": "C042", "id": "evt-1", "text": "@sales how much is a lamp?"}),
            (support, {"channel": "C042", "id": "evt-2", "text": "@support do you have one?"}),
        ]
        for agent, event in events:
            print("answered:", await agent(event))

        # The channel delivers the first message again: it is recorded once, and so is its answer.
        await store.append_message("C042", "user", "@sales how much is a lamp?", id="evt-1")
        messages = await store.get_messages("C042", last=50)
        names = ", ".join(message.participant.id for message in messages if message.participant)
        print(f"{len(messages)} messages in the channel, by {names}")


asyncio.run(main())
