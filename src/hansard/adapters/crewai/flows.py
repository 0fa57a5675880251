"""CrewAI's flows: their state, and the conversation that a conversational flow keeps in it.

A flow is the conversation of the same id, and its state is a record of it. `messages` in the state, as in CrewAI's
`ChatState`, are the history: each is a message in the format `openai.chat`, and messages of other frameworks are
converted to it. The record holds the rest of the state, and how much of the history it included.
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
    """The history when the state was saved: number of messages, their digest, and the last seq."""

    count: int = 0
    digest: str = ""
    tail: int = 0


class FlowRecord(msgspec.Struct, frozen=True):
    """The record of a flow."""

    method: str
    state: State
    shared: Shared | None = None
    quotes: dict[str, str] = {}
    """Fields of the state that repeat the text of a message, and that message: the text is stored once."""


class HistoryMessage(NamedTuple):
    row: Message
    message: State


class PersistenceStore:
    """The store of a persistence. CrewAI copies a persistence through JSON; the copy finds its store by the key."""

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
    _persistence_store: PersistenceStore | None = PrivateAttr(default=None)

    @classmethod
    def over(
        cls, store: Store, call: Call, user_id: str | None = None, agent_id: str | None = None
    ) -> HansardFlowPersistence:
        home = PersistenceStore(store, call)
        made = cls(home=home.key, user_id=user_id, agent_id=agent_id)
        made._persistence_store = home
        return made

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        self._persistence_store = PersistenceStore.known.get(self.home)

    @property
    def _store(self) -> Store:
        assert self._persistence_store is not None  # Only coroutines use it, and `_run` has checked it.
        return self._persistence_store.store

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._persistence_store is None:
            coroutine.close()
            raise Unsupported(
                "this persistence was copied from another process: make it from a store, "
                "with store.crewai_flow_persistence()",
                capability="crewai",
            )
        return self._persistence_store.call(coroutine)

    # CrewAI's methods

    def init_db(self) -> None:
        """Does nothing: the store is open."""

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

    # Implementation

    async def _save(self, id: str, method: str, state: State, waiting: State | None) -> None:
        await self._create_or_claim(id)
        before = await self._flow_record(id)
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
        flow_record = await self._flow_record(id)
        if flow_record is not None and flow_record.shared is None:
            return flow_record.state
        history = _as_history(answered(await self._rows(id), FORMAT))
        if flow_record is None:
            # Another framework created the conversation.
            return {"id": id, MESSAGES: [each.message for each in history]} if history else None
        quoted = await self._quoted(
            id, flow_record.quotes, {each.row.id: each.message.get("content") for each in history}
        )
        return {**flow_record.state, **quoted, MESSAGES: [each.message for each in history]}

    async def _load_pending(self, id: str) -> tuple[State, State] | None:
        waiting = await self._store.records.get((PENDING,), id)
        state = await self._load(id) if waiting is not None else None
        return (state, waiting.value) if waiting is not None and state is not None else None

    async def _clear(self, id: str) -> None:
        await self._store.records.delete((PENDING,), id)

    async def _flow_record(self, id: str) -> FlowRecord | None:
        record = await self._store.records.get((FLOWS,), id)
        return value_of(record, FlowRecord) if record is not None else None

    async def _quotes(self, id: str, state: State) -> dict[str, str]:
        """Returns the fields of a state that repeat one of the newest messages, such as `last_user_message`."""
        recent = {text for message in state[MESSAGES][-_RECENT:] if isinstance(text := message.get("content"), str)}
        fields = {name: value for name, value in state.items() if isinstance(value, str) and value in recent}
        rows = await self._store.get_messages(id, last=_RECENT) if fields else []
        ids_by_text = {row.text: row.id for row in rows if row.format == FORMAT}
        return {name: ids_by_text[value] for name, value in fields.items() if value in ids_by_text}

    async def _quoted(self, id: str, quotes: dict[str, str], texts: dict[str, Any]) -> State:
        """Returns the fields that repeat messages, with their texts; empty text if the message is gone."""
        found: State = {}
        for name, row_id in quotes.items():
            if row_id not in texts:
                # Another framework may have branched off: the message still exists on another branch.
                with suppress(NotFound):
                    texts[row_id] = (await self._store.get_message(id, row_id)).text
            text = texts.get(row_id)
            found[name] = text if isinstance(text, str) else ""
        return found

    async def _create_or_claim(self, id: str) -> None:
        conversation = await self._store.get_conversation(id)
        if conversation is not None:
            if self.user_id is not None and conversation.user_id is None:
                # It was created without an owner: give it to the user, so that it is deleted when the user is erased.
                await self._store.update_conversation(id, user_id=self.user_id)
        else:
            try:
                await self._store.create_conversation(id, user_id=self.user_id, agent_id=self.agent_id)
            except (Conflict, ConversationNotFound):
                # Created by another process at the same time; a backend may report it either way.
                if await self._store.get_conversation(id) is None:
                    raise

    # The history

    async def _share(self, id: str, messages: Sequence[State], known: Shared) -> Shared:
        """Stores the new messages.

        If the state no longer holds earlier messages, the history continues in a branch from the last message that both
        have. Messages that others added since, and that the state does not hold yet, stay where they are.
        """
        tail = await self._tail(id)
        same = known.count
        if tail != known.tail or len(messages) < same or _digest(messages[:same]) != known.digest:
            history = _history_of_state(await self._rows(id), messages, known.tail)
            same = _common(history, messages)
            if same < min(known.count, len(history)):
                same = _cut(history, same)
                last = max((each.row for each in history[:same]), key=lambda row: row.seq, default=None)
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


def _as_history(rows: Sequence[Message]) -> list[HistoryMessage]:
    """Returns the history as CrewAI's messages, each with the row that it comes from."""
    history = []
    for row in rows:
        if row.format == FORMAT and _is_message(row.content):
            history.append(HistoryMessage(row, row.content))
        else:
            history += [
                HistoryMessage(row, _message(written)) for written in registry.write(reading_of(row), FORMAT, row)
            ]
    return history


