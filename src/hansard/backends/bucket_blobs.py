"""Blobs in a bucket of S3-compatible storage, instead of in the storage itself.

A wrapper of any backend that stores blobs. An object is written before the message that refers to it: the storage then
holds `codec.IN_BUCKET` in place of the bytes, and counts references as always. So blobs are stored once for each
tenant, and what the storage drops is removed from the bucket as well.

- If the bucket is away, a write that needs it raises `Unavailable` and changes nothing; all else works.
- After a deletion, objects are removed. Where that fails, the receipt says that the bytes are not physically gone, and
  the next `purge` removes them. A bucket may keep versions of its own, so a receipt with blobs never says it.
- A blob may be stored again while its object is removed. So an object is first set aside, under a name that no other
  removal uses, and deleted only if the storage still has no such blob; else it is put back. A writer looks for its
  object again after the commit. If the process dies in between, reads find what was set aside, and the next `purge`
  puts it back.
"""

from __future__ import annotations

import logging
import secrets
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
_REMOVED = "removed"
_DIGEST_LENGTH = len(codec.sha256_of(b""))
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


def _aside(tenant: str, sha256: str) -> str:
    """Returns the folder for what removals of an object set aside."""
    return f"{_folder(tenant)}/{_REMOVED}/{sha256}"


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
            read = {sha256: self._get(context.tenant, sha256) for sha256 in elsewhere}
            return {sha256: data for sha256, data in read.items() if data is not None}

        here = {sha256: data for sha256, data in found.items() if data != codec.IN_BUCKET}
        return here | await run_in_thread(get) if elsewhere else here

    def _get(self, tenant: str, sha256: str) -> bytes | None:
        """Returns an object, or what a removal that has not ended has set aside."""
        data = self._bucket.get(_name(tenant, sha256))
        if data is None:
            for name, _ in self._bucket.list(_aside(tenant, sha256)):
                data = data or self._bucket.get(name)
        return data

    # Deletions

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        removed = await self._inner.remove_messages(context, id, remove)
        # Read before the objects are removed: the caller gets the message as it was.
        blobs = await self._with_bytes(context, removed.blobs) if removed.blobs else removed.blobs
        candidates = {ref.sha256 for message in removed.messages for ref in message.blobs}
        receipt = await self._after(context, removed.receipt, candidates or None)
        return structs.replace(removed, receipt=receipt, blobs=blobs)

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        candidates = await self._candidates(context, id)
        receipt = await self._inner.delete_conversation(context, id, expected_version)
        return await self._after(context, receipt, candidates)

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        candidates = await self._candidates(context, id)
        receipt = await self._inner.delete_branch(context, id, branch, expected_version)
        return await self._after(context, receipt, candidates)

    async def _candidates(self, context: Context, id: str) -> set[str]:
        """Returns the blobs of a conversation, so that its deletion need not list the objects of the tenant."""
        if await self._inner.get_conversation(context, id) is None:
            return set()
        return {sha256 async for digests in self._referred_by(context, id) for sha256 in digests}

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
        listed = await run_in_thread(lambda: [*self._bucket.list(prefix)])
        by_tenant: dict[str, list[str]] = {}
        for name, at in listed:
            # The objects of other folders are not ours: another store may have a longer prefix.
            match name.split("/"):
                case [owner, sha256] if len(sha256) == _DIGEST_LENGTH and at <= before:
                    by_tenant.setdefault(unquote(owner), []).append(sha256)
                case [owner, folder, sha256, _] if (
                    folder == _REMOVED and len(sha256) == _DIGEST_LENGTH and at <= datetime.now(UTC) - _GRACE
                ):
                    await self._end_removal(Context(unquote(owner), datetime.now(UTC)), {sha256: name})
        for owner, digests in by_tenant.items():
            for start in range(0, len(digests), _AT_ONCE):
                await self._remove(Context(owner, datetime.now(UTC)), digests[start : start + _AT_ONCE])

    async def _remove(self, context: Context, digests: list[str]) -> None:
        """Removes the objects of those blobs that the storage no longer has."""
        stored = await self._inner.get_blobs(context, digests)
        gone = [sha256 for sha256 in digests if sha256 not in stored]

        def set_aside() -> dict[str, str]:
            names = {sha256: f"{_aside(context.tenant, sha256)}/{secrets.token_hex(8)}" for sha256 in gone}
            for sha256, name in list(names.items()):
                if self._bucket.copy(_name(context.tenant, sha256), name):
                    self._bucket.remove(_name(context.tenant, sha256))
                else:
                    del names[sha256]
            return names

        if gone:
            await self._end_removal(context, await run_in_thread(set_aside))

    async def _end_removal(self, context: Context, aside: Mapping[str, str]) -> None:
        """Deletes what was set aside, or puts it back if the storage has that blob again."""
        stored = await self._inner.get_blobs(context, [*aside])

        def end() -> None:
            for sha256, name in aside.items():
                if sha256 in stored:
                    self._bucket.copy(name, _name(context.tenant, sha256))
                self._bucket.remove(name)

        await run_in_thread(end)

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
                async for digests in self._referred_by(context, conversation.id):
                    yield conversation.id, digests
                place = to_micros(conversation.updated_at), conversation.id

    async def _referred_by(self, context: Context, id: str) -> AsyncIterator[list[str]]:
        seq = 0
        while rows := await self._inner.read_rows(context, id, seq, _ROWS, _ROWS_BYTES):
            seq = rows[-1].message.seq
            if digests := {ref.sha256 for row in rows for ref in row.message.blobs}:
                yield sorted(digests)
