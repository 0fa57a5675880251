"""The interface of a model for a chat, and an echo model that needs nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from msgspec import Struct

from hansard.agents.chat.tools import Tool
from hansard.assembly.explanation import Prompt
from hansard.errors import ValidationError
from hansard.formats.registry import Target
from hansard.model import Status, Usage


class Call(Struct, frozen=True):
    """A model's call of a tool. The arguments are as the model wrote them: JSON text, or decoded."""

    id: str
    name: str
    arguments: Any


class Answer(Struct, frozen=True, kw_only=True):
    """A model's complete answer, as it is recorded, in its provider's format."""

    content: Any
    format: str = "text"
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    status: Status = "complete"
    finish: str | None = None
    """Why it ended, if that matters: `length`."""


class Model(Protocol):
    """A model as a chat uses it."""

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> Target:
        """The format in which it takes a prompt."""
        ...

    def stream(self, prompt: Prompt, tools: Sequence[Tool]) -> AsyncIterator[str | Answer]:
        """Yields pieces of text as they come, and finally the complete answer."""
        ...


class EchoModel:
    """Repeats the last message: for trying things out, and for tests. It needs no network.

    A message `call name {…}` makes it call that tool, and then return the tool's result.
    """

    name = "echo"
    format: Target = "openai.chat"

    def __init__(self, opening: str = "You said: ") -> None:
        self._opening = opening

    async def stream(self, prompt: Prompt, tools: Sequence[Tool]) -> AsyncIterator[str | Answer]:
        last = prompt.messages[-1] if prompt.messages else {"role": "user", "content": ""}
        received = str(last["content"])
        word, _, rest = received.partition(" ")
        name, _, arguments = rest.partition(" ")
        if last["role"] == "user" and word == "call" and any(tool.name == name for tool in tools):
            yield _tool_call_answer(Call(f"call_{len(prompt.messages)}", name, arguments or "{}"))
            return
        text = received if last["role"] == "tool" else self._opening + received
        for piece in text.splitlines(keepends=True) if "\n" in text else text.split(" "):
            yield piece if "\n" in text or piece == text.split(" ")[0] else " " + piece
        yield Answer(content=text, usage=Usage(prompt.tokens, len(text.split()), model=self.name))


def _tool_call_answer(call: Call) -> Answer:
    function = {"name": call.name, "arguments": call.arguments}
    tool_calls = [{"id": call.id, "type": "function", "function": function}]
    return Answer(
        content={"role": "assistant", "content": None, "tool_calls": tool_calls}, format="openai.chat", calls=(call,)
    )


def model_named(text: str, **options: Any) -> Model:
    """Returns a model by a short name: `echo`, `openai:gpt-5`, `anthropic:claude-sonnet-5`. Options are its class's."""
    kind, _, name = text.partition(":")
    if kind == "echo":
        return EchoModel()
    if kind in ("openai", "anthropic") and name:
        from hansard.agents.chat.anthropic_model import AnthropicModel
        from hansard.agents.chat.openai_model import OpenAIModel

        return OpenAIModel(name, **options) if kind == "openai" else AnthropicModel(name, **options)
    raise ValidationError(f"unknown model {text!r}: echo, openai:NAME or anthropic:NAME")
