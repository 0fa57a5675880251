"""Answers to messages that are written on the page, by the server's model or by an echo.

A model has a `name` and returns its answer as an async iterator of text fragments, optionally with its `Usage`. The
answer is stored as it arrives, as a message in progress, so that all readers see it grow and nothing is lost if it is
cut off. The reason is then stored in the message's metadata, as `error`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import UNSET, UnsetType

from hansard.errors import HansardError
from hansard.model import Message, Participant, Usage
from hansard.store import Store

_MOST_UNSTORED = 200
"""Characters after which the answer so far is stored, however fast they arrive."""
_INTERVAL = 0.15
"""Seconds after which the next fragment is stored, however short it is, so that slow answers grow visibly."""
_STOPPED = "The answer took too long, or the server was stopped."


class PageModel(Protocol):
    @property
    def name(self) -> str:
        """The name that the page shows."""

    def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str | Usage]:
        """Yields the answer. `messages` is the prompt in the format of Chat Completions, `text` the newest message."""


class Echo:
    """Repeats the message, so that the page can be tried without a model."""

    name = "echo"

    async def answer(self, messages: Sequence[Any], text: str) -> AsyncIterator[str]:
        yield "You said:\n\n"
        for line in text.splitlines() or [""]:
            yield f"> {line}\n"


async def reply(store: Store, model: PageModel, conversation_id: str, text: str, agent_id: str | None) -> Message:
    """Asks the model, and stores its answer while it arrives."""
    prompt = await store.assemble_prompt(conversation_id, agent_id=agent_id)
    who = Participant("agent", agent_id or model.name)
    id = await store.append_message(
        conversation_id, "assistant", "", participant=who, status="in_progress", prompt_id=prompt.prompt_id
    )
    answer_text, stored, stored_at = "", 0, float("-inf")
    usage: Usage | UnsetType = UNSET
    try:
        async for piece in model.answer(prompt.messages, text):
            if isinstance(piece, Usage):
                usage = piece
                continue
            answer_text += piece
            if len(answer_text) - stored >= _MOST_UNSTORED or time.monotonic() - stored_at >= _INTERVAL:
                await store.update_message(conversation_id, id, content=answer_text)
                stored, stored_at = len(answer_text), time.monotonic()
    except HansardError as error:
        why = {"error": str(error)}
        return await store.update_message(conversation_id, id, content=answer_text, status="interrupted", metadata=why)
    except BaseException as error:
        # Keep the partial answer as interrupted. Store only the type of the error: its message may contain secrets.
        gone = isinstance(error, asyncio.CancelledError)
        why = {"error": _STOPPED if gone else f"The model failed: {type(error).__name__}"}
        with contextlib.suppress(HansardError):
            await store.update_message(conversation_id, id, content=answer_text, status="interrupted", metadata=why)
        raise
    return await store.update_message(conversation_id, id, content=answer_text, status="complete", usage=usage)
