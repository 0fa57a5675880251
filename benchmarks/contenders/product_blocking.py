"""Ours: the blocking API, driven without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from benchmarks.contenders.base import Contender
from benchmarks.contenders.product import as_messages, tenant_for
from benchmarks.samples import Sample
from hansard import Message, sync


class Blocking(Contender):
    key: ClassVar[str] = "blocking"
    title: ClassVar[str] = "hansard.sync"
    package: ClassVar[str] = "hansard"
    blocking: ClassVar[bool] = True

    async def open(self) -> None:
        self._root = sync.connect(self.url)
        tenant = tenant_for(self)
        self.store = self._root.tenant(tenant) if tenant else self._root

    async def close(self) -> None:
        self._root.close()

    async def append(self, conversation: str, sample: Sample) -> None:
        self.store.append_message(conversation, role=sample.role, content=sample.text, metadata=sample.metadata)

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        self.store.append(conversation, as_messages(samples))

    async def last(self, conversation: str, count: int) -> Sequence[Message]:
        return self.store.get_messages(conversation, last=count)

    def texts(self, messages: Sequence[Any]) -> list[str]:
        return [message.text for message in messages]
