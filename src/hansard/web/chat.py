"""Who answers when somebody writes on the page: the model that the server was given, or one that repeats what it hears.

A model is anything with a `name` and an async iterator of pieces of text. What it says is stored as it comes, as a
message in progress, so that every reader sees it grow and nothing of it is lost when it breaks off.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from hansard.errors import HansardError
from hansard.model import Message, Participant
from hansard.store import Store

_EVERY = 200
"""Characters after which what was said so far is stored."""


class Model(Protocol):
    @property
    def name(self) -> str:
        """What the page calls it."""

    def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        """The answer in pieces. `messages` is the prompt as OpenAI's Chat Completions take it, `text` the newest."""


class Echo:
    """Repeats what it hears: a page without a model can be tried all the same."""

    name = "echo"

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield "You said:\n\n"
        for line in text.splitlines() or [""]:
            yield f"> {line}\n"


async def reply(store: Store, model: Model, conversation_id: str, text: str, agent_id: str | None) -> Message:
    """Asks the model, and stores what it says while it says it."""
    prompt = await store.assemble_prompt(conversation_id, agent_id=agent_id)
    who = Participant("agent", agent_id or model.name)
    id = await store.append_message(conversation_id, "assistant", "", participant=who, status="in_progress")
    said, stored = "", 0
    try:
        async for piece in model.answer(prompt.messages, text):
            said += piece
            if len(said) - stored >= _EVERY:
                await store.update_message(conversation_id, id, content=said)
                stored = len(said)
    except BaseException:
        # What was said stays, and says that there was to be more.
        with contextlib.suppress(HansardError):
            await store.update_message(conversation_id, id, content=said, status="interrupted")
        raise
    return await store.update_message(conversation_id, id, content=said, status="complete")
