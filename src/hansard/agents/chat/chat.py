"""`Chat`: a model with memory. Each message loads the history, assembles a prompt, calls the model, and records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from hansard import ids, rules
from hansard.agents import delivery
from hansard.agents.capture.streaming_message import Pace, StreamingMessage, all_ended
from hansard.agents.capture.trace import current_trace_id
from hansard.agents.chat import tools as tooling
from hansard.agents.chat.fallback_store import Stores, Synced
from hansard.agents.chat.models import Answer, Model
from hansard.agents.chat.tools import Tool
from hansard.assembly.explanation import Prompt
from hansard.assembly.summaries import Summarizer
from hansard.errors import ConversationNotFound, Unavailable, ValidationError
from hansard.model import Conversation, Message, Messages, Page, Participant
from hansard.search import Hits
from hansard.search import tool as search_tool
from hansard.shown import shown
from hansard.store import Store, checks


class Chat:
    """A chat with a model over a store: `await Chat(store, model, conversation_id="c1").send("Hello")`."""

    def __init__(
        self,
        store: Store,
        model: Model,
        *,
        conversation_id: str | int | None = None,
        user_id: str | int | None = None,
        participant: Participant | Mapping[str, Any] | None = None,
        agent_id: str | None = None,
        agent_name: str | None = None,
        system: str | None = None,
        tools: Sequence[Any] = (),
        search: bool = True,
        fallback: Store | None = None,
        token_budget: int = 8000,
        summarizer: Summarizer | None = None,
        assembly: Mapping[str, Any] | None = None,
        max_rounds: int = 8,
        interval: float = 0.5,
        lease: float = 30.0,
    ) -> None:
        for each in (store, fallback):
            _check_store(each)
        _check_model(model)
        limits = store.limits
        self.model = model
        self.conversation_id = checks.optional_id(conversation_id, "conversation_id", limits) or ids.conversation_id()
        self.prompt: Prompt | None = None
        """The last prompt, with its explanation."""
        self.last: Message | None = None
        """The last answer, as it is stored."""
        self._stores = Stores(store, fallback)
        self._user_id = checks.optional_id(user_id, "user_id", limits)
        self._participant = participant
        self._agent_id = agent_id
        self._agent = None if agent_id is None else Participant("agent", agent_id, display_name=agent_name)
        self._tools = tooling.tools_of(tools)
        self._searches = search and all(tool.name != search_tool.NAME for tool in self._tools)
        self._assembly = {
            "agent_id": agent_id,
            "agent_name": agent_name,
            "system": system,
            "token_budget": checks.count(token_budget, "token_budget"),
            "summarizer": summarizer,
            **(assembly or {}),
        }
        self._max_rounds = checks.count(max_rounds, "max_rounds", least=0)
        self._pace = Pace(interval=interval, lease=lease)
        self._turn = asyncio.Lock()

    # The store

    @property
    def store(self) -> Store:
        """Where the chat is recorded. It can be set at any time, and is used from the next message on."""
        return self._stores.primary

    @store.setter
    def store(self, store: Store) -> None:
        self._stores.use(store)

    @property
    def is_away(self) -> bool:
        """The store does not answer, and the chat continues in the fallback."""
        return self._stores.is_away

    async def sync(self) -> Synced:
        """Moves the messages in the fallback to the store, and continues there. This also happens automatically."""
        return await self._stores.sync()

    # Messages

    async def send(self, text: Any, *, message_id: str | None = None, edit: str | None = None) -> Message:
        """Sends a message and returns the answer as it is stored. With `edit`, it replaces that earlier message."""
        async with self._turn:
            await self._record_user_message(text, message_id, edit)
            async with contextlib.aclosing(self._answer(streaming=False)) as pieces:
                async for _ in pieces:
                    pass
            assert self.last is not None
            return self.last

    async def stream(
        self, text: Any, *, message_id: str | None = None, edit: str | None = None
    ) -> AsyncGenerator[str, None]:
        """The same, piece by piece; `chat.last` is then the answer. It is stored while it comes."""
        async with self._turn:
            await self._record_user_message(text, message_id, edit)
            async with contextlib.aclosing(self._answer(streaming=True)) as pieces:
                async for piece in pieces:
                    yield piece

    async def regenerate(self) -> Message:
        """Returns another answer to the last message, on a new branch; or the first answer, if there was none."""
        async with self._turn:
            newest = await self._stores.recorded_in.get_messages(self.conversation_id, turns=1)
            if not newest:
                raise ConversationNotFound(f"conversation {self.conversation_id!r} has no message to answer")
            if len(newest) > 1:
                await self._stores.recorded_in.branch(self.conversation_id, at=newest[0].id)
                self._stores.discard_recent()
            async with contextlib.aclosing(self._answer(streaming=False)) as pieces:
                async for _ in pieces:
                    pass
            assert self.last is not None
            return self.last

    async def _record_user_message(self, text: Any, message_id: str | None, edit: str | None) -> None:
        await self._stores.come_back()
        if edit is not None:
            await self._stores.recorded_in.branch(self.conversation_id, before=edit)
            self._stores.discard_recent()
        message = Message(
            "user",
            text,
            id=message_id or ids.message_id(),
            participant=self._participant,  # type: ignore[arg-type]  # a mapping is converted by the store
            trace_id=current_trace_id(),
        )
        await self._record(message)

    async def _record(self, message: Message) -> Message:
        return await self._stores.append(self.conversation_id, message, user_id=self._user_id, agent_id=self._agent_id)

    async def _answer(self, *, streaming: bool) -> AsyncGenerator[str, None]:
        """Calls the model, runs the tools that it calls, and calls it again, until it has answered."""
        for number in range(self._max_rounds + 1):
            usable = self._usable() if number < self._max_rounds else []
            prompt = await self._assembled(usable)
            round = _Round(self, self.model.stream(prompt, usable), prompt.prompt_id, streaming=streaming)
            async with contextlib.aclosing(round.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
            assert round.answer is not None
            if not round.answer.calls:
                return
            await self._run_tools(round.answer, usable)

    async def _assembled(self, usable: Sequence[Tool]) -> Prompt:
        definitions = [tool.openai() for tool in usable]
        # The model determines the format; the other options in `assembly` are passed on.
        options = {**self._assembly, "format": self.model.format, "tools": definitions}
        self.prompt = await self._stores.run_in_store(
            self.conversation_id, lambda store: store.assemble_prompt(self.conversation_id, **options)
        )
        return self.prompt

    def _usable(self) -> list[Tool]:
        if not self._searches:
            return self._tools
        search: Tool = self._stores.current.search_tool(self.conversation_id)
        return [*self._tools, search]

    async def _run_tools(self, answer: Answer, usable: Sequence[Tool]) -> None:
        by_name = {tool.name: tool for tool in usable}
        for call in answer.calls:
            output, is_error = await tooling.run_tool(by_name, call.name, call.arguments)
            result = {"type": "tool_result", "id": call.id, "name": call.name, "output": output, "is_error": is_error}
            await self._record(Message("tool", [result], format="parts"))

    # Conversations

    def new(self, conversation_id: str | int | None = None) -> str:
        """Starts another conversation, which is created with its first message, and returns its id."""
        given = checks.optional_id(conversation_id, "conversation_id", self.store.limits)
        self.conversation_id = given or ids.conversation_id()
        self._stores.discard_recent()
        self.prompt = self.last = None
        return self.conversation_id

    async def switch(self, conversation_id: str | int) -> Conversation:
        """Continues in another conversation, which must exist. `Unavailable` if only a store that is away knows it."""
        id = checks.id_of(conversation_id, "conversation_id", self.store.limits)
        conversation = await self._stores.read(
            self.conversation_id, lambda store: store.get_conversation(id), sought=id
        )
        if conversation is None:
            raise rules.not_found(id)
        self.new(id)
        return conversation

    async def resume(self) -> Conversation | None:
        """Continues in the newest conversation of this user and agent; None if there is none."""
        page = await self.conversations(limit=1)
        return await self.switch(page.items[0].id) if page.items else None

    async def conversations(self, *, limit: int = 20, after: str | None = None) -> Page:
        """Returns the conversations of this user and agent, newest first.

        While the store is away, returns those in the fallback; `Unavailable` if there are none.
        """
        await self._stores.come_back()
        page = await self._stores.run_in_store(
            self.conversation_id,
            lambda store: store.list_conversations(
                user_id=self._user_id, agent_id=self._agent_id, limit=limit, after=after
            ),
        )
        if self.is_away and not page.items:
            raise Unavailable("the store is away, and none of its conversations is in the fallback")
        return page

    async def history(self, last: int = 50) -> Messages:
        """Returns the newest messages, oldest first."""
        return await self._stores.read(
            self.conversation_id, lambda store: store.get_messages(self.conversation_id, last=last)
        )

    async def search(self, query: str, *, limit: int = 10) -> Hits:
        """Searches this conversation."""
        return await self._stores.read(
            self.conversation_id,
            lambda store: store.search(query, conversation_id=self.conversation_id, match="auto", limit=limit),
        )

    def why(self) -> str:
        """Returns what the last prompt held, and why; a line for each message."""
        return "no prompt was made yet" if self.prompt is None else self.prompt.explain()

    async def close(self) -> None:
        """Waits for answers that are still being completed. The store stays open."""
        await all_ended()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Round:
    """One answer of the model: passed on as it comes, and recorded."""

    def __init__(
        self, chat: Chat, answering: AsyncIterator[str | Answer], prompt_id: str | None, *, streaming: bool
    ) -> None:
        self.answer: Answer | None = None
        self._chat = chat
        self._answering = answering
        self._streaming = streaming
        self._is_stored = False
        message = Message(
            "assistant",
            "",
            id=ids.message_id(),
            participant=chat._agent,
            trace_id=current_trace_id(),
            prompt_id=prompt_id,
        )
        self._recording = StreamingMessage(self._put, message, chat._pace)

    async def pieces(self) -> AsyncGenerator[str, None]:
        try:
            async for piece in self._answering:
                if isinstance(piece, Answer):
                    self.answer = piece
                elif piece:
                    if self._streaming:
                        self._recording.add(piece)
                    yield piece
            if self.answer is None:
                raise ValidationError(f"model {self._chat.model.name!r} ended without an Answer")
        except BaseException as error:
            if self._recording.has_begun:
                name = None if isinstance(error, GeneratorExit) else {"error": type(error).__name__}
                await self._recording.end("interrupted", metadata=name)
            raise
        await self._finish(self.answer)

    async def _finish(self, answer: Answer) -> None:
        await self._recording.end(
            answer.status,
            content=answer.content,
            format=answer.format,
            usage=answer.usage,
            metadata={"finish": answer.finish} if answer.finish else None,
        )

    async def _put(self, message: Message) -> None:
        chat = self._chat
        if not self._is_stored:
            chat.last = await chat._record(message)
            self._is_stored = True
            if (chat.last.status, chat.last.content) == (message.status, message.content):
                return
            # An earlier attempt stored it, and only its reply was lost.

        async def update(store: Store) -> Message:
            return await delivery.complete(store, chat.conversation_id, message)

        chat.last = await chat._stores.run_in_store(chat.conversation_id, update)
        chat._stores.remember(chat.last)


def _check_model(model: object) -> None:
    if not all(hasattr(model, name) for name in ("name", "format", "stream")):
        raise ValidationError(
            f"a chat needs a model, such as OpenAIModel('gpt-5') or model_named('openai:gpt-5'), not {shown(model)}"
        )


def _check_store(store: object) -> None:
    if store is not None and not isinstance(store, Store):
        kind = f"{type(store).__module__}.{type(store).__name__}"
        raise ValidationError(f"a chat needs a hansard.Store, as hansard.connect returns it, not a {kind}")
