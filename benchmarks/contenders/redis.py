"""On a Redis server: bare lists, openai-agents' RedisSession, and ours.

The reference is one RPUSH per message and one LRANGE per read, with redis-py, without ids, counters and listing. So it
shows what the server and its driver allow, and is not a store. Each contender has its own keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from benchmarks.contenders.base import Contender
from benchmarks.contenders.product import Ours
from benchmarks.samples import Sample

# By name, so that types are the same whether or not the package is installed.
redis = importlib.import_module("redis.asyncio")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def _item(sample: Sample) -> dict[str, Any]:
    return {"role": sample.role, "content": sample.text, "metadata": sample.metadata}


class RawRedis(Contender):
    key: ClassVar[str] = "raw-redis"
    title: ClassVar[str] = "raw RPUSH/LRANGE"
    package: ClassVar[str] = "redis"

    async def open(self) -> None:
        self._client = redis.Redis.from_url(self.url)

    async def close(self) -> None:
        await self._client.aclose()

    def _list(self, conversation: str) -> str:
        return f"{self.path.parent.name}:{conversation}"

    async def append(self, conversation: str, sample: Sample) -> None:
        await self._client.rpush(self._list(conversation), _encode(_item(sample)))

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._client.rpush(self._list(conversation), *(_encode(_item(sample)) for sample in samples))

    async def last(self, conversation: str, count: int) -> list[dict[str, Any]]:
        found = await self._client.lrange(self._list(conversation), -count, -1)
        return [_decode(each) for each in found]

    def texts(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        return [message["content"] for message in messages]


class RedisSession(RawRedis):
    key: ClassVar[str] = "redis-session"
    title: ClassVar[str] = "openai-agents RedisSession"
    package: ClassVar[str] = "openai-agents"

    async def open(self) -> None:
        await super().open()
        self._memory = importlib.import_module("agents.extensions.memory")
        self._sessions: dict[str, Any] = {}

    def _session(self, conversation: str) -> Any:
        session = self._sessions.get(conversation)
        if session is None:
            session = self._memory.RedisSession(self._list(conversation), redis_client=self._client)
            self._sessions[conversation] = session
        return session

    async def append(self, conversation: str, sample: Sample) -> None:
        await self._session(conversation).add_items([_item(sample)])

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self._session(conversation).add_items([_item(sample) for sample in samples])

    async def last(self, conversation: str, count: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = await self._session(conversation).get_items(limit=count)
        return items


class OursOnRedis(Ours):
    key: ClassVar[str] = "ours-redis"
    title: ClassVar[str] = "hansard on redis"
