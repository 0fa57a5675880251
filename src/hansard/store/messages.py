"""Messages: read, change, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType, structs

from hansard import rules
from hansard.contract.types import (
    Context,
    MessageChange,
    MessageQuery,
    Remove,
    Removed,
)
from hansard.errors import ConversationNotFound, ValidationError
from hansard.model import (
    STATUSES,
    Message,
    Messages,
    MessageScope,
    MessageSort,
    Order,
    Receipt,
    Source,
    Status,
    Usage,
)
from hansard.store import checks, drafts, read_query, shares, vector_records
from hansard.store.core import StorePart, outcome_unknown_on_failure
from hansard.store.read_query import BlobMode

_CHUNK = 100


class MessageMethods(StorePart):
    """Reads, changes and deletes messages."""

    # Changing and deleting

    async def update_message(
        self,
        conversation_id: str | int,
        message_id: str | int,
        *,
        content: Any = UNSET,
        format: str | None = None,
        metadata: Mapping[str, Any] | UnsetType | None = UNSET,
        status: Status | UnsetType = UNSET,
        usage: Usage | Mapping[str, Any] | UnsetType | None = UNSET,
        sources: Sequence[Source | Mapping[str, Any]] | UnsetType = UNSET,
        pinned: bool | UnsetType = UNSET,
        expected_version: int | None = None,
    ) -> Message:
        """Changes the fields that are passed, sets `updated_at` and returns the message.

        New content for a message that was not in progress also sets `edited_at`.

        - `conversation_id`, `message_id`: which message; `MessageNotFound` if there is none.
        - `content`, `format`: the new content and its vocabulary.
        - `metadata`: replaces the whole metadata; None removes it.
        - `status`, `usage`, `sources`, `pinned`: the new value; None removes the usage.
        - `expected_version`: apply only at this version of the conversation, else raise `Conflict`.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        wanted = checks.message_id(message_id, self.limits)
        blobs: dict[str, bytes] = {}
        draft = None
        if content is not UNSET:
            draft = drafts.make_draft(Message("user", content, wanted, format=format or ""), self.limits, blobs)
        change = MessageChange(
            draft=draft,
            metadata=checks.metadata(metadata) if isinstance(metadata, Mapping) else _none_or_unset(metadata),
            status=status if status is UNSET else checks.one_of(status, STATUSES, "status"),
            usage=usage if usage is UNSET or usage is None else drafts.usage(usage),
            sources=sources if isinstance(sources, UnsetType) else drafts.sources(sources),
            pinned=pinned if pinned is UNSET else checks.flag(pinned, "pinned"),
            expected_version=checks.optional_count(expected_version, "expected_version"),
            blobs=blobs,
        )
        context = self._view.context()
        message = await self._backend.update_message(context, id, wanted, change)
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, id, [message.seq])
        with outcome_unknown_on_failure():
            if draft is not None:
                await vector_records.delete_vectors(self._backend, context, id, {message.seq})
            whole = await read_query.with_blobs(self._view, context, [message], "inline", blobs)
        return whole[0] if whole else message

    async def delete_message(
        self, conversation_id: str | int, message_id: str | int, *, expected_version: int | None = None
    ) -> Receipt:
        """Deletes a message from every branch, and the summaries that cover it.

        - `conversation_id`, `message_id`: which message. The receipt is false if there is none.
        - `expected_version`: delete only at this version of the conversation, else raise `Conflict`.
        """
        return await self.delete_messages(conversation_id, [message_id], expected_version=expected_version)

    async def delete_messages(
        self, conversation_id: str | int, ids: Iterable[str | int], *, expected_version: int | None = None
    ) -> Receipt:
        """Deletes several messages from every branch, all or nothing.

        - `conversation_id`, `ids`: which messages. Ids that do not exist are skipped.
        - `expected_version`: delete only at this version of the conversation, else raise `Conflict`.
        """
        if isinstance(ids, str | bytes):
            raise ValidationError("ids must be a list of message ids: delete_message takes one")
        wanted = tuple(checks.message_id(each, self.limits) for each in checks.items(ids, "ids", "message ids"))
        return (await self._remove(conversation_id, Remove("ids", wanted), expected_version)).receipt

    async def clear_messages(self, conversation_id: str | int, *, expected_version: int | None = None) -> Receipt:
        """Deletes all messages and branches; the conversation and its metadata stay.

        - `conversation_id`: which conversation.
        - `expected_version`: delete only at this version, else raise `Conflict`.
        """
        return (await self._remove(conversation_id, Remove("all"), expected_version)).receipt

    async def pop_message(
        self, conversation_id: str | int, *, branch: str | None = None, expected_version: int | None = None
    ) -> Message | None:
        """Removes the newest message of a branch and returns it, or None if there is none.

        - `conversation_id`, `branch`: which conversation, and which branch; None for the active one.
        - `expected_version`: remove only at this version, else raise `Conflict`.
        """
        remove = Remove("last", branch=checks.optional_id(branch, "branch", self.limits))
        removed = await self._remove(conversation_id, remove, expected_version)
        if not removed.messages:
            return None
        # The blobs may be deleted with the message, so the backend returns their bytes too.
        context = self._view.context()
        whole = await read_query.with_blobs(self._view, context, removed.messages, "inline", removed.blobs)
        return whole[0] if whole else removed.messages[0]

    async def _remove(self, conversation_id: str | int, remove: Remove, expected_version: int | None) -> Removed:
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        expected = checks.optional_count(expected_version, "expected_version")
        async with vector_records.removal(self._backend, context, id) as removal:
            try:
                removed = await self._backend.remove_messages(
                    context, id, structs.replace(remove, expected_version=expected)
                )
            except ConversationNotFound:
                if expected is not None:
                    raise
                return Removed([], Receipt(at=context.now), 0)
            gone = None if remove.what == "all" else {message.seq for message in removed.messages}
            await removal.delete_vectors(gone)
        with outcome_unknown_on_failure():
            await shares.forget_removed(self._backend, context, id)
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, id, gone or ())
        return removed

    # Reading

    async def get_message(
        self, conversation_id: str | int, message_id: str | int, *, blobs: BlobMode = "inline"
    ) -> Message:
        """Returns one message, from any branch.

        - `conversation_id`, `message_id`: which message; `MessageNotFound` if there is none.
        - `blobs`: `"inline"` returns the content as it was appended, `"refs"` with references in place of large base64.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        wanted = checks.message_id(message_id, self.limits)
        context = self._view.context()
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        found = await self._backend.find_messages(context, id, [wanted])
        whole = await read_query.with_blobs(self._view, context, found, blobs)
        if not whole:
            raise rules.no_message(id, wanted)
        return whole[0]

    async def get_messages(
        self,
        conversation_id: str | int,
        *,
        limit: int | None = None,
        order: Order = "asc",
        after: str | None = None,
        before: str | None = None,
        last: int | None = None,
        turns: int | None = None,
        roles: Iterable[str] | None = None,
        participant_ids: Iterable[str] | None = None,
        scope: MessageScope | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        pinned: bool | None = None,
        branch: str | None = None,
        sort: MessageSort = "seq",
        blobs: BlobMode = "inline",
    ) -> Messages:
        """Returns messages of a branch, as they are stored; none for a missing conversation.

        - `conversation_id`: which conversation.
        - `limit`: the size of a page in `order`; None for 20. A page ends early when its bodies exceed
          `Limits.page_bytes`; then `has_more` is true.
        - `order`: `"asc"` for the oldest first, or `"desc"`.
        - `after`, `before`: a message id or `message.cursor`, exclusive; both follow `order`. Pass only one.
        - `last`: instead of `limit`: the newest N messages, oldest first.
        - `turns`: instead of `limit`: the newest N turns, oldest first. Filters narrow what is returned, not what a
          turn is.
        - `roles`, `participant_ids`: only messages with one of these roles, or by one of these participants.
        - `scope`: only `"channel"`, `"dm"` or `"thread"`.
        - `since`, `until`: only messages created from `since` on and before `until`.
        - `pinned`: True for pinned messages, at a cost that follows their number; False for the others.
        - `branch`: which branch; None for the active one.
        - `sort`: `"seq"` for the order of arrival, or `"time"` for `created_at`.
        - `blobs`: `"inline"` returns content as it was appended, `"refs"` with references in place of large base64.
        """
        checks.only_one(after=after, before=before)
        checks.only_one(last=last, turns=turns, limit=limit)
        checks.one_of(order, ("asc", "desc"), "order")
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        narrow = read_query.filters(roles, participant_ids, scope, since, until, pinned)
        query = read_query.query(self.limits, branch, sort, narrow)
        context = self._view.context()
        if last is not None or turns is not None:
            if after is not None or before is not None or order != "asc":
                raise ValidationError(
                    "last and turns take the newest messages, oldest first: leave after, before, order out"
                )
        else:
            places = [await read_query.position(self._view, context, id, place) for place in (after, before)]
            query = read_query.with_positions(query, order, *places)
            size = checks.count(20 if limit is None else limit, "limit", self.limits.page)
            query = structs.replace(query, limit=size)
        while True:
            if last is not None or turns is not None:
                found, more = await self._newest(context, id, query, last, turns)
            else:
                found, more = await self._take(context, id, query)
                found = found[::-1] if before is not None else found
            whole = await read_query.with_blobs(self._view, context, found, blobs)
            if whole or not found or not more:
                return Messages(whole, has_more=more)
            # All of them were deleted while their blobs were read: read the messages after them.

    async def _take(self, context: Context, id: str, query: MessageQuery) -> tuple[list[Message], bool]:
        taken = await self._backend.get_messages(context, id, query)
        return taken.messages, taken.has_more

    async def _newest(
        self, context: Context, id: str, query: MessageQuery, last: int | None, turns: int | None
    ) -> tuple[list[Message], bool]:
        query = structs.replace(query, newest_first=True)
        if last is not None:
            query = structs.replace(query, limit=checks.count(last, "last"))
            found, more = await self._take(context, id, query)
        else:
            found, more = await self._newest_turns(context, id, query, checks.count(turns, "turns"))
        return found[::-1], more

    async def _newest_turns(
        self, context: Context, id: str, query: MessageQuery, turns: int
    ) -> tuple[list[Message], bool]:
        """Reads backwards in chunks until enough turns have begun, so the cost follows the turns, not the history.

        Filters narrow what is returned, not what a turn is.
        """
        found: list[Message] = []
        begun = 0
        bare = read_query.unfiltered(query)
        while True:
            chunk, more = await self._take(context, id, structs.replace(bare, limit=_CHUNK))
            for at, message in enumerate(chunk):
                found += [message] if rules.is_wanted(message, query) else []
                begun += message.role == "user"
                if begun == turns:
                    return found, more or at + 1 < len(chunk)
            if not more:
                return found, False
            bare = structs.replace(bare, below=rules.position(chunk[-1]))

    async def iter_messages(
        self,
        conversation_id: str | int,
        *,
        order: Order = "asc",
        after: str | None = None,
        roles: Iterable[str] | None = None,
        participant_ids: Iterable[str] | None = None,
        scope: MessageScope | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        pinned: bool | None = None,
        branch: str | None = None,
        sort: MessageSort = "seq",
        blobs: BlobMode = "inline",
    ) -> AsyncIterator[Message]:
        """Iterates over every message of a branch, page by page: any length in constant memory.

        - `conversation_id`: which conversation.
        - `order`, `after`: the direction, and a message id or `message.cursor` after which to start.
        - `roles`, `participant_ids`, `scope`, `since`, `until`, `pinned`: filters, as in `get_messages`.
        - `branch`, `sort`, `blobs`: as in `get_messages`.
        """
        checks.one_of(order, ("asc", "desc"), "order")
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        narrow = read_query.filters(roles, participant_ids, scope, since, until, pinned)
        query = structs.replace(read_query.query(self.limits, branch, sort, narrow), limit=_CHUNK)
        place = await read_query.position(self._view, self._view.context(), id, after)
        more = True
        while more:
            context = self._view.context()
            found, more = await self._take(context, id, read_query.with_positions(query, order, place, None))
            for message in await read_query.with_blobs(self._view, context, found, blobs):
                yield message
            place = rules.position(found[-1]) if found else place


def _none_or_unset(value: object) -> UnsetType | None:
    if value is None or value is UNSET:
        return value
    raise ValidationError(f"metadata must be a mapping, not a {type(value).__name__}")
