"""`Capture` records an agent without the agent's knowledge."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec import structs

from hansard import codec, ids
from hansard.agents.capture import fields, streaming_message, turns
from hansard.agents.capture.outbox import Counts, Outbox
from hansard.agents.capture.spool import Spool, SpooledMessage
from hansard.agents.capture.stream_reader import Listener
from hansard.agents.capture.streaming_message import Pace
from hansard.agents.capture.trace import current_trace_id
from hansard.agents.capture.turns import Blocked, Inbound, ReadChunk, ReadInbound, ReadReply, Reply
from hansard.assembly import prompt_ids
from hansard.assembly.prompt_ids import PromptNote
from hansard.model import Message, Participant
from hansard.store import Store, checks

Agent = Callable[..., Any]


class Capture:
    """Records agents: `agent = Capture(store, agent_id="helper")(agent)`.

    The inbound message is stored before the agent runs, its reply afterwards. Failures of the store never break the
    agent: they are logged, counted in `counts` and, with a `spool`, the messages are written to disk and stored later.
    """

    def __init__(
        self,
        store: Store,
        *,
        agent_id: str | None = None,
        agent_name: str | None = None,
        conversation_id: str | int | None = None,
        user_id: str | int | None = None,
        inbound: ReadInbound | None = None,
        reply: ReadReply = turns.reply_of,
        chunk: ReadChunk | None = None,
        blocked: type[BaseException] | tuple[type[BaseException], ...] = Blocked,
        interval: float = 0.5,
        lease: float = 30.0,
        idle: float = 600.0,
        timeout: float = 5.0,
        spool: Spool | str | os.PathLike[str] | None = None,
    ) -> None:
        self.store = store
        self.agent_id = agent_id
        self._participant = None if agent_id is None else Participant("agent", agent_id, display_name=agent_name)
        self._conversation_id = conversation_id
        self._user_id = user_id
        self._inbound = inbound
        self._reply = reply
        self._chunk = chunk
        self._blocked = blocked
        self._pace = Pace(interval=interval, lease=lease, idle=idle)
        folder = spool if isinstance(spool, Spool) or spool is None else Spool(spool)
        self._outbox = Outbox(store, timeout=checks.seconds(timeout, "timeout"), spool=folder)

    @property
    def counts(self) -> Counts:
        """The outcomes of the messages so far."""
        return self._outbox.counts

    # Wrapping

    def __call__(self, agent: Agent) -> Agent:
        return self.wrap(agent)

    def wrap(self, agent: Agent, *, stream: bool | None = None) -> Agent:
        """Returns the agent, recorded. It is called as before, and also accepts `conversation_id` and other facts.

        An async generator stays one. `stream=True` makes one of a plain function that returns a stream.
        """
        takes = turns.parameters_of(agent)
        is_stream = _is_generator(agent) if stream is None else stream
        if is_stream:

            @functools.wraps(agent)
            async def streaming(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                inbound, kwargs = self._read(args, kwargs, takes)
                turn = await self._start_turn(inbound)
                note = _note_of(turn)
                result = await _run(note, agent, args, kwargs)
                async with contextlib.aclosing(self._record_stream(turn, result, note)) as chunks:  # type: ignore[type-var]
                    async for chunk in chunks:
                        yield chunk

            return streaming

        @functools.wraps(agent)
        async def answering(*args: Any, **kwargs: Any) -> Any:
            inbound, kwargs = self._read(args, kwargs, takes)
            turn = await self._start_turn(inbound)
            note = _note_of(turn)
            result = await _run(note, agent, args, kwargs)
            if turn is None:
                return result
            if hasattr(type(result), "__aiter__"):
                return Stream(result, self._record_stream(turn, result, note))
            await self._answer(_with_prompt(turn, note), result)
            return result

        return answering

    def _read(
        self, args: Sequence[Any], kwargs: dict[str, Any], takes: frozenset[str] | None
    ) -> tuple[Inbound | None, dict[str, Any]]:
        """Returns the inbound message of a call, and the arguments for the agent itself."""
        if self._inbound is not None:
            return self._understood(self._inbound, *args, **kwargs), kwargs
        facts = {"conversation_id": self._conversation_id, "user_id": self._user_id}
        facts |= {name: kwargs[name] for name in turns.FACTS if name in kwargs}
        if takes is not None:
            kwargs = {name: value for name, value in kwargs.items() if name in takes or name not in turns.FACTS}
        given = args or tuple(value for name, value in kwargs.items() if name not in turns.FACTS)
        return self._understood(turns.inbound_of, given, facts), kwargs

    def _understood(self, read: ReadInbound, *args: Any, **kwargs: Any) -> Inbound | None:
        try:
            found: Any = read(*args, **kwargs)
            if found is None or isinstance(found, Inbound):
                return found
            raise TypeError(f"inbound returned a {type(found).__name__}, not an Inbound")
        except Exception as error:
            # An unreadable message must not make the agent fail.
            self._outbox.log_failure("the inbound message cannot be read", error)
            return None

    # A turn

    async def _start_turn(self, inbound: Inbound | None) -> SpooledMessage | None:
        """Records the inbound message, and prepares the reply. None if this turn is not recorded."""
        if inbound is None:
            self.counts.skipped += 1
            return None
        given = inbound.id
        id = ids.message_id() if given is None else turns.id_text(given)
        entry = SpooledMessage(
            conversation_id=turns.id_text(inbound.conversation_id),
            message=fields.readable(turns.as_message(inbound, id), self.store.limits),
            user_id=None if inbound.user_id is None else turns.id_text(inbound.user_id),
            agent_id=self.agent_id,
            branch=inbound.branch,
        )
        await self._outbox.append(entry)
        reply = Message(
            "assistant",
            "",
            id=ids.message_id() if given is None else "reply_" + codec.digest(repr(id), repr(self.agent_id))[:40],
            participant=self._participant,
            scope=entry.message.scope,
            trace_id=current_trace_id(),
        )
        return structs.replace(entry, message=reply)

    async def _answer(self, turn: SpooledMessage, result: Any) -> None:
        reply = self._read_reply(result)
        if reply is not None:
            message = fields.readable(turns.with_reply(turn.message, reply), self.store.limits)
            await self._outbox.append(structs.replace(turn, message=message))

    def _read_reply(self, result: Any) -> Reply | None:
        try:
            found: Any = self._reply(result)
        except Exception as error:
            self._outbox.log_failure("the reply reader failed", error)
            return turns.plain_reply(result)
        return found if found is None or isinstance(found, Reply) else turns.plain_reply(found)

    async def _record_stream(
        self, turn: SpooledMessage | None, result: Any, note: PromptNote | None
    ) -> AsyncIterator[Any]:
        """Yields the pieces of a reply as they come, and records them."""
        if not hasattr(type(result), "__aiter__"):
            # It is not a stream.
            if turn is not None:
                await self._answer(_with_prompt(turn, note), result)
            yield result
            return
        listener: Listener | None = None
        try:
            async with contextlib.aclosing(_noted(result, note)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    if turn is not None and listener is None:
                        # The prompt is assembled before the first chunk comes.
                        begun = _with_prompt(turn, note)
                        listener = Listener(self._outbox, begun, self._pace, self._chunk, self._reply)
                    if listener is not None:
                        listener.add_chunk(chunk)
                    yield chunk
        except BaseException as error:
            if listener is not None:
                await listener.end("blocked" if isinstance(error, self._blocked) else "interrupted", error)
            raise
        else:
            if listener is not None:
                await listener.end("complete")
        finally:
            close = getattr(result, "aclose", None) or getattr(result, "close", None)
            if close is not None and inspect.isawaitable(closing := close()):
                await closing

    # The spool, and closing

    async def replay(self) -> bool:
        """Stores the messages in the spool now. Returns whether it is empty; without a spool it always is."""
        return await self._outbox.replay()

    async def close(self) -> None:
        """Waits for messages that are being completed, and releases the spool. The store stays open."""
        await streaming_message.all_ended()
        await self._outbox.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _note_of(turn: SpooledMessage | None) -> PromptNote | None:
    return None if turn is None else PromptNote(str(turn.conversation_id))


def _with_prompt(turn: SpooledMessage, note: PromptNote | None) -> SpooledMessage:
    """Returns the turn with the prompt that the agent assembled for it, if it did."""
    if note is None or note.prompt is None:
        return turn
    return structs.replace(turn, message=structs.replace(turn.message, prompt_id=note.prompt.prompt_id))


async def _run(note: PromptNote | None, agent: Agent, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    with prompt_ids.noting(note):
        result = agent(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result


async def _noted(stream: Any, note: PromptNote | None) -> AsyncIterator[Any]:
    """Yields the chunks of a stream, and notes the prompt that is assembled while it runs."""
    chunks = aiter(stream)
    while True:
        with prompt_ids.noting(note):
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
        yield chunk


class Stream:
    """A recorded stream of a provider's SDK: its chunks pass through the capture, everything else is the stream's."""

    def __init__(self, inner: Any, chunks: AsyncIterator[Any]) -> None:
        self._inner = inner
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._chunks

    async def __anext__(self) -> Any:
        return await anext(self._chunks)

    async def aclose(self) -> None:
        await self._chunks.aclose()  # type: ignore[attr-defined]

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _is_generator(agent: Agent) -> bool:
    while isinstance(agent, functools.partial):
        agent = agent.func
    called = agent if inspect.isroutine(agent) else getattr(agent, "__call__", agent)  # noqa: B004
    return inspect.isasyncgenfunction(called)
