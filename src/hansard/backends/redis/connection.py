"""One connection to one server, with shared round trips.

A call that finds the connection idle is sent at once. Calls that arrive during a round trip wait and are sent together
in the next one: so many callers cost one round trip and, on a server that syncs its log before it answers, one sync.
After a shared round trip, the first caller that was answered waits briefly for the others, which often call again.
Answers arrive in the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from hiredis import pack_command
from msgspec import Struct
from redis import exceptions
from redis.asyncio import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from hansard.backends.redis.errors import is_answer, translate
from hansard.backends.redis.options import Address, RedisOptions
from hansard.errors import HansardError, Outcome, Unavailable

Command = Sequence[Any]
_MAX_ROUND = 512
_IDLE = 1.0
"""Seconds after which a connection is tested before use: a server or a router may have dropped it."""


class CommandGroup(Struct, frozen=True):
    """Commands that are sent together, and whether they change anything."""

    commands: Sequence[Command]
    changes: bool


class _Waiting(Struct):
    call: CommandGroup
    future: asyncio.Future[list[Any]]


class RedisConnection:
    def __init__(
        self, connect: Callable[[], AbstractConnection], options: RedisOptions, where: str, *, writes: bool
    ) -> None:
        self._connect = connect
        self._timeout = options.timeout
        self._where = where
        self._wait = (options.wait_replicas, options.wait_timeout) if writes and options.wait_replicas else None
        self._connection: AbstractConnection | None = None
        self._busy = False
        self._shared = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._queue: list[_Waiting] = []
        self._used_at = 0.0
        self._task: asyncio.Task[None] | None = None

    async def call(self, *commands: Command, changes: bool = False) -> list[Any]:
        """Returns the answers, in order; a refusal of the server is returned as an exception object.

        A failure of the connection is raised, and says whether a change may have been applied.
        """
        call = CommandGroup(commands, changes)
        if self._busy or self._shared:
            future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._queue.append(_Waiting(call, future))
            if not self._busy:
                self._idle.clear()
                self._start_draining()
            return await future
        self._busy = True
        self._idle.clear()
        try:
            return _one(await self._round_trip([call]))
        finally:
            self._start_draining()

    def _start_draining(self) -> None:
        if self._queue:
            self._busy = True
            # In a separate task: the cancellation of one caller must not reach the others.
            self._task = asyncio.get_running_loop().create_task(self._drain())
        else:
            self._busy = False
            self._idle.set()

    async def _drain(self) -> None:
        waiting, self._queue = self._queue[:_MAX_ROUND], self._queue[_MAX_ROUND:]
        self._shared = len(waiting) > 1
        try:
            answers = await self._round_trip([each.call for each in waiting])
            for each, answer in zip(waiting, answers, strict=True):
                if each.future.done():
                    continue
                if isinstance(answer, HansardError):
                    each.future.set_exception(answer)
                else:
                    each.future.set_result(answer)
        except BaseException as error:
            for each in waiting:
                if not each.future.done():
                    each.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._start_draining()

    async def _round_trip(self, calls: list[CommandGroup]) -> list[list[Any] | HansardError]:
        """Makes one round trip: returns for each call its answers, or the failure of the connection."""
        commands = [command for call in calls for command in call.commands]
        wait = self._wait if any(call.changes for call in calls) else None
        if wait is not None:
            commands.append(("WAIT", *wait))
        answers, lost = await self._send(commands)
        if wait is not None:
            # Without the answer to WAIT it is unknown which replicas have the write.
            lost = lost or self._replica_shortage(answers.pop())
            answers = answers if lost is None else []
        results: list[list[Any] | HansardError] = []
        for call in calls:
            taken, answers = answers[: len(call.commands)], answers[len(call.commands) :]
            results.append(taken if lost is None or len(taken) == len(call.commands) else _error_for(lost, call))
        return results

    def _replica_shortage(self, replicas: Any) -> HansardError | None:
        if isinstance(replicas, Exception):
            return translate(replicas, self._where, outcome="unknown")
        assert self._wait is not None
        wanted, milliseconds = self._wait
        if replicas >= wanted:
            return None
        return Unavailable(
            f"{self._where} stored the write, but only {replicas} of {wanted} replicas confirmed in {milliseconds} ms",
            outcome="unknown",
        )

    async def _send(self, commands: list[Command]) -> tuple[list[Any], HansardError | None]:
        """Returns the answers that arrived, and the error that ended them early."""
        answers: list[Any] = []
        outcome: Outcome = "not_applied"
        try:
            async with asyncio.timeout(self._timeout):
                connection = await self._ready()
                packed = b"".join([pack_command(tuple(command)) for command in commands])
                outcome = "unknown"
                await connection.send_packed_command(packed, check_health=False)
                for _ in commands:
                    answers.append(await self._answer(connection))  # noqa: PERF401  (keeps the answers that arrived)
        except (exceptions.RedisError, OSError, TimeoutError) as error:
            await self.drop()
            if is_answer(error) and outcome == "unknown":
                # The error ends the connection, but it answers one command: only the later ones are in doubt.
                answers.append(error)
                return answers, Unavailable(f"{self._where} has ended the connection: {error}", outcome=outcome)
            lost = translate(error, self._where, outcome=outcome)
            lost.__cause__ = error
            return answers, lost
        except BaseException:
            # Cancelled: an answer is still in transit, so the connection cannot be used again.
            await self.drop()
            raise
        if any(isinstance(each, exceptions.ReadOnlyError) for each in answers):
            # The primary has become a replica. The new primary may have taken over its address as well.
            await self.drop()
        self._used_at = asyncio.get_running_loop().time()
        return answers, None

    @staticmethod
    async def _answer(connection: AbstractConnection) -> Any:
        try:
            return await connection.read_response()
        except exceptions.ResponseError as refused:
            return refused

    async def _ready(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None and asyncio.get_running_loop().time() - self._used_at > _IDLE:
            try:
                await connection.send_packed_command(pack_command(("PING",)), check_health=False)
                await connection.read_response()
            except (exceptions.RedisError, OSError):
                # Only a PING was sent: a new connection can replace this one.
                await self.drop()
                connection = None
        if connection is None:
            connection = self._connect()
            await connection.connect()  # type: ignore[no-untyped-call]
            self._connection = connection
        return connection

    async def drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Closes the connection after all pending calls are answered."""
        await self._idle.wait()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect()


def _error_for(lost: HansardError, call: CommandGroup) -> HansardError:
    """Returns the error for one call: a call that changes nothing was not applied."""
    if not isinstance(lost, Unavailable):
        return lost
    outcome: Outcome = lost.outcome if call.changes else "not_applied"
    error = type(lost)(str(lost), retryable=lost.retryable, outcome=outcome)
    error.__cause__ = lost.__cause__
    return error


def _one(results: list[list[Any] | HansardError]) -> list[Any]:
    (result,) = results
    if isinstance(result, HansardError):
        raise result
    return result


def connector(options: RedisOptions, address: Address | None) -> Callable[[], AbstractConnection]:
    """Returns a factory of connections, without the driver's retries: it cannot know what is safe to repeat."""
    common: dict[str, Any] = {
        "db": options.db,
        "username": options.username,
        "password": options.password,
        "socket_timeout": None,
        "socket_connect_timeout": options.timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }
    if address is None:
        return lambda: UnixDomainSocketConnection(path=options.socket or "", **common)
    host, port = address
    if options.tls is not None:
        tls = options.tls
        return lambda: SSLConnection(host=host, port=port, **common, **tls)
    return lambda: Connection(host=host, port=port, **common)
