"""How a delta channel of messages and the shared history exchange messages.

LangGraph rebuilds a delta channel from the writes of a checkpoint's ancestors, with a reducer that only the graph
knows. So messages of other frameworks cannot be added to the channel's value. They are added to the writes instead: the
newest checkpoint is read with one more write, which holds them. The configuration that is returned with it names their
rows. It comes back when the next checkpoint is put, whose record refers to these rows from then on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, PendingWrite, get_checkpoint_id
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite
from msgspec import Struct

from hansard.adapters.langgraph.messages import FORMAT, draft_of, id_of
from hansard.adapters.langgraph.records import Saved
from hansard.adapters.langgraph.references import HistoryPosition
from hansard.adapters.langgraph.threads import Runs, StateMessages, Thread, runs_of
from hansard.model import Message

MESSAGES = "messages"

ADDED = "__hansard_heard"
"""The key of a configuration that names messages of other frameworks. LangGraph copies such keys into no metadata."""
ADDED_TASK = "0-heard"
"""The task of a write that holds messages of other frameworks. It sorts before the tasks of graphs."""


class AddedMessages(Struct, frozen=True):
    """Rows written by others, with which the newest checkpoint is read."""

    checkpoint_id: str
    branch: str
    runs: Runs
    tail: int
    """The newest row of the branch when it was read."""
    is_all: bool = False
    """Whether they replace the messages of the checkpoint, because the conversation was switched to another branch."""


def added_in(config: RunnableConfig) -> AddedMessages | None:
    """Returns the rows with which a configuration's checkpoint was read. Later steps name other checkpoints."""
    added = config["configurable"].get(ADDED)
    if not isinstance(added, AddedMessages) or config["configurable"].get("checkpoint_ns"):
        return None
    return added if added.checkpoint_id == get_checkpoint_id(config) else None


def with_added(config: RunnableConfig, added: AddedMessages | None) -> RunnableConfig:
    return {**config, "configurable": {**config["configurable"], ADDED: added}}


def added_since(id: str, saved: Saved, branch: str, state: StateMessages) -> AddedMessages | None:
    """Returns the rows that others wrote since a checkpoint that holds its messages; None if there are none."""
    if branch != saved.branch:
        return AddedMessages(id, branch, state.runs, state.newest, is_all=True)
    own = saved.runs or ()
    last = max((last for _, last in own), default=0)
    if state.newest <= last and not saved.unseen:
        return None
    seqs = [seq for seq in state.seqs if not any(first <= seq <= last for first, last in own)]
    return AddedMessages(id, branch, tuple(runs_of(seqs)), max(saved.tail, state.newest)) if seqs else None


def is_delta(checkpoint: Checkpoint) -> bool:
    """Whether the messages of a checkpoint are a delta channel, which holds no value or, now and then, a snapshot."""
    values = checkpoint["channel_values"]
    is_there = MESSAGES in checkpoint["channel_versions"]
    return is_there and (MESSAGES not in values or is_snapshot(values[MESSAGES]))


def is_snapshot(value: Any) -> bool:
    return isinstance(value, _DeltaSnapshot)


def was_delta(saved: Saved) -> bool:
    """The same for a stored checkpoint."""
    is_held = MESSAGES in saved.values or MESSAGES in saved.homes
    is_unheld = MESSAGES in saved.body.get("channel_versions", ()) and not is_held
    return saved.runs is None and (saved.branch is not None or is_unheld)


def write_of(messages: list[BaseMessage], *, is_all: bool) -> PendingWrite:
    """Returns messages of others as a write to the channel."""
    return ADDED_TASK, MESSAGES, Overwrite(messages) if is_all else messages


def with_more(snapshot: Any, messages: list[BaseMessage], *, is_all: bool) -> Any:
    """Returns a snapshot followed by messages of others. A channel value of another kind stays as it is."""
    if not isinstance(snapshot.value, list):
        return snapshot
    return _DeltaSnapshot(messages if is_all else [*snapshot.value, *messages])


def is_nameless(row: Message) -> bool:
    """Whether a row holds a message that was written to a delta channel without an id, and got the id of its row."""
    return row.format == FORMAT and id_of(row) == row.id


def index_rebuilt_state(
    thread: Thread, rows: Iterable[Message], state: StateMessages, messages: Sequence[BaseMessage]
) -> None:
    """Makes the rows of a thread findable for the messages of a state that was rebuilt from a delta channel.

    An ordinary channel assigns an id to each message that the delta channel stored without one. Such a message is the
    first row that equals it except for the id.
    """
    thread.add(state.places())
    ids = {row.id for row in rows if is_nameless(row)}
    nameless = [place for place in state.places() if place.row_id in ids]
    for message in messages if nameless else ():
        if thread.find(message, (), ()) is not None:
            continue
        draft = draft_of(message)
        same = [place for place in nameless if draft is not None and _is_same(place, draft.version.message)]
        if draft is not None and same:
            nameless.remove(same[0])
            thread.add([HistoryPosition(draft.version, same[0].seq, same[0].row_id)])


def _is_same(place: HistoryPosition, message: BaseMessage) -> bool:
    return {**place.version.message.__dict__, "id": None} == {**message.__dict__, "id": None}
