"""Records: documents outside the messages, with compare-and-swap, expiry and ordered scans."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, structs

from hansard import codec, cursors
from hansard.contract.types import RecordQuery, RecordWrite
from hansard.errors import ValidationError
from hansard.model import Order, Record, RecordPage
from hansard.shown import shown
from hansard.store import checks
from hansard.store.core import StorePart, View

Namespace = Sequence[str]
_CHUNK = 100


class Put(Struct, frozen=True):
    """A record to write in a batch."""

    namespace: Namespace
    key: str
    value: Any
    expected_revision: int | None = None
    expires_at: datetime | timedelta | None = None
    conversation_id: str | None = None


class Delete(Struct, frozen=True):
    """A record to delete in a batch."""

    namespace: Namespace
    key: str
    expected_revision: int | None = None


def checked_writes(records: Records, batch: Iterable[Put | Delete], now: datetime) -> list[RecordWrite]:
    return [records._write(item, now) for item in checks.items(batch, "batch", "Put and Delete")]


class Records(StorePart):
    """`store.records`. In a user's view these are the user's own records, which no other user sees."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        view.require(view.backend.capabilities.records, "records", "store records")

    async def get(self, namespace: Namespace, key: str) -> Record | None:
        """Returns the record at `namespace` and `key`, or None."""
        place = (self._namespace(namespace), self._key(key))
        return (await self._backend.get_records(self._view.context(), [place]))[0]

    async def get_many(self, keys: Iterable[tuple[Namespace, str]]) -> list[Record | None]:
        """Returns records in the order of `keys`, pairs of a namespace and a key; None for each that is missing."""
        places = [self._place(each) for each in checks.items(keys, "keys", "pairs of a namespace and a key")]
        return await self._backend.get_records(self._view.context(), places)

    async def put(
        self,
        namespace: Namespace,
        key: str,
        value: Any,
        *,
        expected_revision: int | None = None,
        expires_at: datetime | timedelta | None = None,
        conversation_id: str | int | None = None,
    ) -> Record:
        """Writes a record and returns it.

        - `namespace`, `key`: where to store it.
        - `value`: a JSON value or bytes.
        - `expected_revision`: 0 only creates the record, N only changes that revision; else `Conflict`.
        - `expires_at`: a time or an age after which the record ceases to exist.
        - `conversation_id`: the conversation that the record belongs to, and with which it is deleted.
        """
        owner = checks.optional_id(conversation_id, "conversation_id", self.limits)
        written = await self.write([Put(namespace, key, value, expected_revision, expires_at, owner)])
        assert written[0] is not None
        return written[0]

    async def delete(self, namespace: Namespace, key: str, *, expected_revision: int | None = None) -> bool:
        """Deletes the record at `namespace` and `key`; False if there was none.

        `expected_revision`: delete only this revision, else raise `Conflict`.
        """
        return (await self.write([Delete(namespace, key, expected_revision)]))[0] is not None

    async def write(self, batch: Iterable[Put | Delete]) -> list[Record | None]:
        """Applies `batch`, a list of `Put` and `Delete`, all or nothing.

        Returns each record as it is now stored or, if deleted, as it was; None for one that did not exist.
        """
        context = self._view.context()
        writes = checked_writes(self, batch, context.now)
        return await self._backend.write_records(context, writes) if writes else []

    def _write(self, item: Put | Delete, now: datetime) -> RecordWrite:
        if not isinstance(item, Put | Delete):
            raise ValidationError(f"a batch of records is made of Put and Delete, not of a {type(item).__name__}")
        namespace, key = self._namespace(item.namespace), self._key(item.key)
        expected = checks.optional_count(item.expected_revision, "expected_revision")
        if isinstance(item, Delete):
            return RecordWrite(namespace, key, delete=True, expected_revision=expected)
        return RecordWrite(
            namespace,
            key,
            self._value(item.value),
            expected_revision=expected,
            expires_at=checks.deadline(item.expires_at, now, "expires_at"),
            conversation_id=checks.optional_id(item.conversation_id, "conversation_id", self.limits),
        )

    async def scan(
        self,
        namespace: Namespace = (),
        *,
        key_prefix: str = "",
        exact: bool = False,
        after: str | None = None,
        order: Order = "asc",
        limit: int = 100,
    ) -> RecordPage:
        """Returns a page of records, ordered by namespace and key.

        - `namespace`: the namespace to read, with those below it.
        - `key_prefix`: only keys that begin with it.
        - `exact`: leave out the namespaces below.
        - `after`: a page's `next_cursor`.
        - `order`: `"asc"` or `"desc"`.
        - `limit`: the most records in the page.
        """
        checks.one_of(order, ("asc", "desc"), "order")
        query = RecordQuery(
            prefix=self._namespace(namespace, empty=True),
            key_prefix=checks.text(key_prefix, "key_prefix"),
            exact=checks.flag(exact, "exact"),
            newest_first=order == "desc",
            limit=checks.count(limit, "limit", 1000),
        )
        if after is not None:
            place = cursors.record_position(checks.text(after, "after"), query)
            query = structs.replace(query, after=place)
        found, more = await self._backend.scan_records(self._view.context(), query)
        return RecordPage(found, cursors.of_record(found[-1], query) if more else None)

    async def iter(
        self, namespace: Namespace = (), *, key_prefix: str = "", exact: bool = False, order: Order = "asc"
    ) -> AsyncIterator[Record]:
        """Iterates over every record of a scan, page by page.

        `namespace`, `key_prefix`, `exact` and `order` mean what they mean in `scan`.
        """
        cursor = None
        while True:
            page = await self.scan(
                namespace, key_prefix=key_prefix, exact=exact, after=cursor, order=order, limit=_CHUNK
            )
            for record in page.items:
                yield record
            cursor = page.next_cursor
            if cursor is None:
                return

    def _place(self, pair: object) -> tuple[tuple[str, ...], str]:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValidationError(f"keys must be pairs of a namespace and a key, not {shown(pair)}")
        namespace, key = pair
        return self._namespace(namespace), self._key(key)

    def _namespace(self, namespace: Namespace, *, empty: bool = False) -> tuple[str, ...]:
        parts = checks.texts(namespace, "namespace")
        if not parts and not empty:
            raise ValidationError("namespace is empty: give at least one element")
        for part in parts:
            checks.id_of(part, "an element of namespace", self.limits)
        return parts

    def _key(self, key: str) -> str:
        return checks.id_of(key, "key", self.limits)

    def _value(self, value: Any) -> Any:
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            checks.count(len(data), "the size of the value", self.limits.content_bytes, least=0)
            return data
        if isinstance(value, Mapping) and not isinstance(value, dict):
            value = dict(value)
        text, copy = codec.snapshot(value, "value", depth=self.limits.depth)
        checks.count(len(text), "the size of the value", self.limits.content_bytes, least=0)
        return copy
