"""Any endpoint with OpenAI's Chat Completions API, through OpenAI's own SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from hansard.agents.capture import sdk_replies
from hansard.agents.chat.models import Answer, Call
from hansard.agents.chat.tools import Tool
from hansard.assembly.explanation import Prompt
from hansard.errors import Unsupported
from hansard.formats.registry import Target
from hansard.model import Status, Usage

_STATUS: dict[str | None, Status] = {None: "interrupted", "content_filter": "blocked"}


class OpenAIModel:
    """`OpenAIModel("gpt-5")`, or with `base_url` any server with the same API: vLLM, Ollama, llama.cpp.

    `client` is an `AsyncOpenAI` of yours; without one it is created from `base_url`, `api_key` and the environment.
    Other options are passed with every request.
    """

    format: Target = "openai.chat"

    def __init__(
        self,
        name: str,
        *,
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self._client = client or _make_client(base_url, api_key)
        self._options = {"stream_options": {"include_usage": True}, **options}

    async def close(self) -> None:
        """Closes the client."""
        await self._client.close()

    async def stream(self, prompt: Prompt, tools: Sequence[Tool]) -> AsyncIterator[str | Answer]:
        extra: dict[str, Any] = {"tools": [tool.openai() for tool in tools]} if tools else {}
        chunks = await self._client.chat.completions.create(
            model=self.name, messages=list(prompt.messages), stream=True, **extra, **self._options
        )
        reply = _StreamedReply(self.name)
        async with chunks:
            async for chunk in chunks:
                if text := reply.take(chunk):
                    yield text
        yield reply.answer()


class _StreamedReply:
    """The pieces of a stream, combined."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Usage | None = None
        self._finish: str | None = None

    def take(self, chunk: Any) -> str | None:
        """Returns the text that a chunk adds."""
        self._usage = sdk_replies.merged(self._usage, sdk_replies.usage_of(chunk.usage))
        if not chunk.choices:
            return None
        choice = chunk.choices[0]
        self._finish = choice.finish_reason or self._finish
        for call in choice.delta.tool_calls or ():
            self._add_call(call)
        self._refusal.append(choice.delta.refusal or "")
        text: str | None = choice.delta.content
        self._text.append(text or "")
        return text

    def _add_call(self, piece: Any) -> None:
        call = self._calls.setdefault(
            piece.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        )
        call["id"] = piece.id or call["id"]
        if piece.function is not None:
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""

    def answer(self) -> Answer:
        text, refusal = "".join(self._text), "".join(self._refusal)
        calls = [self._calls[index] for index in sorted(self._calls)]
        content: Any = text
        if calls or refusal:
            content = {"role": "assistant", "content": text or None}
            content |= {"tool_calls": calls} if calls else {}
            content |= {"refusal": refusal} if refusal else {}
        finished = [Call(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
        return Answer(
            content=content,
            format="text" if isinstance(content, str) else "openai.chat",
            # The calls of an interrupted stream are incomplete.
            calls=tuple(finished) if self._finish is not None else (),
            usage=sdk_replies.named(self._usage, self._model),
            status=_STATUS.get(self._finish, "complete"),
            finish=self._finish if self._finish == "length" else None,
        )


def _make_client(base_url: str | None, api_key: str | None) -> Any:
    try:
        import openai
    except ModuleNotFoundError as error:
        raise Unsupported("this model needs an extra: pip install 'hansard[openai]'", capability="openai") from error
    # Your own server often needs no key; the SDK always requires one.
    key = api_key or ("none" if base_url is not None else None)
    return openai.AsyncOpenAI(base_url=base_url, api_key=key)
