"""Anthropic's models, through Anthropic's own SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from hansard.agents.capture import sdk_replies
from hansard.agents.chat.models import Answer, Call
from hansard.agents.chat.tools import Tool
from hansard.assembly.explanation import Prompt
from hansard.errors import Unsupported
from hansard.formats.registry import Target

_STOPS = {"max_tokens": "length", "model_context_window_exceeded": "length"}


class AnthropicModel:
    """`AnthropicModel("claude-sonnet-5")`. `client` is an `AsyncAnthropic` of yours; without one it is created.

    Other options are passed with every request.
    """

    format: Target = "anthropic"

    def __init__(
        self,
        name: str,
        *,
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        max_tokens: int = 4096,
        **options: Any,
    ) -> None:
        self.name = name
        self._client = client or _make_client(base_url, api_key)
        self._options = {"max_tokens": max_tokens, **options}

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()

    async def stream(self, prompt: Prompt, tools: Sequence[Tool]) -> AsyncIterator[str | Answer]:
        extra: dict[str, Any] = {"tools": [tool.anthropic() for tool in tools]} if tools else {}
        if prompt.system:
            extra["system"] = prompt.system
        begun = self._client.messages.stream(model=self.name, messages=list(prompt.messages), **extra, **self._options)
        async with begun as stream:
            async for text in stream.text_stream:
                yield text
            message = await stream.get_final_message()
        yield self._answer(message)

    def _answer(self, message: Any) -> Answer:
        # An interrupted stream has no stop reason, and its calls are incomplete.
        is_whole = message.stop_reason is not None
        blocks = sdk_replies.blocks_of(message.content)
        calls = tuple(
            Call(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"
        )
        is_text = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
        return Answer(
            content=blocks[0]["text"] if is_text else blocks or "",
            format="text" if is_text or not blocks else "anthropic",
            calls=calls if is_whole else (),
            usage=sdk_replies.named(sdk_replies.usage_of(message.usage), message.model),
            status="interrupted" if not is_whole else "blocked" if message.stop_reason == "refusal" else "complete",
            finish=_STOPS.get(str(message.stop_reason)),
        )


def _make_client(base_url: str | None, api_key: str | None) -> Any:
    try:
        import anthropic
    except ModuleNotFoundError as error:
        needs = "this model needs an extra: pip install 'hansard[anthropic]'"
        raise Unsupported(needs, capability="anthropic") from error
    return anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key)