def _history_of_state(rows: Sequence[Message], messages: Sequence[State], tail: int) -> list[HistoryMessage]:
    """Returns the history as the state holds it: results that came later follow its end, not their calls."""
    after = next((at for at, row in enumerate(rows) if row.seq > tail), len(rows))
    later = _as_history([*answered(rows[:after], FORMAT), *answered(rows[after:], FORMAT)])
    return max(_as_history(answered(rows, FORMAT)), later, key=lambda history: _common(history, messages))


def _cut(history: Sequence[HistoryMessage], same: int) -> int:
    """Returns how many of the first messages a branch can share exactly: results may come before other calls."""
    seqs = [each.row.seq for each in history]
    while 0 < same < len(history) and max(seqs[:same]) >= min(seqs[same:]):
        same -= 1
    return same


def _plain(state: dict[str, Any] | BaseModel) -> State:
    fields = _fields(state) if isinstance(state, BaseModel) else state
    if not isinstance(fields, dict):
        raise ValidationError(f"the state of a flow is an object or a model, not a {type(state).__name__}")
    return _json(fields)


def _json(fields: State) -> State:
    """Returns the fields as CrewAI's own persistence returns them: through JSON."""
    try:
        return cast(State, json.loads(json.dumps(fields, default=_substitute)))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"the state of a flow cannot be written as JSON: {error}") from error


def _substitute(value: Any) -> Any:
    """Returns what CrewAI's own persistence stores for a value that JSON cannot represent."""
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


def _message(written: State) -> State:
    """Returns an OpenAI message as CrewAI expects it: always with content, and instructions as system messages."""
    role = "system" if written["role"] == "developer" else written["role"]
    return {"content": None, **written, "role": role}


def _digest(messages: Sequence[State]) -> str:
    return hashlib.sha256(msgspec.json.encode(messages)).hexdigest()


def _common(history: Sequence[HistoryMessage], messages: Sequence[State]) -> int:
    count = 0
    for left, right in zip(history, messages, strict=False):
        if left.message != right:
            break
        count += 1
    return count
