"""CrewAI's flows: their state, and the conversation that a chatting flow keeps in it.

A flow is the conversation of the same id, and its state is a record of it. `messages` in the state, as CrewAI's
`ChatState` has them, are the history: each is a message of the format `openai.chat`, and what others said comes as
messages that say the same. The record holds the rest of the state, and how much of the history it knew.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, ClassVar, NamedTuple, cast
from weakref import WeakValueDictionary

import msgspec
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence import FlowPersistence
from pydantic import BaseModel, PrivateAttr
from pydantic_core import PydanticSerializationError

from hansard.adapters.blocking import Call
from hansard.adapters.history import answered, reading_of, value_of
from hansard.errors import Conflict, ConversationNotFound, NotFound, Unsupported, ValidationError
from hansard.formats import registry
from hansard.model import Message
from hansard.store import Store
from hansard.store.records import Delete, Put

FORMAT = "openai.chat"
FLOWS = "crewai-flows"
PENDING = "crewai-flows-pending"
MESSAGES = "messages"

State = dict[str, Any]

_RECENT = 20
"""Messages that the state of a flow may repeat."""


class Shared(msgspec.Struct, frozen=True):
    """What the history had when the state was saved: how many messages, by which digest, up to which seq."""

    count: int = 0
    digest: str = ""
    tail: int = 0


class FlowRecord(msgspec.Struct, frozen=True):
    """What a flow's record holds."""

    method: str
    state: State
    shared: Shared | None = None
    quotes: dict[str, str] = {}
    """Fields of the state that repeat what a message says, and the message: its text is kept once."""


class HistoryMessage(NamedTuple):
    row: Message
    message: State


class PersistenceStore:
    """The store of a persistence. CrewAI copies a persistence through JSON, and finds its home again by the key."""

    known: ClassVar[WeakValueDictionary[str, PersistenceStore]] = WeakValueDictionary()

    def __init__(self, store: Store, call: Call) -> None:
        self.store = store
        self.call = call
        self.key = uuid.uuid4().hex
        self.known[self.key] = self


class HansardFlowPersistence(FlowPersistence):  # type: ignore[misc]  # CrewAI is not installed where types are checked
    """CrewAI's `FlowPersistence`."""

    persistence_type: str = "HansardFlowPersistence"
    home: str = ""
    user_id: str | None = None
    agent_id: str | None = None
    _home: PersistenceStore | None = PrivateAttr(default=None)

    @classmethod
    def over(
        cls, store: Store, call: Call, user_id: str | None = None, agent_id: str | None = None
    ) -> HansardFlowPersistence:
        home = PersistenceStore(store, call)
        made = cls(home=home.key, user_id=user_id, agent_id=agent_id)
        made._home = home
        return made

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._home = PersistenceStore.known.get(self.home)

    @property
    def _store(self) -> Store:
        assert self._home is not None  # Only coroutines use it, and those are run at home.
        return self._home.store

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._home is None:
            coroutine.close()
            raise Unsupported(
                "this persistence was copied from another process: make it from a store, "
                "with store.crewai_flow_persistence()",
                capability="crewai",
            )
        return self._home.call(coroutine)

    # CrewAI's methods

    def init_db(self) -> None:
        """There is nothing to make: the store is open."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        self._run(self._save(flow_uuid, method_name, _plain(state_data), None))

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        return cast("State | None", self._run(self._load(flow_uuid)))

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        waiting = _json(context.to_dict())
        self._run(self._save(flow_uuid, context.method_name, _plain(state_data), waiting))

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        found = self._run(self._load_pending(flow_uuid))
        return (found[0], PendingFeedbackContext.from_dict(found[1])) if found is not None else None

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        self._run(self._clear(flow_uuid))

    # What they do

    async def _save(self, id: str, method: str, state: State, waiting: State | None) -> None:
        await self._meet(id)
        before = await self._kept(id)
        messages = state.get(MESSAGES)
        shared, quotes = None, {}
        if isinstance(messages, list) and all(_is_message(message) for message in messages):
            known = before.shared if before is not None and before.shared is not None else Shared()
            shared = await self._share(id, messages, known)
            quotes = await self._quotes(id, state)
            state = {name: value for name, value in state.items() if name != MESSAGES and name not in quotes}
        value = msgspec.to_builtins(FlowRecord(method, state, shared, quotes))
        batch: list[Put | Delete] = [Put((FLOWS,), id, value, conversation_id=id)]
        if waiting is not None:
            batch.append(Put((PENDING,), id, waiting, conversation_id=id))
        await self._store.records.write(batch)

    async def _load(self, id: str) -> State | None:
        kept = await self._kept(id)
        if kept is not None and kept.shared is None:
            return kept.state
        told = _told(answered(await self._rows(id), FORMAT))
        if kept is None:
            # Others have begun it.
            return {"id": id, MESSAGES: [each.message for each in told]} if told else None
        quoted = await self._quoted(id, kept.quotes, {each.row.id: each.message.get("content") for each in told})
        return {**kept.state, **quoted, MESSAGES: [each.message for each in told]}

    async def _load_pending(self, id: str) -> tuple[State, State] | None:
        waiting = await self._store.records.get((PENDING,), id)
        state = await self._load(id) if waiting is not None else None
        return (state, waiting.value) if waiting is not None and state is not None else None

    async def _clear(self, id: str) -> None:
        await self._store.records.delete((PENDING,), id)

    async def _kept(self, id: str) -> FlowRecord | None:
        record = await self._store.records.get((FLOWS,), id)
        return value_of(record, FlowRecord) if record is not None else None

    async def _quotes(self, id: str, state: State) -> dict[str, str]:
        """Which fields of a state repeat one of the newest messages, such as `last_user_message`."""
        recent = {text for message in state[MESSAGES][-_RECENT:] if isinstance(text := message.get("content"), str)}
        fields = {name: value for name, value in state.items() if isinstance(value, str) and value in recent}
        rows = await self._store.get_messages(id, last=_RECENT) if fields else []
        said = {row.text: row.id for row in rows if row.format == FORMAT}
        return {name: said[value] for name, value in fields.items() if value in said}

    async def _quoted(self, id: str, quotes: dict[str, str], texts: dict[str, Any]) -> State:
        """The fields that repeat messages, with what those say. What is gone is empty: the field is still a text."""
        found: State = {}
        for name, row_id in quotes.items():
            if row_id not in texts:
                # Others may have gone on from another place: it is still there, on another branch.
                with suppress(NotFound):
                    texts[row_id] = (await self._store.get_message(id, row_id)).text
            text = texts.get(row_id)
            found[name] = text if isinstance(text, str) else ""
        return found

    async def _meet(self, id: str) -> None:
        conversation = await self._store.get_conversation(id)
        if conversation is not None:
            if self.user_id is not None and conversation.user_id is None:
                # Others began it for nobody: from now on it goes when the user is erased.
                await self._store.update_conversation(id, user_id=self.user_id)
        else:
            try:
                await self._store.create_conversation(id, user_id=self.user_id, agent_id=self.agent_id)
            except (Conflict, ConversationNotFound):
                # Made by somebody else at the same time; a backend may tell it either way.
                if await self._store.get_conversation(id) is None:
                    raise

    # The history

    async def _share(self, id: str, messages: Sequence[State], known: Shared) -> Shared:
        """Stores what is new of the messages.

        Where the state no longer has what it had, the history goes on in a branch from the last that both have. What
        others said since, and the state has not heard of yet, stays where it is.
        """
        tail = await self._tail(id)
        same = known.count
        if tail != known.tail or len(messages) < same or _digest(messages[:same]) != known.digest:
            told = _heard(await self._rows(id), messages, known.tail)
            same = _common(told, messages)
            if same < min(known.count, len(told)):
                same = _cut(told, same)
                last = max((each.row for each in told[:same]), key=lambda row: row.seq, default=None)
                await self._store.branch(id, at=last.id if last else None, empty=last is None)
        rows = [Message(message["role"], message, format=FORMAT) for message in messages[same:]]
        if rows:
            tail = (await self._store.append(id, rows, create=False)).messages[-1].seq
        return Shared(len(messages), _digest(messages), tail)

    async def _tail(self, id: str) -> int:
        newest = await self._store.get_messages(id, last=1)
        return newest[-1].seq if newest else 0

    async def _rows(self, id: str) -> list[Message]:
        return [row async for row in self._store.iter_messages(id)]


def _told(rows: Sequence[Message]) -> list[HistoryMessage]:
    """The history as CrewAI's messages, each with the row that it comes from."""
    told = []
    for row in rows:
        if row.format == FORMAT and _is_message(row.content):
            told.append(HistoryMessage(row, row.content))
        else:
            told += [HistoryMessage(row, _message(said)) for said in registry.write(reading_of(row), FORMAT, row)]
    return told


