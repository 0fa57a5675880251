"""Storages that watch how operations use their transaction, and one session that uses every operation."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from hansard import sync
from hansard.backends.memory import MemoryStorage
from hansard.backends.memory.tenant import MemoryTenant
from hansard.backends.memory.transaction import MemoryTransaction
from hansard.backends.shared import optimistic
from hansard.backends.shared.optimistic import Overtaken
from hansard.backends.stored import StoredBackend
from hansard.contract.storage import NOTHING, Applied, Changes, Found, Operation, T, Wants
from hansard.contract.types import Context, ConversationState
from hansard.errors import HansardError
from hansard.model import Message, Usage
from hansard.testing import Clock
from hansard.testing.contract.blobs import picture


class CountedTransaction(MemoryTransaction):
    gets = 0
    applies = 0

    async def get(self, wants: Wants) -> Found:
        assert not self.applies, "asks after it has applied"
        self.gets += 1
        return await super().get(wants)

    async def apply(self, changes: Changes) -> Applied:
        self.applies += 1
        return await super().apply(changes)


class CountingStorage(MemoryStorage):
    """Counts what each operation asks for and applies."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, set[tuple[int, int]]] = defaultdict(set)

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        tx = CountedTransaction(self.tenant(context), context, id)
        try:
            return await operation(tx)
        finally:
            self.counts[operation.func.__name__].add((tx.gets, tx.applies))  # type: ignore[attr-defined]


class LostTransaction(MemoryTransaction):
    """What it applies is thrown away."""

    async def apply(self, changes: Changes) -> Applied:
        return Applied()


class RepeatingStorage(MemoryStorage):
    """Runs every operation twice, as after a group commit that failed: the first run is thrown away."""

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        with contextlib.suppress(HansardError):
            await operation(LostTransaction(self.tenant(context), context, id))
        return await super().write(context, id, operation)


class OptimisticTransaction(MemoryTransaction):
    """Decides on a remembered state, which it compares with the stored one when it asks and when it applies."""

    def __init__(
        self, tenant: MemoryTenant, context: Context, id: str, state: ConversationState | None, *, is_certain: bool
    ) -> None:
        super().__init__(tenant, context, id)
        self._stored = super().state
        self._remembered = state
        self._assumed: Wants | None = None
        self._may_assume = not is_certain
        self.has_applied = False

    @property
    def state(self) -> ConversationState | None:
        return self._remembered

    @property
    def is_certain(self) -> bool:
        return not self._may_assume

    async def get(self, wants: Wants) -> Found:
        if wants.expects_none and self._may_assume:
            self._assumed = wants
            return await super().get(Wants(records=wants.records)) if wants.records else NOTHING
        self._check()
        return await super().get(wants)

    async def apply(self, changes: Changes) -> Applied:
        self._check()
        if self._assumed is not None:
            found = await super().get(self._assumed)
            if found.by_id or found.tombstones:
                raise Overtaken
        self.has_applied = True
        return await super().apply(changes)

    def _check(self) -> None:
        if self._remembered is not self._stored:
            raise Overtaken


class OptimisticStorage(MemoryStorage):
    """Remembers the state that it saw last, until a run on it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.remembered: dict[tuple[str, str], ConversationState | None] = {}
        self.runs = 0

    async def write(self, context: Context, id: str, operation: Operation[T]) -> T:
        run = partial(optimistic.write, operation, partial(self._begin, context, id))

        async def whole(_: Any) -> T:
            return await run()

        return await super().write(context, id, whole)

    async def _begin(self, context: Context, id: str, certain: bool) -> OptimisticTransaction:
        self.runs += 1
        tenant, name = self.tenant(context), (context.tenant, id)
        stored = tenant.conversations.get(id)
        if certain or name not in self.remembered:
            self.remembered[name] = stored.state if stored else None
        return OptimisticTransaction(tenant, context, id, self.remembered[name], is_certain=certain)


def session(storage: MemoryStorage) -> list[str]:
    """Uses every operation, with and without success; returns all answers, as text."""
    answers: list[str] = []
    with sync.Store.over(StoredBackend(storage), clock=Clock()) as store:

        def call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
            try:
                answer = function(*args, **options)
            except HansardError as error:
                answer = (type(error), str(error))
            answers.append(repr(answer))
            return answer

        _converse(store, call)
        _branch(store, call)
        _remove(store, call)
        call(store.list_conversations, archived=None)
        call(store.stats)
        call(store.usage)
        call(store.check)
    return answers


Call = Callable[..., Any]


def said(id: str, text: Any = "hello", **fields: Any) -> Message:
    return Message("user", text, id=id, **fields)


def _converse(store: sync.Store, call: Call) -> None:
    call(store.create_conversation, "c", user_id="u")
    call(store.create_conversation, "c")
    call(store.append, "c", [said("1", usage=Usage(model="m", input_tokens=3)), said("2", picture(1))])
    call(store.append, "c", [said("2", picture(1)), said("3")])
    call(store.append, "c", said("3", "other"), on_duplicate="error")
    call(store.append, "c", said("4"), expected_version=99)
    call(store.append, "c", said("4"), user_id="another")
    call(store.append, "n", said("1"), create=False)
    call(store.append, "n", [said("1"), said("2")])
    call(store.update_message, "c", "1", content="hello again", usage=Usage(model="m", input_tokens=5))
    call(store.update_message, "c", "9", content="nothing")
    call(store.update_conversation, "c", title="A title", metadata={"k": [1]})
    call(store.user("u").get_messages, "c")


def _branch(store: sync.Store, call: Call) -> None:
    call(store.branch, "c", at="2", branch_id="side")
    call(store.append, "c", [said("5"), said("6")])
    call(store.branch, "c", at="9", branch_id="nowhere")
    call(store.branch, "c", branch_id="end", activate=False)
    call(store.add_summary, "c", "so far", from_seq=1, to_seq=2, branch="side")
    call(store.pop_message, "c", branch="end")
    call(store.pop_message, "c")
    call(store.replace_messages, "c", [said("1", "hello again"), said("7", picture(2)), said("8")], branch="main")
    call(store.replace_messages, "c", [said("5")], branch="main")
    call(store.replace_messages, "n", [])
    call(store.delete_branch, "c", "side")
    call(store.switch_branch, "c", "main")
    call(store.delete_branch, "c", "end")
    call(store.delete_branch, "c", "side")


def _remove(store: sync.Store, call: Call) -> None:
    call(store.add_summary, "c", "all", from_seq=1, to_seq=20, branch="main")
    call(store.delete_messages, "c", ["8", "7", "nothing"])
    call(store.append, "c", said("8"))
    call(store.append, "c", said("8"), revive=True)
    with sync.Store.over(StoredBackend(MemoryStorage()), clock=Clock()) as other:
        store.copy_to(other)
        other.delete_conversation("n")
        store.delete_conversation("n")
        other.append("m", [said("1"), said("2")])
        other.branch("m", at="1", branch_id="side")
        other.copy_to(store)
    call(store.clear_messages, "c")
    call(store.delete_conversation, "c")
    call(store.delete_conversation, "c")
    call(store.append, "c", said("1", created_at=Clock().now))
