"""How a checkpoint is stored in a record.

A checkpoint is one record, keyed by its id, in the namespace of its thread. It holds the channel values that are new in
it; for an unchanged value, it names the checkpoint that holds it. Until a checkpoint is superseded, each task's writes
are in a record of their own; when the next checkpoint is put they are folded into the checkpoint's record. By then the
messages in them are in the history, so they refer to it: see `references`.

The value of a record is a sign byte, the number of its form (see `forms`), and compressed MessagePack. Only `migration`
reads records of the first form.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hansard.adapters.langgraph.forms import FORM, SIGN, WRITES, form_of
from hansard.adapters.langgraph.references import SerializedValue
from hansard.errors import Corrupt, FormatMismatch
from hansard.model import Record

T = TypeVar("T")


class TaskWrite(Struct, frozen=True, array_like=True):
    idx: int
    channel: str
    blob: SerializedValue


class TaskWrites(Struct, frozen=True, array_like=True):
    task_path: str
    task_id: str
    writes: tuple[TaskWrite, ...]


class Saved(Struct, frozen=True, array_like=True):
    """A checkpoint. Its `messages` are runs of the history, each from a first to a last seq, if they are shared."""

    parent: str | None
    body: dict[str, Any]
    metadata: SerializedValue
    values: dict[str, SerializedValue] = {}
    homes: dict[str, str] = {}
    """Channels whose value is stored in the record of another checkpoint."""
    tasks: tuple[TaskWrites, ...] = ()
    runs: tuple[tuple[int, int], ...] | None = None
    branch: str | None = None
    tail: int = 0
    """The newest seq that the graph knew of."""
    unseen: tuple[int, ...] = ()
    """Seqs up to `tail` that others wrote meanwhile: the newest checkpoint includes them."""
    added: tuple[tuple[int, int], ...] = ()
    """Runs that others wrote between its parent and it, if its messages are a delta channel: see `delta`."""
    replaces_messages: bool = False
    """Whether these replace the messages of its parent."""


UNREADABLE = (zlib.error, msgspec.DecodeError, UnicodeDecodeError, TypeError)
"""The errors of reading bytes that are not a checkpoint."""
_encode = msgspec.msgpack.Encoder().encode
_SAVED = msgspec.msgpack.Decoder(Saved)
_TASK = msgspec.msgpack.Decoder(TaskWrites)

_USUAL = (
    b"1f1e0f0e-a697-67b2-84e7-fbdba8dadaff\xa1v\x04\xa2ts\xd9 2026-11-15T12:34:35.847863+00:00"
    b"\xb0channel_versions\x83\xa9__start__\xcd\xa8messages\xcd\xafbranch:to:model\xcd\xadversions_seen\x83"
    b"\xa9__input__\x80\xa9__start__\x81\xa9__start__\xcd\xa5model\x81\xafbranch:to:model\xcd\xa5agent\xa5tools"
    b"\xb0updated_channels\x92\xafbranch:to:agent\xafbranch:to:tools\xa8messages\x92\xa7msgpack\x91\xc4"
    b"\x83\xa6source\xa5input\xa6source\xa4loop\xa4step\xcd\xa7parents\x80\xa4null\x91\xc4\x00"
    b"\xb9~__pregel_pull, __start__\xd9$572653a4-eb9e-106e-8fbb-a3e7e627ab6c\xb5~__pregel_pull, model"
    b"\x81\xa8messages\x91\xc8\x02\xa0\x05\x94\xbdlangchain_core.messages.tool\xabToolMessage\xactool_call_id"
    b"\xa4args\xa4name\xa2id\xa4type\xa9tool_call\xa6status\xa7success\xa8artifact\xc0\xaatool_calls\x91"
    b"\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xda\x01\xf4\xd9$msg_01a1df33c95f11a5f5dc1553"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$"
    b"\xb3model_validate_json\xa4main\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xda\x01\xf4"
    b"\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id\xd9$"
    b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
)
"""Text that occurs in every checkpoint. It is part of the format: records are compressed against it."""


def pack(value: Saved | TaskWrites) -> bytes:
    """Returns a record's value for a checkpoint or writes."""
    packer = zlib.compressobj(level=1, wbits=-15, memLevel=6, zdict=_USUAL)
    return SIGN + bytes([FORM]) + packer.compress(_encode(value)) + packer.flush()


