"""A backend that asks a server. Every method is one request; what it means is decided there.

A read is repeated when the connection breaks. Of the writes only an append is: all its messages have ids, and the same
id is stored once. Any other write whose answer got lost raises `Unavailable` with the outcome `unknown`.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct, structs

from hansard import wire
from hansard.analysis import Lookup, Matches
from hansard.backends.http.errors import NOT_SENT, error_of, mapped
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Image,
    MessageChange,
    MessageQuery,
    NewBranch,
    Participation,
    RecordQuery,
    RecordWrite,
    Remove,
    Removed,
    Replace,
    Restore,
    Row,
    Slice,
    Swept,
)
from hansard.errors import Closed, Outcome, TimedOut, Unavailable, Unsupported
from hansard.model import (
    NOT_YET,
    Appended,
    Branch,
    Conversation,
    Message,
    Problem,
    Receipt,
    Record,
    Stats,
    Summary,
    UsageRow,
)

_ATTEMPTS = 3
_PAUSE = 0.1
_MARGIN = 10.0
_JSON = {"Content-Type": "application/json"}
_CHECKED = msgspec.json.Decoder(wire.CheckLine)
_DONE = msgspec.json.Decoder(int)
T = TypeVar("T")


@cache
def _trust() -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than most tests."""
    return httpx.create_ssl_context()


class _About(Struct):
    capabilities: Capabilities


