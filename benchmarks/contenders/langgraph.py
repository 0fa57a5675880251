"""langgraph's AsyncSqliteSaver, as a graph uses it: load the thread's checkpoint, add to `messages`, put a new
one.

The history is one value in the checkpoint, so reads and writes both cost the whole conversation. A graph writes once
per turn: one write has two messages, and scenarios divide by two. The graph itself is left out, because it only adds
cost.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.samples import Sample

base = importlib.import_module("langgraph.checkpoint.base")
saver = importlib.import_module("langgraph.checkpoint.sqlite.aio")
messages = importlib.import_module("langchain_core.messages")


def _message(sample: Sample) -> Any:
    kind = messages.AIMessage if sample.role == "assistant" else messages.HumanMessage
    return kind(content=sample.text, additional_kwargs=sample.metadata)


class LangGraph(Contender):
    key: ClassVar[str] = "langgraph"
    title: ClassVar[str] = "langgraph AsyncSqliteSaver"
    package: ClassVar[str] = "langgraph-checkpoint-sqlite"
    thrift: ClassVar[int] = 25
    per_write: ClassVar[int] = 2

    async def open(self) -> None:
        self._stack = AsyncExitStack()
        opening = saver.AsyncSqliteSaver.from_conn_string(str(self.path.with_suffix(".langgraph")))
        self.saver = await self._stack.enter_async_context(opening)

    async def close(self) -> None:
        await self._stack.aclose()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self.append_many(conversation, [sample])

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._put(await self._load(conversation), samples)

    async def last(self, conversation: str, count: int) -> Sequence[Any]:
        history: list[Any] = (await self._load(conversation))[1]
        return history[-count:]

    def texts(self, messages: Sequence[Any]) -> list[str]:
        return [message.content for message in messages]

    async def turn(self, conversation: str, question: Sample, answer: Sample) -> Sequence[Any]:
        loaded = await self._load(conversation)
        await self._put(loaded, [question, answer])
        history: list[Any] = loaded[1]
        return history[-50:]

    async def _load(self, conversation: str) -> tuple[Any, list[Any]]:
        config = {"configurable": {"thread_id": conversation, "checkpoint_ns": ""}}
        found = await self.saver.aget_tuple(config)
        if found is None:
            return config, []
        return found.config, found.checkpoint["channel_values"]["messages"]

    async def _put(self, loaded: tuple[Any, list[Any]], samples: Sequence[Sample]) -> None:
        config, history = loaded
        version = f"{len(history):032}.0"
        checkpoint = base.empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [*history, *map(_message, samples)]}
        checkpoint["channel_versions"] = {"messages": version}
        metadata = {"source": "loop", "step": len(history), "parents": {}}
        await self.saver.aput(config, checkpoint, metadata, {"messages": version})
