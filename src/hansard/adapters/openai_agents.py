"""A conversation as a session of the OpenAI Agents SDK.

Each item is a message of the shared history, in the format `openai.responses`, and is returned exactly as it was.
Messages of other frameworks are converted to items. A window never begins in the middle of a group: an output stays
with its call, and the items of a reasoning model with their reasoning. Clearing creates an empty branch, so that
nothing another framework wrote is lost; use `store.delete_conversation` to delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from agents import RunContextWrapper, SessionSettings, TResponseInputItem

from hansard.adapters.history import EVERYTHING, newest, reading_of, uninterrupted
from hansard.errors import ConversationNotFound, ValidationError
from hansard.formats import registry
from hansard.formats.dialogue import side_of
from hansard.model import Message, Usage
from hansard.shown import shown
from hansard.store import Store

FORMAT = "openai.responses"

_PIECES = frozenset(("input_text", "input_image", "input_file", "input_audio", "output_text", "refusal"))
"""The types of content parts in a message item. Everything else in a list is an item."""

_OTHER = object()

Item = dict[str, Any]


class OpenAISession:
    """The SDK's `Session` protocol. The usage of each step is stored with its last item."""

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        store: Store,
        session_id: str,
        *,
        max_items: int | None = None,
        user_id: str | None = None,
        agent_id: str | None = None,
        branch: str | None = None,
    ) -> None:
        self.session_id = session_id
        self.max_items = max_items
        self._store = store
        self._user_id = user_id
        self._agent_id = agent_id
        self._branch = branch
        self._booked: WeakKeyDictionary[RunContextWrapper[Any], Usage] = WeakKeyDictionary()

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Returns the newest `limit` items exactly; without a limit, a window of `max_items` or everything."""
        if wrapper is not None:
            self._booked.setdefault(wrapper, _so_far(wrapper))
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None:
            items = await self._newest(limit)
        elif self.max_items is not None:
            # Read one more, to see whether the window begins in the middle of a group.
            items = in_window(await self._newest(self.max_items + 1), self.max_items)
        else:
            items = all_items(await newest(self._store, self.session_id, EVERYTHING, self._branch))
        return cast("list[TResponseInputItem]", items)

    async def _newest(self, limit: int) -> list[Item]:
        if limit <= 0:
            return []
        messages = await newest(self._store, self.session_id, limit, self._branch)
        return all_items(messages)[-limit:]

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Appends the items, all or nothing."""
        if not items:
            return
        messages = [Message(role_of(item), item, format=FORMAT) for item in cast("list[Item]", items)]
        if wrapper is not None and (spent := self._spent(wrapper)) is not None:
            last = messages[-1]
            messages[-1] = Message(last.role, last.content, format=FORMAT, usage=spent)
        append = self._store.append(
            self.session_id, messages, user_id=self._user_id, agent_id=self._agent_id, branch=self._branch
        )
        await uninterrupted(append)

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Removes the newest item, with its whole message, and returns it."""
        while (
            message := await uninterrupted(self._store.pop_message(self.session_id, branch=self._branch))
        ) is not None:
            if items := items_of(message):
                return cast(TResponseInputItem, items[-1])
        return None

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Continues with an empty branch; the old one stays readable."""
        if not await self._store.get_messages(self.session_id, last=1, branch=self._branch):
            return
        if self._branch is not None:
            raise ValidationError(f"a session of the branch {self._branch!r} cannot leave it: clear the active one")
        try:
            await uninterrupted(self._store.branch(self.session_id, empty=True))
        except ConversationNotFound:
            return  # Deleted since it was read: nothing to clear.

    def _spent(self, wrapper: RunContextWrapper[Any]) -> Usage | None:
        """Returns the usage of the run since the last items, or since it was first seen.

        A resumed run includes its past.
        """
        total = _so_far(wrapper)
        before = self._booked.setdefault(wrapper, total)
        self._booked[wrapper] = total
        spent = Usage(
            total.input_tokens - before.input_tokens,
            total.output_tokens - before.output_tokens,
            total.cached_tokens - before.cached_tokens,
            total.reasoning_tokens - before.reasoning_tokens,
        )
        return spent if spent.input_tokens > 0 or spent.output_tokens > 0 else None


def _so_far(wrapper: RunContextWrapper[Any]) -> Usage:
    usage = wrapper.usage
    return Usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens_details.cached_tokens or 0,
        usage.output_tokens_details.reasoning_tokens or 0,
    )


def role_of(item: Item) -> str:
    """Returns the role of an item: messages name theirs, outputs are a tool's, everything else is the model's."""
    if not isinstance(item, dict):
        raise ValidationError(f"items must be a list of dicts with 'role' or 'type', and one is {shown(item)}")
    role = item.get("role")
    if isinstance(role, str):
        return side_of(role)
    kind = item.get("type")
    return "tool" if isinstance(kind, str) and kind.endswith("_output") else "assistant"


def all_items(messages: Sequence[Message]) -> list[Item]:
    """Returns the items of messages; most are the messages' own content."""
    items: list[Item] = []
    for message in messages:
        content = message.content
        # The common case of `items_of`, inlined: this runs for every item of a read.
        kind = content.get("type") if type(content) is dict and message.format == FORMAT else _OTHER
        if kind is None or (type(kind) is str and kind not in _PIECES):
            items.append(content)
        else:
            items += items_of(message)
    return items


def items_of(message: Message) -> list[Item]:
    """Returns the items of a message of any format: its own content if that is an item."""
    content = message.content
    if message.format != FORMAT:
        return registry.write(reading_of(message), FORMAT, message)
    if isinstance(content, dict) and not _is_piece(content):
        return [content]
    if isinstance(content, list) and not any(_is_piece(item) for item in content):
        return content
    return [{"role": side_of(message.role), "content": [content] if isinstance(content, dict) else content}]


def _is_piece(item: Any) -> bool:
    kind = item.get("type") if isinstance(item, dict) else None
    return not isinstance(item, dict) or (isinstance(kind, str) and kind in _PIECES)


def in_window(items: Sequence[Item], limit: int) -> list[Item]:
    """Returns the newest `limit` items, without those whose group begins earlier.

    Calls without an output stay: an interrupted run continues with them.
    """
    cut, kept = items[:-limit], list(items[-limit:])
    if cut and cut[-1].get("type") == "reasoning":
        while kept and role_of(kept[0]) == "assistant":
            kept.pop(0)
    calls: set[Any] = set()
    whole = []
    for item in kept:
        if role_of(item) != "tool":
            calls.add(item.get("call_id"))
        elif item.get("call_id") not in calls:
            continue
        whole.append(item)
    return whole
