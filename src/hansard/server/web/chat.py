"""Who answers when somebody writes on the page: the model that the server was given, or one that repeats what it hears.

A model is anything with a `name` and an async iterator of pieces of text; it may give its `Usage` too. What it says is
stored as it comes, as a message in progress, so that every reader sees it grow and nothing of it is lost when it breaks
off. Why it broke off stands in the message's metadata, as `error`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from hansard.errors import HansardError
from hansard.model import Message, Participant, Usage
from hansard.store import Store

_EVERY = 200
"""Characters after which what was said so far is stored."""
_STOPPED = "The answer took too long, or the server was stopped."


class PageModel(Protocol):
    @property
    def name(self) -> str:
        """What the page calls it."""

    def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str | Usage]:
        """The answer in fragments. `messages` is the prompt as OpenAI's Chat Completions take it, `text` the newest."""


class Echo:
    """Repeats what it hears: a page without a model can be tried all the same."""

    name = "echo"

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield "You said:\n\n"
        for line in text.splitlines() or [""]:
            yield f"> {line}\n"


async def reply(store: Store, model: PageModel, conversation_id: str, text: str, agent_id: str | None) -> Message:
    """Asks the model, and stores what it says while it says it."""
    prompt = await store.assemble_prompt(conversation_id, agent_id=agent_id)
    who = Participant("agent", agent_id or model.name)
    id = await store.append_message(conversation_id, "assistant", "", participant=who, status="in_progress")
    said, stored = "", 0
    usage: Usage | UnsetType = UNSET
    try:
        async for piece in model.answer(prompt.messages, text):
            if isinstance(piece, Usage):
                usage = piece
                continue
            said += piece
            if len(said) - stored >= _EVERY:
                await store.update_message(conversation_id, id, content=said)
                stored = len(said)
    except HansardError as error:
        why = {"error": str(error)}
        return await store.update_message(conversation_id, id, content=said, status="interrupted", metadata=why)
    except BaseException as error:
        # What was said stays, and says that there was to be more; of an error, only what kind: it may hold secrets.
        gone = isinstance(error, asyncio.CancelledError)
        why = {"error": _STOPPED if gone else f"The model failed: {type(error).__name__}"}
        with contextlib.suppress(HansardError):
            await store.update_message(conversation_id, id, content=said, status="interrupted", metadata=why)
        raise
    return await store.update_message(conversation_id, id, content=said, status="complete", usage=usage)