def _heard(rows: Sequence[Message], messages: Sequence[State], tail: int) -> list[HistoryMessage]:
    """The history as the state has heard it: results that came later stand behind its end, not behind their calls."""
    after = next((at for at, row in enumerate(rows) if row.seq > tail), len(rows))
    later = _told([*answered(rows[:after], FORMAT), *answered(rows[after:], FORMAT)])
    return max(_told(answered(rows, FORMAT)), later, key=lambda told: _common(told, messages))


def _cut(told: Sequence[HistoryMessage], same: int) -> int:
    """How many of the first messages a branch can have, and nothing else: results may stand before other calls."""
    seqs = [each.row.seq for each in told]
    while 0 < same < len(told) and max(seqs[:same]) >= min(seqs[same:]):
        same -= 1
    return same


def _plain(state: dict[str, Any] | BaseModel) -> State:
    fields = _fields(state) if isinstance(state, BaseModel) else state
    if not isinstance(fields, dict):
        raise ValidationError(f"the state of a flow is an object or a model, not a {type(state).__name__}")
    return _json(fields)


def _json(fields: State) -> State:
    """The fields as CrewAI's own persistence returns them: through JSON."""
    try:
        return cast(State, json.loads(json.dumps(fields, default=_substitute)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"the state of a flow cannot be written as JSON: {error}") from error


def _substitute(value: Any) -> Any:
    """What CrewAI's own persistence stores in place of a value that JSON does not know."""
    if isinstance(value, BaseModel):
        return _fields(value)
    if isinstance(value, set):
        return list(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def _fields(model: BaseModel) -> State:
    try:
        return model.model_dump(mode="json")
    except PydanticSerializationError:
        return model.model_dump()


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") in ("user", "assistant", "system", "tool")


def _message(said: State) -> State:
    """A message of OpenAI's as CrewAI wants it: always with a content, and instructions only of the system."""
    role = "system" if said["role"] == "developer" else said["role"]
    return {"content": None, **said, "role": role}


def _digest(messages: Sequence[State]) -> str:
    return hashlib.sha256(msgspec.json.encode(messages)).hexdigest()


def _common(told: Sequence[HistoryMessage], messages: Sequence[State]) -> int:
    count = 0
    for left, right in zip(told, messages, strict=False):
        if left.message != right:
            break
        count += 1
    return count
