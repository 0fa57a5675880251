"""The reference on PostgreSQL: plain asyncpg, one INSERT per transaction, from its own pool.

It stores messages with their public id, unique within its conversation, and a row per conversation with an index for
listing. It has no counters (numbers come from memory), no other writers, checks, branches or tenants.
"""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from benchmarks.contenders.base import Reference
from benchmarks.samples import Sample

# By name, so that types are the same whether or not the package is installed.
asyncpg = importlib.import_module("asyncpg")

SCHEMA = """
CREATE SCHEMA {0};
CREATE TABLE {0}.conversation (
    name text PRIMARY KEY,
    user_id text,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_message_at bigint NOT NULL,
    message_count bigint NOT NULL,
    version bigint NOT NULL
);
CREATE INDEX ON {0}.conversation (user_id, last_message_at DESC, name DESC);
CREATE TABLE {0}.message (
    conversation text NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL,
    role text NOT NULL,
    format text NOT NULL,
    text text NOT NULL,
    created_at bigint NOT NULL,
    rest text,
    PRIMARY KEY (conversation, seq)
);
CREATE UNIQUE INDEX ON {0}.message (conversation, id);
"""
ADD_MESSAGE = "INSERT INTO {0}.message VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
ADD_MESSAGES = (
    "INSERT INTO {0}.message SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[],"
    " $6::text[], $7::bigint[], $8::text[])"
)
ADD_CONVERSATIONS = (
    "INSERT INTO {0}.conversation SELECT name, owner, $3, $3, $3, 1, 1 FROM unnest($1::text[], $2::text[])"
    " AS given (name, owner)"
)
LAST = (
    "SELECT seq, id, role, format, text, created_at, rest FROM {0}.message"
    " WHERE conversation = $1 ORDER BY seq DESC LIMIT $2"
)
NEWEST = (
    "SELECT name, user_id, created_at, updated_at, last_message_at, message_count, version FROM {0}.conversation"
    " WHERE user_id = $1 ORDER BY last_message_at DESC, name DESC LIMIT $2"
)
CONVERSATION_FIELDS = ("id", "user_id", "created_at", "updated_at", "last_message_at", "message_count", "version")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_numbers = itertools.count(int.from_bytes(os.urandom(8)))

Row = tuple[str, int, str, str, str, str, int, str]


def _as_dict(row: Sequence[Any]) -> dict[str, Any]:
    seq, id_, role, format_, text, created_at, rest = row
    return {
        "id": id_,
        "seq": seq,
        "role": role,
        "format": format_,
        "content": text,
        "created_at": created_at,
        **_decode(rest),
    }


class RawPostgres(Reference):
    key: ClassVar[str] = "raw"
    title: ClassVar[str] = "raw asyncpg"
    package: ClassVar[str] = "asyncpg"

    async def open(self) -> None:
        self._schema = f"raw_{self.path.parent.name}".lower()
        self._pool = await asyncpg.create_pool(self.url)
        await self._pool.execute(SCHEMA.format(self._schema))
        self._seqs: dict[str, int] = {}

    async def close(self) -> None:
        await self._pool.close()

    async def append(self, conversation: str, sample: Sample) -> None:
        await self._pool.execute(ADD_MESSAGE.format(self._schema), *self._row(conversation, sample))

    async def append_many(self, conversation: str, samples: Sequence[Sample]) -> None:
        await self.group([(conversation, sample) for sample in samples])

    async def last(self, conversation: str, count: int) -> list[dict[str, Any]]:
        rows = await self._pool.fetch(LAST.format(self._schema), conversation, count)
        return [_as_dict(row) for row in reversed(rows)]

    def texts(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        return [message["content"] for message in messages]

    async def start(self, owners: Mapping[str, str], sample: Sample) -> None:
        now = time.time_ns() // 1000
        await self._pool.execute(ADD_CONVERSATIONS.format(self._schema), list(owners), list(owners.values()), now)
        await self.group([(name, sample) for name in owners])

    async def newest(self, user_id: str, count: int) -> list[dict[str, Any]]:
        rows = await self._pool.fetch(NEWEST.format(self._schema), user_id, count)
        return [dict(zip(CONVERSATION_FIELDS, row, strict=True)) for row in rows]

    def names(self, conversations: Sequence[dict[str, Any]]) -> list[str]:
        return [conversation["id"] for conversation in conversations]

    async def group(self, appends: Sequence[tuple[str, Sample]]) -> None:
        rows = [self._row(conversation, sample) for conversation, sample in appends]
        await self._pool.execute(ADD_MESSAGES.format(self._schema), *map(list, zip(*rows, strict=True)))

    def _row(self, conversation: str, sample: Sample) -> Row:
        seq = self._seqs[conversation] = self._seqs.get(conversation, 0) + 1
        now = time.time_ns() // 1000
        id_ = f"msg_{now // 1000:012x}{next(_numbers):020x}"
        rest = _encode({"metadata": sample.metadata}).decode()
        return conversation, seq, id_, sample.role, "text", sample.text, now, rest
