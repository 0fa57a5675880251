"""Copies of messages that stand in the history already, in what a graph writes beside it.

A node may give back the whole list that it was given, and a channel may hold messages of another one. What is stored of
them refers to the history, as the messages themselves do: so it does not grow with the thread, and what is deleted
there is gone from it. A copy is known by the id of its message, which serializers write beside the text.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

from msgspec import structs

from hansard.adapters.langgraph.messages import texts_in
from hansard.adapters.langgraph.records import Saved, TaskWrites, Write
from hansard.adapters.langgraph.rows import Rows
from hansard.adapters.langgraph.texts import Blob, Texts
from hansard.adapters.langgraph.threads import Thread

_ID = re.compile(rb'\xa2id(?:[\xa1-\xbf]|\xd9[\x20-\xff])|"id": ?"([^"\\]+)"', re.DOTALL)
"""A field of the name `id` that holds a text: the head of it in msgpack, or all of it in JSON."""


class Copies:
    """Cuts messages of a thread out of values."""

    def __init__(self, rows: Rows, thread: Thread, new: Container[str] = ()) -> None:
        self._rows = rows
        self._thread = thread
        self._new = new
        """Ids of messages that are new: what was folded had their texts cut out before."""

    async def cut(self, blob: Blob, known: Container[str] = ()) -> Blob:
        places = self._thread.named({id for id in _ids(blob) if id not in known})
        if not places:
            return blob
        rows = {place.seq: place.row_id for place in places}
        stored = await self._rows.texts(self._thread.branch, rows)
        # What is gone from the history by now is cut out too. It is blank when it is read: there is no such row.
        gone = [(place.seq, texts_in(place.mould.given)) for place in places if place.seq not in stored]
        texts = [(text, seq, at) for seq, each in (*stored.items(), *gone) for at, text in enumerate(each)]
        return Texts({text: (seq, rows[seq], at) for text, seq, at in texts}).cut(blob)

    async def cut_values(self, values: dict[str, Blob]) -> dict[str, Blob]:
        return {name: await self.cut(blob) for name, blob in values.items()}

    async def cut_task(self, task: TaskWrites, known: Container[str] = ()) -> TaskWrites:
        writes = [Write(write.idx, write.channel, await self.cut(write.blob, known)) for write in task.writes]
        return TaskWrites(task.task_path, task.task_id, tuple(writes))

    async def cut_folded(self, saved: Saved) -> Saved:
        values = {name: await self.cut(blob, self._new) for name, blob in saved.values.items()}
        tasks = [await self.cut_task(task, self._new) for task in saved.tasks]
        return structs.replace(saved, values=values, tasks=tuple(tasks))


def _ids(blob: Blob) -> Iterator[str]:
    for piece in blob.pieces:
        if isinstance(piece, bytes):
            for head in _ID.finditer(piece):
                first, last = head.span(1) if head[1] else _text_at(piece, head)
                yield piece[first:last].decode(errors="replace")


def _text_at(piece: bytes, head: re.Match[bytes]) -> tuple[int, int]:
    at = head.end()
    size = piece[at - 1]
    return at, at + (size if piece[at - 2] == 0xD9 else size - 0xA0)
