"""A live tail that sees what another process writes, and an answer that grows while it is streamed.

It prints:

    user complete Tell me a story
    assistant in_progress Once
    assistant complete Once upon a time.
"""

from __future__ import annotations

import asyncio
import sys

import hansard

URL = "sqlite:///watch.db"


async def write() -> None:
    """The other process: an agent that streams its answer."""
    async with hansard.connect(URL) as store:
        await store.append_message("c1", "user", "Tell me a story", id="q1")
        answer = await store.append_message("c1", "assistant", "Once", status="in_progress")
        await asyncio.sleep(0.3)
        await store.update_message("c1", answer, content="Once upon a time.", status="complete")


async def main() -> None:
    async with hansard.connect(URL) as store:
        await store.create_conversation("c1")
        writer = await asyncio.create_subprocess_exec(sys.executable, __file__, "write")
        async for message in store.watch("c1"):
            print(message.role, message.status, message.text)
            if message.role == "assistant" and message.status == "complete":
                break
        await writer.wait()


asyncio.run(write() if "write" in sys.argv else main())
