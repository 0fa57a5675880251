"""Automatic titles for conversations, from the first message that a user writes in them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from hansard.cache import Cache
from hansard.contract.types import Append, Context, ConversationChange, MessageQuery
from hansard.errors import Conflict, Denied, NotFound
from hansard.model import Appended, Message
from hansard.store import checks

if TYPE_CHECKING:
    from hansard.contract.backend import Backend
    from hansard.store.core import Titler

_TITLE_LENGTH = 60
_MOST_REMEMBERED = 10_000
_TRIES = 5


class TitleWriter:
    """Writes titles, and remembers which conversations need none, so that these cost no further read."""

    def __init__(self, titler: Titler) -> None:
        self._titler = titler
        self._needs_none: Cache[tuple[str, str], int] = Cache(_MOST_REMEMBERED)
        """The seq of the newest user message seen in each. A lower seq means that the conversation was recreated."""

    async def after(
        self, backend: Backend, context: Context, id: str, append: Append, appended: Appended
    ) -> int | None:
        """Returns the version after a title was written; None if there was none to write.

        `appended` is what `append` has stored. A conversation gets its title with its first user message, unless it has
        one.
        """
        first = next((message for message in appended.messages if message.role == "user"), None)
        key = (context.tenant, id)
        if first is None:
            return None
        newest = self._needs_none.peek(key)
        self._needs_none.put(key, first.seq)
        if newest is not None and first.seq > newest and not appended.created:
            return None
        if appended.created:
            is_untitled = append.new is None or append.new.title is None
        else:
            is_untitled = await _waits_for_title(backend, context, id, append.branch, first)
        return await self._write_title(backend, context, id, appended) if is_untitled else None

    async def _write_title(self, backend: Backend, context: Context, id: str, appended: Appended) -> int | None:
        """Runs the titler. If it fails, that is logged and the conversation stays untitled."""
        try:
            title = self._titler(appended.messages)
            if isinstance(title, Awaitable):
                title = await title
            title = checks.text(title, "the title") if title else None
        except Exception:
            logging.getLogger("hansard").exception("auto_title failed for conversation %r", id)
            return None
        return await _set_title(backend, context, id, title, appended.version) if title else None


async def _set_title(backend: Backend, context: Context, id: str, title: str, version: int) -> int | None:
    """Sets the title unless the conversation got one, or was deleted, while the titler worked."""
    for _ in range(_TRIES):
        expected = version if backend.capabilities.compare_and_swap else None
        try:
            change = ConversationChange(title=title, expected_version=expected)
            return (await backend.update_conversation(context, id, change)).version
        except Conflict:
            now = await backend.get_conversation(context, id)
        except (NotFound, Denied):  # it is gone, or this is the view of a member
            return None
        if now is None or now.title is not None:
            return None
        version = now.version
    return None


async def _waits_for_title(backend: Backend, context: Context, id: str, branch: str | None, first: Message) -> bool:
    """Whether a conversation has no title yet, and had no user message before this one."""
    conversation = await backend.get_conversation(context, id)
    if conversation is None or conversation.title is not None:
        return False
    if first.seq == 1:
        return True
    oldest = await backend.get_messages(context, id, MessageQuery(branch, limit=1, roles=frozenset({"user"})))
    return [message.id for message in oldest.messages] == [first.id]


def first_words(messages: Sequence[Message]) -> str | None:
    """Returns a title from the first user message: its first line, cut at a word."""
    text = next((message.text.strip() for message in messages if message.role == "user" and message.text.strip()), "")
    line = text.partition("\n")[0].strip()
    if len(line) <= _TITLE_LENGTH:
        return line or None
    return line[: line.rfind(" ", 1, _TITLE_LENGTH) if " " in line[1:_TITLE_LENGTH] else _TITLE_LENGTH] + "…"
