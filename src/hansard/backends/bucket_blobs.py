"""Blobs in a bucket of S3-compatible storage, instead of in the storage itself.

A wrapper of any backend that stores blobs. An object is written before the message that refers to it: the storage then
holds `codec.IN_BUCKET` in place of the bytes, and counts references as always. So blobs are stored once for each
tenant, and what the storage drops is removed from the bucket as well.

- If the bucket is away, a write that needs it raises `Unavailable` and changes nothing; all else works.
- After a deletion, objects are removed. Where that fails, the receipt says that the bytes are not physically gone, and
  the next `purge` removes them. A bucket may keep versions of its own, so a receipt with blobs never says it.
- An object may be written again while it is removed: both sides look again afterwards, and restore it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

from msgspec import structs

from hansard import codec
from hansard.backends.bucket import Bucket
from hansard.contract.backend import Backend, Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationQuery,
    MessageChange,
    Remove,
    Removed,
    Replace,
    Restore,
    Swept,
)
from hansard.errors import Unavailable, Unsupported
from hansard.executor import run_in_thread
from hansard.model import Appended, Message, Problem, Receipt, to_micros

_LOG = logging.getLogger(__name__)
_GRACE = timedelta(hours=1)
"""Objects that are younger may belong to a write in progress."""
_AT_ONCE = 100
"""Blobs that are looked up together."""
_CONVERSATIONS = 100
_ROWS = 500
_ROWS_BYTES = 32 << 20

W = TypeVar("W", Append, Replace, MessageChange, Restore)


def bucket_blobs(inner: Backend, url: str) -> Backend:
    """Returns the backend with its blobs in a bucket."""
    capabilities = inner.capabilities
    if not capabilities.blobs or capabilities.name in ("none", "http") or capabilities.mirrors:
        raise Unsupported(f"{capabilities.name} keeps no blobs of its own: leave blobs out", capability="blobs")
    return cast(Backend, _BucketBlobs(inner, Bucket(url)))


def _folder(tenant: str) -> str:
    """Returns a tenant as a segment of a path, which `.` and `..` are not."""
    return tenant.replace(".", "%2E") if tenant in (".", "..") else quote(tenant, safe="")


def _name(tenant: str, sha256: str) -> str:
    return f"{_folder(tenant)}/{sha256}"


class _BucketBlobs:
    def __init__(self, inner: Backend, bucket: Bucket) -> None:
        self._inner = inner
        self._bucket = bucket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def capabilities(self) -> Capabilities:
        inner = self._inner.capabilities
        return structs.replace(inner, remnants="in versions of the bucket, or " + inner.remnants)

    # Writes that bring blobs

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        appended = await self._inner.append(context, id, await self._without_bytes(context, append))
        await self._make_sure(context, append.blobs)
        return appended

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        appended = await self._inner.replace_messages(context, id, await self._without_bytes(context, replace))
        await self._make_sure(context, replace.blobs)
        return appended

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        lean = await self._without_bytes(context, change)
        message = await self._inner.update_message(context, id, message_id, lean)
        await self._make_sure(context, change.blobs)
        return message

    async def restore(self, context: Context, restore: Restore) -> int:
        seq = await self._inner.restore(context, await self._without_bytes(context, restore))
        await self._make_sure(context, restore.blobs)
        return seq

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await self._put(context, {sha256: data})
        await self._inner.put_blob(context, sha256, codec.IN_BUCKET, keep_until)
        await self._make_sure(context, {sha256: data})

    async def _without_bytes(self, context: Context, write: W) -> W:
        if not write.blobs:
            return write
        await self._put(context, write.blobs)
        return structs.replace(write, blobs=dict.fromkeys(write.blobs, codec.IN_BUCKET))

    async def _put(self, context: Context, blobs: Mapping[str, bytes]) -> None:
        def put() -> None:
            for sha256, data in blobs.items():
                name = _name(context.tenant, sha256)
                if not self._bucket.has(name):
                    self._bucket.put(name, data)

        try:
            await run_in_thread(put)
        except Unavailable as error:
            raise Unavailable(f"{error}; nothing was stored", outcome="not_applied") from error

    async def _make_sure(self, context: Context, blobs: Mapping[str, bytes]) -> None:
        """Writes again what a deletion removed between our two steps."""
        if not blobs:
            return
        try:
            await self._put(context, blobs)
        except Unavailable as error:
            raise Unavailable(str(error.__cause__), outcome="unknown") from error

    # Reads

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._with_bytes(context, await self._inner.get_blobs(context, digests))

    async def _with_bytes(self, context: Context, found: Mapping[str, bytes]) -> dict[str, bytes]:
        elsewhere = [sha256 for sha256, data in found.items() if data == codec.IN_BUCKET]

        def get() -> dict[str, bytes]:
            read = {sha256: self._bucket.get(_name(context.tenant, sha256)) for sha256 in elsewhere}
            return {sha256: data for sha256, data in read.items() if data is not None}

        here = {sha256: data for sha256, data in found.items() if data != codec.IN_BUCKET}
        return here | await run_in_thread(get) if elsewhere else here

    # Deletions

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        removed = await self._inner.remove_messages(context, id, remove)
        # Read before the objects are removed: the caller gets the message as it was.
        blobs = await self._with_bytes(context, removed.blobs) if removed.blobs else removed.blobs
        candidates = {ref.sha256 for message in removed.messages for ref in message.blobs}
        receipt = await self._after(context, removed.receipt, candidates or None)
        return structs.replace(removed, receipt=receipt, blobs=blobs)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        return await self._after(context, await self._inner.delete_conversation(context, id, expected_version))

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        return await self._after(context, await self._inner.delete_branch(context, id, branch, expected_version))

    async def delete_tenant(self, context: Context) -> Receipt:
        return await self._after(context, await self._inner.delete_tenant(context))

    async def sweep(self, context: Context, limit: int) -> Swept:
        swept = await self._inner.sweep(context, limit)
        if swept.more and not swept.receipt.blobs:
            return swept
        return structs.replace(swept, receipt=await self._cleaned(swept.receipt, self._remove_unused()))

    async def _after(self, context: Context, receipt: Receipt, candidates: Iterable[str] | None = None) -> Receipt:
        """Removes the objects that a deletion has made unnecessary: among the candidates, else of the whole tenant."""
        if not receipt.blobs:
            return receipt
        if candidates is None:
            return await self._cleaned(receipt, self._remove_unused(context.tenant))
        return await self._cleaned(receipt, self._remove(context, [*candidates]))

    async def _cleaned(self, receipt: Receipt, cleaning: Awaitable[None]) -> Receipt:
        try:
            await cleaning
        except Unavailable as error:
            _LOG.warning("deleted blobs are still in the bucket; the next purge removes them: %s", error)
        return structs.replace(receipt, physically_gone=False) if receipt.blobs else receipt

    async def _remove_unused(self, tenant: str | None = None) -> None:
        """Removes objects that no message refers to: of one tenant after a deletion, else old ones of all."""
        prefix = None if tenant is None else _folder(tenant) + "/"
        before = datetime.now(UTC) - (_GRACE if tenant is None else timedelta())
        listed = await run_in_thread(lambda: [name for name, at in self._bucket.list(prefix) if at <= before])
        by_tenant: dict[str, list[str]] = {}
        for name in listed:
            owner, slash, sha256 = name.partition("/")
            # The objects of deeper folders are not ours: another store may have a longer prefix.
            if slash and len(sha256) == len(codec.sha256_of(b"")) and "/" not in sha256:
                by_tenant.setdefault(unquote(owner), []).append(sha256)
        for owner, digests in by_tenant.items():
            for at in range(0, len(digests), _AT_ONCE):
                await self._remove(Context(owner, datetime.now(UTC)), digests[at : at + _AT_ONCE])

    async def _remove(self, context: Context, digests: list[str]) -> None:
        """Removes the objects of those blobs that the storage no longer has."""
        stored = await self._inner.get_blobs(context, digests)
        gone = [sha256 for sha256 in digests if sha256 not in stored]
        if not gone:
            return

        def remove() -> dict[str, bytes]:
            removed = {}
            for sha256 in gone:
                name = _name(context.tenant, sha256)
                if (data := self._bucket.get(name)) is not None:
                    removed[sha256] = data
                    self._bucket.remove(name)
            return removed

        removed = await run_in_thread(remove)
        again = await self._inner.get_blobs(context, list(removed))
        await self._put(context, {sha256: removed[sha256] for sha256 in again})

    # Checks

    async def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        async for found in self._inner.check(tenant):
            yield found
        for owner in [tenant] if tenant is not None else await self._inner.list_tenants():
            async for problem in self._check_objects(Context(owner, datetime.now(UTC))):
                yield problem

    async def _check_objects(self, context: Context) -> AsyncIterator[Problem]:
        """Finds blobs that the storage says are in the bucket, and that are missing or damaged there."""
        async for id, digests in self._referred(context):
            stored = await self._inner.get_blobs(context, digests)
            for sha256 in [each for each, data in stored.items() if data == codec.IN_BUCKET]:
                where, object = f"{context.tenant}/{id}", f"the bucket {self._bucket.url}"
                data = (await self._with_bytes(context, {sha256: codec.IN_BUCKET})).get(sha256)
                if data is None:
                    yield Problem(where, f"blob {sha256} is missing in {object}")
                elif codec.sha256_of(data) != sha256:
                    yield Problem(where, f"blob {sha256} is damaged in {object}")

    async def _referred(self, context: Context) -> AsyncIterator[tuple[str, list[str]]]:
        """Yields conversations with the blobs that their messages refer to, a page of messages at a time."""
        place, more = None, True
        while more:
            query = ConversationQuery(
                archived=None, sort="updated_at", newest_first=False, above=place, limit=_CONVERSATIONS
            )
            found, more = await self._inner.list_conversations(context, query)
            for conversation in found:
                seq = 0
                while rows := await self._inner.read_rows(context, conversation.id, seq, _ROWS, _ROWS_BYTES):
                    seq = rows[-1].message.seq
                    if digests := {ref.sha256 for row in rows for ref in row.message.blobs}:
                        yield conversation.id, sorted(digests)
                place = to_micros(conversation.updated_at), conversation.id
