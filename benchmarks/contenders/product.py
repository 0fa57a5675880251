"""Ours: the async store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender, Lister
from benchmarks.samples import Sample
from hansard import Conversation, Message, connect


def as_messages(samples: Sequence[Sample]) -> list[Message]:
    return [Message(role=one.role, content=one.text, metadata=one.metadata) for one in samples]


def tenant_for(contender: Contender) -> str | None:
    """Returns a new tenant on a server, which still has the data of earlier repetitions."""
    return None if str(contender.path) in contender.url else contender.path.parent.name


class Ours(Lister):
    key: ClassVar[str] = "ours"
    title: ClassVar[str] = "hansard"
    package: ClassVar[str] = "hansard"

    async def open(self) -> None:
        self._root = await connect(self.url)
        tenant = tenant_for(self)
        self.store = self._root.tenant(tenant) if tenant else self._root

    async def close(self) -> None:
        await self._root.close()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self.store.append_message(conversation, role=sample.role, content=sample.text, metadata=sample.metadata)

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self.store.append(conversation, as_messages(samples))

    async def last(self, conversation: str, count: int) -> Sequence[Message]:
        return await self.store.get_messages(conversation, last=count)

    def texts(self, messages: Sequence[Any]) -> list[str]:
        return [message.text for message in messages]

    async def start(self, owners: Mapping[str, str], sample: Sample) -> None:
        first = self.store.append_message
        await asyncio.gather(
            *(first(name, role=sample.role, content=sample.text, user_id=owner) for name, owner in owners.items())
        )

    async def newest(self, user_id: str, count: int) -> Sequence[Conversation]:
        page = await self.store.list_conversations(user_id=user_id, limit=count)
        return page.items

    def names(self, conversations: Sequence[Any]) -> list[str]:
        return [conversation.id for conversation in conversations]