def unpack(value: bytes) -> bytes:
    return inflate(value[2:])


def inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=-15, zdict=_USUAL)
    return unpacker.decompress(data) + unpacker.flush()


def read_saved(record: Record) -> Saved:
    return _read(_SAVED, record)


def read_task(record: Record) -> TaskWrites:
    return _read(_TASK, record)


def _read(decoder: msgspec.msgpack.Decoder[T], record: Record) -> T:
    where = f"record {record.key!r} of {record.namespace!r}"
    form = form_of(record)
    if form not in (None, FORM):
        older, newer = ("an older", "run `hansard upgrade`"), ("a newer", "install that version")
        version, remedy = older if form == 1 else newer
        message = f"{where} is a checkpoint of {version} version of Hansard: {remedy}"
        raise FormatMismatch(message, found=str(form), wanted=str(FORM))
    try:
        return decoder.decode(unpack(record.value))
    except UNREADABLE as error:
        raise Corrupt(f"{where} is not a checkpoint of this version of Hansard: {error}", where=where) from error


def namespace(kind: str, thread_id: str, checkpoint_ns: str) -> tuple[str, ...]:
    """Returns the namespace of a thread's records; those of subgraphs are below their graph's."""
    return (kind, thread_id, *(checkpoint_ns.split("|") if checkpoint_ns else ()))


def checkpoint_ns(names: Sequence[str]) -> str:
    return "|".join(names[2:])


# Writes


def merged(first: Iterable[TaskWrite], second: Iterable[TaskWrite]) -> tuple[TaskWrite, ...]:
    """Merges writes of one task that were given twice: the first stays, except for special ones (negative indexes)."""
    found = {write.idx: write for write in first}
    for write in second:
        if write.idx < 0 or write.idx not in found:
            found[write.idx] = write
    return tuple(found[idx] for idx in sorted(found))


def all_tasks(folded: Sequence[TaskWrites], separate: Iterable[TaskWrites]) -> list[TaskWrites]:
    """Returns every task's writes, in the order in which a run applies them."""
    tasks = {task.task_id: task for task in folded}
    for task in separate:
        before = tasks.get(task.task_id)
        writes = merged(before.writes, task.writes) if before else task.writes
        tasks[task.task_id] = TaskWrites(before.task_path if before else task.task_path, task.task_id, writes)
    return sorted(tasks.values(), key=lambda task: (task.task_path, task.task_id))


def folded(saved: Saved, separate: Iterable[TaskWrites], change: Callable[[SerializedValue], SerializedValue]) -> Saved:
    """Returns a superseded checkpoint that includes its writes, with every blob changed."""
    return msgspec.structs.replace(
        saved,
        values={name: change(blob) for name, blob in saved.values.items()},
        tasks=tuple(changed(task, change) for task in all_tasks(saved.tasks, separate)),
    )


def changed(task: TaskWrites, change: Callable[[SerializedValue], SerializedValue]) -> TaskWrites:
    """Returns the writes of a task with every blob changed."""
    writes = tuple(TaskWrite(write.idx, write.channel, change(write.blob)) for write in task.writes)
    return TaskWrites(task.task_path, task.task_id, writes)


def rewritten(record: Record, change: Callable[[SerializedValue], SerializedValue]) -> bytes | None:
    """Returns the value of a record of a checkpoint or of writes with every blob changed; None if it stays the same."""
    before: Saved | TaskWrites
    after: Saved | TaskWrites
    if record.namespace[0] == WRITES:
        before = read_task(record)
        after = changed(before, change)
    else:
        before = read_saved(record)
        after = folded(before, (), change)
    return pack(after) if after != before else None
