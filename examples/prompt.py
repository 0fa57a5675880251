"""The next prompt of a long conversation: a summary of the old part, what fits of the rest, and why.

It prints:

    system: [Summary of what was said before the messages below]: Day 1: I walked 3 km.
    user: Ann: Day 41: I walked 43 km.
    user: Ann: How far did I walk on day 1?
    42 messages, 4 in the prompt, 58 of 60 tokens
"""

from __future__ import annotations

import asyncio

import hansard
from hansard import Message, Participant
from hansard.assembly import SummaryRequest

ANN = Participant("user", "u1", display_name="Ann")


class FirstLine:
    """Stands in for `hansard.assembly.ChatSummarizer(client, model)`, which asks a model."""

    model = None
    prompt_id = None

    async def summarize(self, request: SummaryRequest) -> str:
        return request.previous or request.messages[0].text


async def main() -> None:
    async with hansard.connect("memory://") as store:
        for day in range(1, 42):
            await store.append("diary", Message("user", f"Day {day}: I walked {day + 2} km.", participant=ANN))
        await store.append("diary", Message("user", "How far did I walk on day 1?", participant=ANN))

        prompt = await store.assemble_prompt("diary", token_budget=60, summarizer=FirstLine())
        for message in (prompt.messages[0], *prompt.messages[-2:]):
            print(f"{message['role']}: {message['content']}")
        stored = len(await store.get_messages("diary", last=100))  # nothing was deleted
        print(f"{stored} messages, {len(prompt.messages)} in the prompt, {prompt.tokens} of {prompt.budget} tokens")


asyncio.run(main())
