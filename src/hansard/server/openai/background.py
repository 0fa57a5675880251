"""Background responses: requested from the model endpoint by a task of this process, and tracked in their records.

The endpoint is asked for a stream, so that long answers do not time out. It is not sent `background`, so this works
with every endpoint. To cancel or delete a response, its record is changed first. The task notices that immediately in
this process, or when it renews its lease in another process, and closes its connection.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from anyio import CancelScope
from msgspec import structs

from hansard import ids
from hansard.errors import Conflict, HansardError, NotFound, RateLimited
from hansard.formats import openai_items
from hansard.model import Message
from hansard.server.openai import response_record
from hansard.server.openai.response_record import LEASE, ResponseRecord
from hansard.server.openai.upstream import events
from hansard.server.openai.wire_errors import WireError, invalid, wire_error
from hansard.server.openai.wire_request import WireRequest
from hansard.server.tail import Shutdown
from hansard.store import Store

LAST = ("response.completed", "response.incomplete", "response.failed", "error")
"""Events that end a stream."""
WITH_ANSWER = ("completed", "incomplete")
"""Statuses of responses that have an answer."""
_MOST = 100
_COME_BACK = 5
_RENEW = LEASE.total_seconds() / 6
_ECHOED: dict[str, Any] = {
    "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {}, "model": "",
    "parallel_tool_calls": True, "previous_response_id": None, "reasoning": None, "temperature": 1.0,
    "tool_choice": "auto", "tools": [], "top_p": 1.0,
}  # fmt: skip
"""Fields of the request that a response repeats, with their defaults."""
_LOG = logging.getLogger("hansard.server")

StoreAnswer = Callable[[dict[str, Any], int], Awaitable[object]]
"""Stores an answer. Takes the response and the revision of its record."""


class Background:
    """The background responses that this process is working on."""

    def __init__(self, shutdown: Shutdown) -> None:
        self.shutdown = shutdown
        self._running: dict[tuple[str, str | None, str], CancelScope] = {}

    async def start(
        self,
        request: WireRequest,
        body: dict[str, Any],
        given: list[Message],
        conversation_id: str | None,
        store_answer: StoreAnswer,
    ) -> str:
        """Starts a response and returns its id. `conversation_id` is None if there is no conversation yet."""
        if request.body.get("store") is False:
            raise invalid("A response in the background must be stored: 'store' cannot be false.", "store")
        if len(self._running) >= _MOST:
            raise RateLimited(f"this server works on {_MOST} responses at a time", retry_after=_COME_BACK)
        id = ids.new_id("resp_")
        items = [item for message in given for item in openai_items.items_of(message)]
        record = ResponseRecord(items=items).under_way(_queued(request.body, id))
        revision = await response_record.put(request.store, id, record, revision=0, conversation_id=conversation_id)
        run = BackgroundRun(request, id, record, revision, conversation_id, self.shutdown)
        place = _place(request.store, id)
        self._running[place] = run.scope
        task = asyncio.create_task(run.execute({**body, "stream": True}, store_answer))
        self.shutdown.tasks.add(task)
        task.add_done_callback(self.shutdown.tasks.discard)
        task.add_done_callback(lambda _: self._running.pop(place, None))
        return id

    def stop(self, store: Store, id: str) -> None:
        """Cancels a response, if this process is working on it."""
        if (scope := self._running.get(_place(store, id))) is not None:
            scope.cancel()


def _place(store: Store, id: str) -> tuple[str, str | None, str]:
    return store.tenant_id, store.user_id, id


def _queued(body: dict[str, Any], id: str) -> dict[str, Any]:
    """Returns the response before the endpoint has answered."""
    echoed = {name: usual if body.get(name) is None else body[name] for name, usual in _ECHOED.items()}
    known = {"id": id, "object": "response", "created_at": int(time.time()), "status": "queued", "background": True}
    return {**echoed, **known, "store": True, "error": None, "incomplete_details": None}


class BackgroundRun:
    """One response in progress."""

    def __init__(
        self,
        request: WireRequest,
        id: str,
        record: ResponseRecord,
        revision: int,
        conversation_id: str | None,
        shutdown: Shutdown,
    ) -> None:
        self.scope = CancelScope()
        self._request = request
        self._store = request.store
        self._id = id
        self._record = record
        self._revision = revision
        self._conversation_id = conversation_id
        self._shutdown = shutdown
        self._one_write = asyncio.Lock()

    async def execute(self, body: dict[str, Any], store_answer: StoreAnswer) -> None:
        keeping = asyncio.create_task(self._renew_lease_until_done())
        response: dict[str, Any] | None = None
        failure: Exception | None = None
        try:
            with self.scope:
                response = await self._ask_endpoint(body)
        except Exception as error:
            failure = error
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
        try:
            if response is not None and response.get("status") in WITH_ANSWER:
                await self._store_answer(response, store_answer)
            elif response is not None:
                await self._put(self._record.changed(_without_answer(response), lease_until=None))
            else:
                await self._put(self._record.ended("failed", _error_of(failure)))
        except Exception as error:
            _LOG.error("response %s cannot be recorded: %r", self._id, error)

    async def _ask_endpoint(self, body: dict[str, Any]) -> dict[str, Any]:
        """Asks the endpoint, and returns the final response."""
        begun = False
        async with self._request.services.upstream.ask("/responses", body) as answer:
            async for _, data in events(answer):
                if not isinstance(data, dict):
                    continue
                response = data.get("response")
                if not isinstance(response, dict):
                    if data.get("type") == "error":
                        raise WireError(502, str(data.get("message")), code="upstream", type="server_error")
                    continue
                response = {**response, "id": self._id, "background": True, "store": True}
                if data.get("type") in LAST:
                    return response
                if not begun:
                    begun = True
                    await self._put(self._record.under_way({**response, "status": "in_progress"}))
        raise WireError(502, "The model endpoint broke off.", code="upstream", type="server_error")

    async def _store_answer(self, response: dict[str, Any], store_answer: StoreAnswer) -> None:
        """Stores the answer. From here on, the response cannot be cancelled."""
        claim = {**self._record.envelope, "status": "in_progress"}
        if not await self._put(self._record.under_way(claim, is_claimed=True)):
            return
        try:
            await store_answer(response, self._revision)
        except Exception as error:
            await self._mark_failed(error)
            return
        await self._release(response)

    async def _release(self, response: dict[str, Any]) -> None:
        """Removes the lease from the record, after the answer was stored or there was nothing to store."""
        found = await response_record.find(self._store, self._id)
        if found is None:
            return  # it was deleted
        self._revision, self._conversation_id = found.revision, found.conversation_id
        record = self._record.changed(response) if found.record.last is None else found.record
        await self._put(structs.replace(record, lease_until=None, is_claimed=False))

    async def _mark_failed(self, error: Exception) -> None:
        """Marks the response as failed. Its record may already name messages that were not stored."""
        found = await response_record.find(self._store, self._id)
        if found is None:
            return  # it was deleted, with its conversation
        self._revision, self._conversation_id = found.revision, found.conversation_id
        await self._put(self._record.ended("failed", _error_of(error)))

    async def _renew_lease_until_done(self) -> None:
        """Renews the lease. Cancels the response when the server shuts down or the lease is lost."""
        stop = self._shutdown.watch()
        try:
            while self._record.is_leased:
                try:
                    await asyncio.wait_for(stop.wait(), _RENEW)
                    break
                except TimeoutError:
                    await self._renew_lease()
            self.scope.cancel()
        finally:
            self._shutdown.discard(stop)

    async def _renew_lease(self) -> None:
        try:
            await self._put(self._record.under_way(self._record.envelope))
        except HansardError as error:
            _LOG.warning("cannot renew the lease of response %s: %s", self._id, error)

    async def _put(self, record: ResponseRecord) -> bool:
        """Writes the record. Returns false, and cancels the response, if another process has changed it.

        The write is shielded from cancellation: otherwise the revision would be unknown.
        """
        return await asyncio.shield(asyncio.ensure_future(self._write(record)))

    async def _write(self, record: ResponseRecord) -> bool:
        async with self._one_write:
            try:
                self._revision = await response_record.put(
                    self._store, self._id, record, revision=self._revision, conversation_id=self._conversation_id
                )
            except (Conflict, NotFound):
                self.scope.cancel()
                return False
            self._record = record
            return True


def _without_answer(response: dict[str, Any]) -> dict[str, Any]:
    """Returns the response as failed: the endpoint sent no answer, whatever its status was."""
    error = response.get("error")
    if not isinstance(error, dict):
        error = {"code": "server_error", "message": "The model endpoint sent no answer."}
    return {**response, "status": "failed", "error": error}


def _error_of(failure: Exception | None) -> dict[str, Any]:
    """Returns why a response failed, with one of the error codes of the Responses API."""
    if failure is None:
        return response_record.ENDED
    error = wire_error(failure, is_trusted=False)
    if error.status >= 500:
        _LOG.warning("a response in the background failed: %r", failure)
    code = "rate_limit_exceeded" if error.status == 429 else "server_error" if error.status >= 500 else "invalid_prompt"
    return {"code": code, "message": str(error)}
