"""`tail`: the messages of all conversations, as they arrive."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context, require_store
from hansard.cli.transcript import TranscriptPrinter

if TYPE_CHECKING:
    from hansard.model import Conversation, Message
    from hansard.store import Store

_PAUSE = 0.5
_MOST_REMEMBERED = 10_000
_PAGE = 100


def tail(
    *,
    agent: Annotated[str | None, Parameter(help="Only conversations of this agent.")] = None,
    context: Context,
) -> None:
    """Show the messages of all conversations as they arrive.

    From any process, until Ctrl-C. A message appears when it is complete. With --json, one message per line.
    """
    require_store(context.url)
    asyncio.run(_tail(agent, context))


async def _tail(agent: str | None, context: Context) -> None:
    from hansard import connect

    async with connect(context.url) as store:
        view = store if context.tenant is None else store.tenant(context.tenant)
        view = view if context.user is None else view.user(context.user)
        transcripts: OrderedDict[str, TranscriptPrinter] = OrderedDict()
        shown = ""
        followed = _Tail(view, agent)
        output.print_note("waiting for messages; Ctrl-C ends")
        async for message in followed.messages():
            id = message.conversation_id or ""
            if context.json:
                output.print_json(message)
                continue
            if id != shown:
                output.print_line(f"\n── {id} ──")
                shown = id
            transcripts.setdefault(id, TranscriptPrinter()).print(message)
            transcripts.move_to_end(id)
            if len(transcripts) > _MOST_REMEMBERED:
                transcripts.popitem(last=False)


class _Tail:
    """Follows the conversations of a view by their last change."""

    def __init__(self, store: Store, agent: str | None) -> None:
        self._store = store
        self._agent = agent
        self._start = datetime.now(UTC)
        self._places: OrderedDict[str, str] = OrderedDict()
        """The cursor of the newest message shown, by conversation."""
        self._versions: OrderedDict[str, int] = OrderedDict()
        self._growing: dict[str, Conversation] = {}
        """Conversations that wait for a message in progress."""

    async def messages(self) -> AsyncIterator[Message]:
        since = self._start
        while True:
            changed = await self._changed(since)
            for conversation in [*self._growing.values(), *reversed(changed)]:
                async for message in self._new_messages(conversation):
                    yield message
            if changed:
                # Changes of the same instant may still arrive: the versions tell which were seen.
                since = changed[0].updated_at - timedelta(seconds=1)
            await asyncio.sleep(_PAUSE)

    async def _changed(self, since: datetime) -> list[Conversation]:
        """Returns the conversations that changed since then, newest first."""
        found: list[Conversation] = []
        after = None
        while True:
            page = await self._store.list_conversations(
                agent_id=self._agent, archived=None, sort="updated_at", limit=_PAGE, after=after
            )
            for conversation in page.items:
                if conversation.updated_at < since:
                    return found
                if self._versions.get(conversation.id) != conversation.version:
                    found.append(conversation)
            after = page.next_cursor
            if after is None:
                return found

    async def _new_messages(self, conversation: Conversation) -> AsyncIterator[Message]:
        id = conversation.id
        place = self._places.get(id)
        since = self._start if place is None and conversation.created_at < self._start else None
        self._growing.pop(id, None)
        async for message in self._store.iter_messages(id, after=place, since=since, blobs="refs"):
            if message.status == "in_progress":
                self._growing[id] = conversation
                break
            self._places[id] = message.cursor
            yield message
        self._versions[id] = conversation.version
        for remembered in (self._places, self._versions):
            if len(remembered) > _MOST_REMEMBERED:
                remembered.popitem(last=False)