class HttpBackend:
    def __init__(self, address: str, *, key: str | None = None, timeout: float = 30) -> None:
        self._timeout = timeout
        self._client = httpx.AsyncClient(
            base_url=address + "/api/v1",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=timeout,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            verify=_trust(),
        )
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}
        self._is_closed = False
        self.capabilities = Capabilities(name="http", durability="none")

    async def open(self) -> None:
        """Asks the server what its storage can do."""
        with mapped(writes=False):
            answer = await self._client.get("/about")
        if answer.status_code != 200:
            raise error_of(answer, writes=False)
        try:
            found = msgspec.json.decode(answer.content, type=_About).capabilities
        except msgspec.MsgspecError as error:
            raise Unavailable("this is not a Hansard server, or one of another version", retryable=False) from error
        # Where the server's storage has no index, the server looks at each message: they need not come here for that.
        search = found.search if found.search == "none" else "index"
        self.capabilities = structs.replace(
            found,
            name="http",
            shared=True,
            backup=False,
            vacuum=False,
            blocking=False,
            groups=False,
            mirrors=False,
            search=search,
        )

    async def close(self) -> None:
        self._is_closed = True
        await self._client.aclose()

    # Asking

    async def _ask(self, name: str, context: Context | None, *arguments: Any, timeout: float | None = None) -> Any:
        """One call of the contract. `arguments` are those of the method, the context included."""
        method = wire.METHODS[name]
        call = method.arguments(*map(wire.pack, arguments))
        writes = method.need != "read"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with mapped(writes=writes):
                    answer = await self._post(name, context, call, timeout)
            except Unavailable as error:
                if attempt == _ATTEMPTS or not _may_repeat(name, error):
                    raise
                call = _repeated(call)
                await asyncio.sleep(_PAUSE * attempt * random.uniform(0.5, 1.5))
                continue
            if answer.status_code != 200:
                raise error_of(answer, writes=writes)
            return self._decoded(method, answer, writes=writes)
        raise AssertionError("the last attempt returns or raises")

    async def _post(self, name: str, context: Context | None, call: Struct, timeout: float | None) -> httpx.Response:
        if self._is_closed:
            raise Closed("the store is closed")
        patience = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout)
        return await self._client.post(
            f"/backend/{name}", content=msgspec.json.encode(call), headers=_headers(context), timeout=patience
        )

    def _decoded(self, method: wire.Method, answer: httpx.Response, *, writes: bool) -> Any:
        decoder = self._decoders.get(method.name)
        if decoder is None:
            decoder = self._decoders[method.name] = msgspec.json.Decoder(method.answer)
        try:
            return wire.unpack(decoder.decode(answer.content))
        except msgspec.MsgspecError as error:
            outcome: Outcome = "unknown" if writes else "not_applied"
            raise Unavailable(f"the answer cannot be read: {error}", retryable=False, outcome=outcome) from error

    async def _lines(
        self, name: str, context: Context | None, call: Struct, decoder: msgspec.json.Decoder[T]
    ) -> AsyncIterator[T]:
        """A call that answers with lines, for as long as it takes."""
        if self._is_closed:
            raise Closed("the store is closed")
        with mapped(writes=False):
            async with self._client.stream(
                "POST",
                f"/backend/{name}",
                content=msgspec.json.encode(call),
                headers=_headers(context),
                timeout=httpx.Timeout(self._timeout, read=None),
            ) as answer:
                if answer.status_code != 200:
                    await answer.aread()
                    raise error_of(answer, writes=False)
                async for line in answer.aiter_lines():
                    yield decoder.decode(line)

    # Conversations

    async def create_conversation(self, context: Context, conversation: Conversation) -> Conversation:
        found: Conversation = await self._ask("create_conversation", context, context, conversation)
        return found

    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        found: Conversation | None = await self._ask("get_conversation", context, context, id)
        return found

    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        found: tuple[list[Conversation], bool] = await self._ask("list_conversations", context, context, query)
        return found

    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        found: Conversation = await self._ask("update_conversation", context, context, id, change)
        return found

    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        found: Receipt = await self._ask("delete_conversation", context, context, id, expected_version)
        return found

    # Messages

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        found: Appended = await self._ask("append", context, context, id, append)
        return found

    async def replace_messages(self, context: Context, id: str, replace: Replace) -> Appended:
        found: Appended = await self._ask("replace_messages", context, context, id, replace)
        return found

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        found: Slice = await self._ask("get_messages", context, context, id, query)
        return found

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        found: list[Message] = await self._ask("find_messages", context, context, id, message_ids)
        return found

    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        found: Message = await self._ask("update_message", context, context, id, message_id, change)
        return found

    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        found: Removed = await self._ask("remove_messages", context, context, id, remove)
        return found

    # Branches and summaries

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        found: Branch = await self._ask("create_branch", context, context, id, new)
        return found

    async def list_branches(self, context: Context, id: str) -> list[Branch]:
        found: list[Branch] = await self._ask("list_branches", context, context, id)
        return found

    async def delete_branch(self, context: Context, id: str, branch: str, expected_version: int | None) -> Receipt:
        found: Receipt = await self._ask("delete_branch", context, context, id, branch, expected_version)
        return found

    async def put_summary(self, context: Context, summary: Summary) -> None:
        await self._ask("put_summary", context, context, summary)

    async def list_summaries(self, context: Context, id: str, branch: str | None) -> list[Summary]:
        found: list[Summary] = await self._ask("list_summaries", context, context, id, branch)
        return found

    # Records and blobs

    async def get_records(self, context: Context, keys: Sequence[tuple[tuple[str, ...], str]]) -> list[Record | None]:
        found: list[Record | None] = await self._ask("get_records", context, context, keys)
        return found

    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        found: list[Record | None] = await self._ask("write_records", context, context, writes)
        return found

    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        found: tuple[list[Record], bool] = await self._ask("scan_records", context, context, query)
        return found

    async def put_blob(self, context: Context, sha256: str, data: bytes, keep_until: datetime) -> None:
        await self._ask("put_blob", context, context, sha256, data, keep_until)

    async def get_blobs(self, context: Context, digests: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = await self._ask("get_blobs", context, context, digests)
        return found

    # Searching

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        found: Matches = await self._ask("search", context, context, lookup)
        return found

    async def catch_up(self) -> None:
        async for _ in self._lines("catch_up", None, wire.IndexCall(), _DONE):
            pass

    def reindex(self) -> AsyncIterator[int]:
        return self._lines("reindex", None, wire.IndexCall(), _DONE)

    # Copying

    async def read_image(self, context: Context, id: str) -> Image | None:
        found: Image | None = await self._ask("read_image", context, context, id)
        return found

    async def read_rows(self, context: Context, id: str, after_seq: int, limit: int, max_bytes: int) -> list[Row]:
        found: list[Row] = await self._ask("read_rows", context, context, id, after_seq, limit, max_bytes)
        return found

    async def restore(self, context: Context, restore: Restore) -> int:
        found: int = await self._ask("restore", context, context, restore)
        return found

    async def record_owners(self, context: Context) -> list[str]:
        found: list[str] = await self._ask("record_owners", context, context)
        return found

    # Lifecycle

    async def participations(self, context: Context, participant_id: str, limit: int) -> list[Participation]:
        found: list[Participation] = await self._ask("participations", context, context, participant_id, limit)
        return found

    async def erase_user_data(self, context: Context, user_id: str) -> Receipt:
        found: Receipt = await self._ask("erase_user_data", context, context, user_id)
        return found

    async def sweep(self, context: Context, limit: int) -> Swept:
        found: Swept = await self._ask("sweep", context, context, limit)
        return found

    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        found: list[UsageRow] = await self._ask("usage", context, context, since, until)
        return found

    async def stats(self, tenant: str | None) -> Stats:
        found: Stats = await self._ask("stats", _of_tenant(tenant), tenant)
        return structs.replace(found, backend=self.capabilities.name)

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return self._lines("check", _of_tenant(tenant), wire.CheckCall(tenant), _CHECKED)

    async def list_tenants(self) -> list[str]:
        found: list[str] = await self._ask("list_tenants", None)
        return found

    async def delete_tenant(self, context: Context) -> Receipt:
        found: Receipt = await self._ask("delete_tenant", context, context)
        return found

    async def backup(self, target: Path) -> None:
        raise Unsupported("a server is backed up where it runs: hansard backup", capability="backup")

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        mark: int = await self._ask("wait", context, context, id, seen, timeout, timeout=timeout + _MARGIN)
        return mark


def _of_tenant(tenant: str | None) -> Context | None:
    return None if tenant is None else Context(tenant, NOT_YET)


def _headers(context: Context | None) -> dict[str, str]:
    """Who asks, beside the context itself: the walls of the server know headers."""
    if context is None:
        return _JSON
    headers = {**_JSON, "Hansard-Tenant": quote(context.tenant, safe="")}
    if context.user is not None:
        headers["Hansard-User"] = quote(context.user, safe="")
    return headers


def _may_repeat(name: str, error: Unavailable) -> bool:
    """What never left may be sent again; what may have been done, only if doing it twice is doing it once."""
    if isinstance(error, TimedOut):
        return False
    was_sent = not isinstance(error.__cause__, NOT_SENT)
    return not was_sent or name == "append" or wire.METHODS[name].need == "read"


def _repeated(call: Struct) -> Struct:
    """The call, to be sent again: its messages may be stored by now, so that their ids must be looked for."""
    append = getattr(call, "append", None)
    if not isinstance(append, Append):
        return call
    drafts = tuple([structs.replace(draft, given_id=True) for draft in append.drafts])
    return structs.replace(call, append=structs.replace(append, drafts=drafts))
