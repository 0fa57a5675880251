"""A backend that calls a server. Every method is one request, as `wire` derives it; the server decides.

A read is repeated if the connection breaks. Of the writes only an append is: all its messages have ids, and the same id
is stored once. Any other write whose answer was lost raises `Unavailable` with the outcome `unknown`.
"""

from __future__ import annotations

import asyncio
import functools
import random
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct, structs

from hansard import wire
from hansard.backends.http.errors import NOT_SENT, error_of, mapped
from hansard.contract.backend import Backend, Capabilities, Index
from hansard.contract.types import Append, Context
from hansard.errors import Closed, Outcome, TimedOut, Unavailable, Unsupported
from hansard.model import NOT_YET, Problem, Stats

_ATTEMPTS = 3
_PAUSE = 0.1
# Not the global generator, which is the application's: it may be seeded alike in all processes.
_random = random.SystemRandom()
_MARGIN = 10.0
_JSON = {"Content-Type": "application/json"}
_CHECKED = msgspec.json.Decoder(wire.CheckLine)
_DONE = msgspec.json.Decoder(int)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@functools.cache
def _trust() -> ssl.SSLContext:
    """Cached: reading the system's certificates takes longer than most tests."""
    return httpx.create_ssl_context()


def asking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Returns a method of the contract that calls the server."""
    name = method.__name__

    @functools.wraps(method)
    async def ask(self: HttpBackend, *args: P.args, **kwargs: P.kwargs) -> R:
        call = _call(name, *args, **kwargs)
        return cast(R, await self._ask(name, call, getattr(call, "context", None)))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", ask)


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
        """Asks the server for the capabilities of its storage."""
        with mapped(writes=False):
            answer = await self._client.get("/about")
        if answer.status_code != 200:
            raise error_of(answer, writes=False)
        try:
            found = msgspec.json.decode(answer.content, type=_About).capabilities
        except msgspec.MsgspecError as error:
            raise Unavailable("this is not a Hansard server, or it has another version", retryable=False) from error
        # If the storage has no index for a search, the server scans the messages: they need not be sent here.
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
            pieces=True,
        )

    async def close(self) -> None:
        self._is_closed = True
        await self._client.aclose()

    # Requests

    async def _ask(self, name: str, call: Struct, context: Context | None, *, timeout: float | None = None) -> Any:
        """Makes one call of the contract."""
        method = wire.METHODS[name]
        writes = method.need != "read"
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with mapped(writes=writes):
                    answer = await self._post(name, context, call, timeout)
            except Unavailable as error:
                if attempt == _ATTEMPTS or not _may_repeat(name, error):
                    raise
                call = _repeated(call)
                await asyncio.sleep(_PAUSE * attempt * _random.uniform(0.5, 1.5))
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
        """Makes a call that answers with lines, without a time limit."""
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

    create_conversation = asking(Backend.create_conversation)
    get_conversation = asking(Backend.get_conversation)
    list_conversations = asking(Backend.list_conversations)
    update_conversation = asking(Backend.update_conversation)
    delete_conversation = asking(Backend.delete_conversation)

    append = asking(Backend.append)
    replace_messages = asking(Backend.replace_messages)
    get_messages = asking(Backend.get_messages)
    find_messages = asking(Backend.find_messages)
    update_message = asking(Backend.update_message)
    remove_messages = asking(Backend.remove_messages)

    create_branch = asking(Backend.create_branch)
    list_branches = asking(Backend.list_branches)
    delete_branch = asking(Backend.delete_branch)
    put_summary = asking(Backend.put_summary)
    list_summaries = asking(Backend.list_summaries)

    get_records = asking(Backend.get_records)
    write_records = asking(Backend.write_records)
    scan_records = asking(Backend.scan_records)
    put_blob = asking(Backend.put_blob)
    get_blobs = asking(Backend.get_blobs)

    read_image = asking(Backend.read_image)
    read_rows = asking(Backend.read_rows)
    restore = asking(Backend.restore)
    record_owners = asking(Backend.record_owners)

    participations = asking(Backend.participations)
    erase_user_data = asking(Backend.erase_user_data)
    sweep = asking(Backend.sweep)
    usage = asking(Backend.usage)
    list_tenants = asking(Backend.list_tenants)
    delete_tenant = asking(Backend.delete_tenant)
    search = asking(Index.search)
    rank = asking(Index.rank)

    async def stats(self, tenant: str | None) -> Stats:
        found: Stats = await self._ask("stats", _call("stats", tenant), _of_tenant(tenant))
        return structs.replace(found, backend=self.capabilities.name)

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        call = _call("wait", context, id, seen, timeout)
        mark: int = await self._ask("wait", call, context, timeout=timeout + _MARGIN)
        return mark

    async def backup(self, target: Path) -> None:
        raise Unsupported("back up a server where it runs, with hansard backup", capability="backup")

    # Calls that answer with lines, without a time limit

    def check(self, tenant: str | None) -> AsyncIterator[Problem | int]:
        return self._lines("check", _of_tenant(tenant), wire.CheckCall(tenant), _CHECKED)

    def reindex(self) -> AsyncIterator[int]:
        return self._lines("reindex", None, wire.IndexCall(), _DONE)

    async def catch_up(self) -> None:
        async for _ in self._lines("catch_up", None, wire.IndexCall(), _DONE):
            pass

    def bulk_load(self) -> AbstractContextManager[None]:
        return nullcontext()


def _call(name: str, *args: Any, **kwargs: Any) -> Struct:
    """Returns the call of a method, as it is sent."""
    packed = {key: wire.pack(value) for key, value in kwargs.items()}
    return wire.METHODS[name].arguments(*map(wire.pack, args), **packed)


def _of_tenant(tenant: str | None) -> Context | None:
    return None if tenant is None else Context(tenant, NOT_YET)


def _headers(context: Context | None) -> dict[str, str]:
    """Returns headers that name the caller, for the walls of the server, in addition to the context itself."""
    if context is None:
        return _JSON
    headers = {**_JSON, "Hansard-Tenant": quote(context.tenant, safe="")}
    if context.user is not None:
        headers["Hansard-User"] = quote(context.user, safe="")
    return headers


def _may_repeat(name: str, error: Unavailable) -> bool:
    """Returns whether a call may be sent again: if it was never sent, or if repeating it has no further effect."""
    if isinstance(error, TimedOut):
        return False
    was_sent = not isinstance(error.__cause__, NOT_SENT)
    return not was_sent or name == "append" or wire.METHODS[name].need == "read"


def _repeated(call: Struct) -> Struct:
    """Returns the call to send again: its messages may be stored by now, so their ids must be looked up."""
    append = getattr(call, "append", None)
    if not isinstance(append, Append):
        return call
    drafts = tuple([structs.replace(draft, given_id=True) for draft in append.drafts])
    return structs.replace(call, append=structs.replace(append, drafts=drafts))
