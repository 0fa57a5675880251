"""Conversations: create, get, list, change, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any, cast

from msgspec import UNSET, UnsetType

from hansard import cursors, ids
from hansard.contract.backend import Mirror
from hansard.contract.types import Context, ConversationChange, ConversationQuery
from hansard.errors import ValidationError
from hansard.model import NOT_YET, Conversation, ConversationSort, Order, Page, ReadFrom, Receipt
from hansard.store import checks, listing, marks
from hansard.store.core import StorePart, outcome_unknown_on_failure
from hansard.store.listing import ListedConversations


class ConversationMethods(StorePart):
    async def create_conversation(
        self,
        conversation_id: str | int | None = None,
        *,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        audit_id: str | int | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
        created_at: datetime | None = None,
    ) -> Conversation:
        """Creates an empty conversation and returns it. `Conflict` if the id is taken.

        - `conversation_id`: its id; None lets the store choose one, `conv_…`.
        - `user_id`: its owner.
        - `agent_id`: the agent it belongs to.
        - `audit_id`: an id of your own, for auditing.
        - `title`, `metadata`: a text, and a JSON object of your own.
        - `expires_at`: when it ceases to exist; `purge` then removes it.
        - `created_at`: when it began, for imported history; not in the future. None for now.
        """
        limits, context = self.limits, self._view.context()
        conversation = Conversation(
            id=ids.conversation_id() if conversation_id is None else checks.id_of(conversation_id, "id", limits),
            user_id=self._own_user(user_id),
            agent_id=checks.optional_id(agent_id, "agent_id", limits),
            audit_id=checks.optional_id(audit_id, "audit_id", limits),
            title=checks.optional_text(title, "title"),
            metadata=checks.metadata(metadata),
            expires_at=checks.optional_time(expires_at, "expires_at"),
            created_at=NOT_YET if created_at is None else _past(created_at, context.now),
        )
        made = await self._backend.create_conversation(context, conversation)
        if conversation.metadata:
            with outcome_unknown_on_failure():
                await marks.note_conversation(self._backend, context, made.id, made.metadata)
        return made

    def _own_user(self, user_id: str | int | None) -> str | None:
        user = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and user not in (None, self._view.user):
            raise ValidationError("a user's view writes only for that user: leave user_id out")
        return user

    async def get_conversation(self, conversation_id: str | int) -> Conversation | None:
        """Returns the conversation `conversation_id`, without its messages, or None if there is none."""
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        return await self._backend.get_conversation(self._view.context(), id)

    async def list_conversations(
        self,
        *,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        metadata: Mapping[str, Any] | None = None,
        archived: bool | None = False,
        label: str | None = None,
        rating: float | None = None,
        sort: ConversationSort = "last_message_at",
        order: Order = "desc",
        after: str | None = None,
        before: str | None = None,
        offset: int = 0,
        limit: int = 20,
        read_from: ReadFrom = "primary",
    ) -> Page:
        """Returns a page of conversations, by default the newest first.

        - `user_id`, `agent_id`: only those of this owner, of this agent.
        - `metadata`: only those whose metadata has these keys with equal values.
        - `archived`: False for those that are not archived, True for those that are, None for both.
        - `label`: only those that have this label themselves.
        - `rating`: only those with a message that somebody rated with this value.
        - `sort`: `"last_message_at"` or `"updated_at"`. An empty conversation sorts by its creation time.
        - `order`: `"desc"` or `"asc"`.
        - `after`, `before`: a page's `next_cursor` or `previous_cursor`; both follow `order`.
        - `offset`: how many to skip. The cost grows with it; prefer cursors.
        - `limit`: the largest number of conversations in the page. If more than 1,000 conversations have the label or
          the rating, a call looks at 1,000 conversations at most: its page may be shorter, and `next_cursor` goes on.
        - `read_from`: `"replica"` lets a replica answer, if the store has one: the newest writes may be missing.
        """
        checks.only_one(after=after, before=before)
        checks.one_of(order, ("asc", "desc"), "order")
        checks.one_of(sort, ("last_message_at", "updated_at"), "sort")
        cursor = before if after is None else after
        place = cursors.conversation_position(checks.text(cursor, "the cursor"), sort) if cursor is not None else None
        newest_first = (order == "desc") != (before is not None)
        query = ConversationQuery(
            user_id=self._own_user(user_id) or self._view.user,
            agent_id=checks.optional_id(agent_id, "agent_id", self.limits),
            metadata=checks.metadata(metadata),
            archived=None if archived is None else checks.flag(archived, "archived"),
            sort=sort,
            newest_first=newest_first,
            above=None if newest_first else place,
            below=place if newest_first else None,
            offset=checks.count(offset, "offset", least=0),
            limit=checks.count(limit, "limit", self.limits.page),
            memberships=self._view.user is not None,
        )
        context = self._view.context(read_from)
        marked = self._mark_filter(context, label, rating) if label is not None or rating is not None else None
        listed = await listing.listed(self._view, context, query, marked)
        return _page(listed, sort, after=after, before=before, offset=offset)

    def _mark_filter(self, context: Context, label: str | None, rating: float | None) -> marks.MarkFilter:
        self._view.require(marks.can_index(self._backend) or not self.capabilities.keeps, "records", "list by marks")
        name = None if label is None else marks.checked_label(label, self.limits)
        value = None if rating is None else marks.checked_value(rating)
        return marks.MarkFilter(self._backend, context, name, value)

    async def iter_conversations(
        self,
        *,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        metadata: Mapping[str, Any] | None = None,
        archived: bool | None = False,
        label: str | None = None,
        rating: float | None = None,
        sort: ConversationSort = "last_message_at",
        order: Order = "desc",
        read_from: ReadFrom = "primary",
    ) -> AsyncIterator[Conversation]:
        """Iterates over every conversation that `list_conversations` would list, reading page by page.

        `user_id`, `agent_id`, `metadata`, `archived`, `label`, `rating`, `sort`, `order` and `read_from` mean what they
        mean in `list_conversations`. A conversation that is written to during the iteration changes its place, so it
        may be skipped or returned twice.
        """
        after = None
        while True:
            page = await self.list_conversations(
                user_id=user_id,
                agent_id=agent_id,
                metadata=metadata,
                archived=archived,
                label=label,
                rating=rating,
                sort=sort,
                order=order,
                after=after,
                limit=self.limits.page,
                read_from=read_from,
            )
            for conversation in page.items:
                yield conversation
            if (after := page.next_cursor) is None:
                return

    async def remote_id(self, conversation_id: str | int) -> str | None:
        """Returns the id of `conversation_id` at the API that the backend mirrors, or None without such an API."""
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        if await self._backend.get_conversation(context, id) is None or not self.capabilities.mirrors:
            return None
        return await cast(Mirror, self._backend).remote_id(context, id)

    async def update_conversation(
        self,
        conversation_id: str | int,
        *,
        title: str | UnsetType | None = UNSET,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | int | UnsetType | None = UNSET,
        agent_id: str | int | UnsetType | None = UNSET,
        audit_id: str | int | UnsetType | None = UNSET,
        expires_at: datetime | UnsetType | None = UNSET,
        archived: bool | UnsetType = UNSET,
        expected_version: int | None = None,
    ) -> Conversation:
        """Changes the fields that are passed and returns the conversation.

        - `conversation_id`: which conversation; `ConversationNotFound` if there is none.
        - `title`, `agent_id`, `audit_id`, `expires_at`: the new value; None removes it.
        - `user_id`: the new owner; None removes the owner.
        - `metadata`: keys to set; a key with the value None is deleted, other keys stay.
        - `archived`: whether the conversation is archived, and so not listed by default.
        - `expected_version`: apply the change only at this version, else raise `Conflict`.
        """
        context, limits = self._view.context(), self.limits
        owner = user_id if user_id is UNSET else checks.optional_id(user_id, "user_id", limits)
        if self._view.user is not None and owner is not UNSET and owner != self._view.user:
            raise ValidationError("a user's view cannot give a conversation to another user")
        if archived is not UNSET:
            checks.flag(archived, "archived")
        change = ConversationChange(
            title=title if title is UNSET else checks.optional_text(title, "title"),
            user_id=owner,
            agent_id=agent_id if agent_id is UNSET else checks.optional_id(agent_id, "agent_id", limits),
            audit_id=audit_id if audit_id is UNSET else checks.optional_id(audit_id, "audit_id", limits),
            metadata=checks.metadata(metadata),
            expires_at=expires_at if expires_at is UNSET else checks.optional_time(expires_at, "expires_at"),
            archived_at=archived if archived is UNSET else (context.now if archived else None),
            expected_version=checks.optional_count(expected_version, "expected_version"),
        )
        id = checks.id_of(conversation_id, "conversation_id", limits)
        changed = await self._backend.update_conversation(context, id, change)
        if change.metadata:
            with outcome_unknown_on_failure():
                await marks.note_conversation(self._backend, context, id, change.metadata)
        if self._view.embeddings is not None:
            # No message has changed, so the vectors are valid at the new version too.
            self._view.embeddings.note(context.tenant, id, ())
        return changed

    async def delete_conversation(self, conversation_id: str | int) -> Receipt:
        """Deletes the conversation `conversation_id` and everything derived from it, for good.

        The receipt is false if there was no such conversation.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        return await self._backend.delete_conversation(self._view.context(), id)


def _past(created_at: datetime, now: datetime) -> datetime:
    time = checks.time(created_at, "created_at")
    if time > now:
        raise ValidationError(f"created_at is {time.isoformat()}, which is in the future: it is now {now.isoformat()}")
    return time


def _page(
    listed: ListedConversations, sort: ConversationSort, *, after: str | None, before: str | None, offset: int
) -> Page:
    found = listed.found[::-1] if before is not None else listed.found
    end = listed.last or (listed.found[-1] if listed.found else None)
    if end is None:
        return Page([])
    start = listed.found[0] if listed.found else end
    first, last = (start, end) if before is None else (end, start)
    has_next = listed.more if before is None else True
    has_previous = listed.more if before is not None else after is not None or offset > 0
    return Page(
        found,
        cursors.of_conversation(last, sort) if has_next else None,
        cursors.of_conversation(first, sort) if has_previous else None,
    )
