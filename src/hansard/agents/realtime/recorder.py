"""`Recorder` takes the events of a Realtime session and stores the conversation as it was heard.

Only events of the conversation count (`conversation.item.…`), so responses out of band are left out. An item's position
comes from `added`, its final form from `done`; transcripts come at any time; truncated words were not heard. Events may
be repeated, late, early or unknown: each takes effect once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

from hansard import formats
from hansard.agents.capture import sdk_replies
from hansard.agents.realtime.items import RealtimeItem, plain_event
from hansard.agents.realtime.session_items import RecorderSettings, SessionItems
from hansard.formats.openai_realtime import item_id
from hansard.model import Message, Participant
from hansard.store import Store, checks, drafts

logger = logging.getLogger("hansard.realtime")

_EARLY = 200
"""Events about items that have not come yet, held until they do."""


class RecorderCounts(Struct, kw_only=True):
    """The events of a recorder."""

    events: int = 0
    ignored: int = 0
    """Events that do not concern the conversation, or are of no known type."""
    malformed: int = 0
    """Values that are not events, or lack what their type needs."""
    errors: int = 0
    """`error` events."""
    failed: int = 0
    """Writes that the store did not accept; they are repeated."""
    refused: int = 0
    """Items that the store will never accept."""


class Recorder:
    """Records a session: `async for event in Recorder(store, "call-7").listen(connection): …`."""

    def __init__(
        self,
        store: Store,
        conversation_id: str | int,
        *,
        user_id: str | int | None = None,
        agent_id: str | None = None,
        participant: Participant | Mapping[str, Any] | None = None,
        agent: Participant | Mapping[str, Any] | None = None,
        create: bool = True,
        fresh: bool = False,
        keep_audio: bool = False,
        estimate: bool = False,
        interval: float = 0.5,
        lease: float = 60.0,
        timeout: float = 5.0,
    ) -> None:
        limits = store.limits
        self.conversation_id = checks.id_of(conversation_id, "conversation_id", limits)
        speaker = agent or (None if agent_id is None else Participant("agent", agent_id))
        self._store = store
        self._keep_audio = checks.flag(keep_audio, "keep_audio")
        self._estimate = checks.flag(estimate, "estimate")
        self._counts = RecorderCounts()
        self._model: str | None = None
        self._session_id: str | None = None
        self._early: list[tuple[str, dict[str, Any]]] = []
        self._deleted: set[str] = set()
        self._session_items = SessionItems(
            store,
            RecorderSettings(
                conversation_id=self.conversation_id,
                user_id=checks.optional_id(user_id, "user_id", limits),
                agent_id=checks.optional_id(agent_id, "agent_id", limits),
                who={
                    "user": None if participant is None else drafts.participant(participant),
                    "assistant": None if speaker is None else drafts.participant(speaker),
                },
                create=checks.flag(create, "create"),
                fresh=checks.flag(fresh, "fresh"),
                interval=checks.seconds(interval, "interval"),
                lease=checks.seconds(lease, "lease"),
                timeout=checks.seconds(timeout, "timeout"),
            ),
        )
        self._handlers = self._all_handlers()

    def _all_handlers(self) -> dict[str, Callable[[dict[str, Any]], None]]:
        return {
            "conversation.item.added": self._added,
            "conversation.item.created": self._added,
            "conversation.item.done": self._done,
            "conversation.item.deleted": self._on_item(self._delete),
            "conversation.item.truncated": self._on_item(self._truncated),
            "conversation.item.retrieved": self._retrieved,
            "conversation.item.input_audio_transcription.completed": self._on_item(self._transcribed),
            "conversation.item.input_audio_transcription.failed": self._on_item(self._untranscribed),
            "conversation.item.input_audio_transcription.delta": self._on_item(self._words),
            "response.output_audio_transcript.delta": self._on_item(self._words, early=False),
            "response.audio_transcript.delta": self._on_item(self._words, early=False),
            "response.output_text.delta": self._on_item(self._words, early=False),
            "response.text.delta": self._on_item(self._words, early=False),
            "response.output_audio.delta": self._on_item(self._audio, early=False),
            "response.audio.delta": self._on_item(self._audio, early=False),
            "response.done": self._response_done,
            "session.created": self._session,
            "session.updated": self._session,
            "error": self._error,
        }

    @property
    def counts(self) -> RecorderCounts:
        self._counts.failed = self._session_items.failed
        self._counts.refused = self._session_items.refused
        return self._counts

    # Events

    async def feed(self, event: Any) -> None:
        """Takes an event of the server: the SDK's object, a mapping, or JSON. Never fails."""
        self._counts.events += 1
        plain = plain_event(event)
        if plain is None:
            self._counts.malformed += 1
            return
        handler = self._handlers.get(plain["type"])
        if handler is None:
            self._counts.ignored += 1
            return
        if not self._session_items.is_loaded:
            # Items that an earlier recorder stored must be loaded before an event about them.
            await self._session_items.write()
        try:
            handler(plain)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as error:
            self._counts.malformed += 1
            logger.warning("a %s event lacks what it needs: %r", plain["type"], error)
            return
        await self._session_items.write()

    async def listen(self, connection: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Yields the events of a connection and records them. When it ends, unfinished items are interrupted."""
        try:
            async for event in connection:
                await self.feed(event)
                yield event
        finally:
            await self.close()

    @property
    def is_behind(self) -> bool:
        """Whether the store lacks something, because the last write failed."""
        return self._session_items.retry.is_behind

    async def flush(self) -> bool:
        """Writes what the store lacks, without waiting for another event. Returns whether it is up to date."""
        return await self._session_items.write()

    def is_earlier(self, id: str) -> bool:
        """Whether an id is that of a message from before this session, which the session does not know as an item."""
        return self._session_items.is_earlier(id)

    async def close(self) -> bool:
        """Ends the recording: items in progress become interrupted. Returns whether the store has everything."""
        for item in self._session_items.items.values():
            if item.is_ours and item.status == "in_progress":
                item.status = "interrupted"
                item.is_done = True
                self._session_items.mark(item)
        is_stored = await self._session_items.write(force=True)
        if not is_stored:
            logger.error("conversation %r lacks its last messages", self.conversation_id)
        return is_stored

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Restoring

    async def restore(
        self,
        connection: Any,
        *,
        messages: int | None = None,
        turns: int | None = None,
        tokens: int | None = None,
    ) -> int:
        """Replays the stored conversation into a new session, and returns the number of its items.

        `connection` is the SDK's, or anything with `send`. Replays the newest 100 messages, unless a window is given:
        see `Store.window`. The session's events about these items are then recognised.
        """
        size = {"messages": messages, "turns": turns, "tokens": tokens}
        window = await self._store.window(self.conversation_id, **(size if any(size.values()) else {"messages": 100}))
        shown = [message for message in window if message.status != "blocked"]
        items = formats.convert(shown, "openai.realtime")
        made = _items_of(shown, items)
        await self._session_items.load()
        self._session_items.start_session()
        self._session_id = None
        for item in items:
            # Before it is sent: its event may arrive before `send` returns.
            if message := made.get(item.get("id")):
                self._session_items.restored(item["id"], message)
            await connection.send({"type": "conversation.item.create", "item": item})
        return len(items)

    # Handlers of events

    def _on_item(
        self, act: Callable[[RealtimeItem, dict[str, Any]], None], *, early: bool = True
    ) -> Callable[[dict[str, Any]], None]:
        """Returns a handler for events about an item: an event that comes too early waits for its item."""

        def handle(event: dict[str, Any]) -> None:
            id = event["item_id"]
            item = self._session_items.items.get(id)
            if item is not None:
                act(item, event)
            elif early:
                self._wait(id, event)
            else:
                self._counts.ignored += 1

        return handle

    def _wait(self, id: Any, event: dict[str, Any]) -> None:
        """Holds an event for the item that it is about."""
        if isinstance(id, str) and id not in self._deleted:
            self._early = [*self._early[-_EARLY + 1 :], (id, event)]

    def _added(self, event: dict[str, Any]) -> None:
        self._upsert(event, final=False)

    def _done(self, event: dict[str, Any]) -> None:
        self._upsert(event, final=True)

    def _upsert(self, event: dict[str, Any], *, final: bool) -> None:
        native: dict[str, Any] = event["item"]
        id = native["id"]
        if not isinstance(id, str) or not id or id in self._deleted:
            return
        item = self._session_items.items.get(id)
        if item is None:
            item = RealtimeItem(id=id, message_id=id, native={})
            item.take(native, final=final, keep_audio=self._keep_audio)
            # None marks the first item; without the field, it is the last.
            self._session_items.add(item, event["previous_item_id"] or "root" if "previous_item_id" in event else None)
            self._catch_up(id)
        elif item.is_ours and not item.is_done:
            item.take(native, final=final, keep_audio=self._keep_audio)
            self._session_items.mark(item)

    def _catch_up(self, id: str) -> None:
        """Handles the events about an item that came before it."""
        waiting = [event for each, event in self._early if each == id]
        self._early = [(each, event) for each, event in self._early if each != id]
        for event in waiting:
            self._handlers[event["type"]](event)

    def _delete(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        self._deleted.add(item.id)
        self._session_items.remove(item)

    def _truncated(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        if item.is_ours:
            item.truncate(int(event.get("content_index", 0)), int(event["audio_end_ms"]), estimate=self._estimate)
            self._session_items.mark(item)

    def _retrieved(self, event: dict[str, Any]) -> None:
        """Takes the server's own version of an item: after a truncation, what is left of it."""
        native = event["item"]
        item = self._session_items.items.get(native["id"])
        if item is not None and item.is_ours:
            item.take(native, final=item.is_done, keep_audio=self._keep_audio, trusted=True)
            self._session_items.mark(item)

    def _transcribed(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        index = event.get("content_index", 0)
        part = item.part(index)
        if part is None or not isinstance(event["transcript"], str):
            raise ValueError(f"item {item.id} has no part {index}")
        part["transcript"] = event["transcript"]
        item.interim.pop(index, None)
        self._session_items.mark(item)

    def _untranscribed(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        error = event.get("error") or {}
        item.metadata = {**item.metadata, "transcription_error": error.get("message") or error.get("code") or "failed"}
        self._session_items.mark(item)

    def _words(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        index = event.get("content_index", 0)
        part = item.part(index)
        is_final = item.is_done and not event["type"].startswith("conversation.")
        if not is_final and not (part or {}).get("transcript") and isinstance(event.get("delta"), str):
            item.add_text(int(index), event["delta"])
            self._session_items.mark(item, urgent=False)

    def _audio(self, item: RealtimeItem, event: dict[str, Any]) -> None:
        item.add_audio(int(event.get("content_index", 0)), str(event["delta"]))

    def _response_done(self, event: dict[str, Any]) -> None:
        response = event["response"]
        known: list[RealtimeItem] = []
        for native in response.get("output") or ():
            item = self._session_items.items.get(native.get("id"))
            if item is None and response.get("conversation_id") is not None:
                self._wait(native.get("id"), event)
            elif item is not None and item.is_ours:
                known.append(item)
                if not item.is_done:
                    # Older sessions report only here how an item ended.
                    item.take(native, final=True, keep_audio=self._keep_audio)
        if not known:
            return
        usage = response.get("usage")
        if usage is not None and all(item.usage is None for item in known):
            known[-1].usage = sdk_replies.named(sdk_replies.usage_of(usage), self._model)
        reason = (response.get("status_details") or {}).get("reason")
        if response.get("status") in ("cancelled", "failed", "incomplete"):
            for item in known:
                if reason == "content_filter":
                    item.status = "blocked"
                elif item.status == "in_progress":
                    item.status = "interrupted"
        for item in known:
            self._session_items.mark(item)

    def _session(self, event: dict[str, Any]) -> None:
        session = event["session"]
        model, id = session.get("model"), session.get("id")
        self._model = model if isinstance(model, str) else self._model
        if self._session_id is not None and id != self._session_id:
            self._session_items.start_session()
        self._session_id = id or self._session_id

    def _error(self, event: dict[str, Any]) -> None:
        self._counts.errors += 1
        logger.warning("the session reports an error: %s", event.get("error"))


def _items_of(messages: Sequence[Message], items: Sequence[Mapping[str, Any]]) -> dict[Any, Message]:
    """Maps the ids of items to the messages that they were made from."""
    ids = {item.get("id") for item in items}
    made = {}
    for message in messages:
        number = 0
        while (id := item_id(message.id, number)) in ids:
            made[id] = message
            number += 1
    return made


async def restore(store: Store, conversation_id: str | int, connection: Any, **options: Any) -> Recorder:
    """Replays a stored conversation into a new session, and returns the recorder that continues from there."""
    recorder = Recorder(store, conversation_id, **options)
    await recorder.restore(connection)
    return recorder
