"""Messages: appended, read, changed, removed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET, UnsetType, structs

from hansard import rules
from hansard.assembly import window as windows
from hansard.errors import ConversationNotFound, Unsupported, ValidationError
from hansard.model import (
    NOT_YET,
    STATUSES,
    Appended,
    Message,
    Messages,
    MessageScope,
    MessageSort,
    Order,
    Participant,
    Receipt,
    Source,
    Status,
    Usage,
)
from hansard.requests import (
    Append,
    Context,
    ConversationChange,
    Draft,
    MessageChange,
    MessageQuery,
    NewConversation,
    OnDuplicate,
    Remove,
    Removed,
    Replace,
)
from hansard.store import checks, drafts, reading
from hansard.store.core import Core, after_a_write
from hansard.store.reading import BlobMode

_TITLE_LENGTH = 60
_CHUNK = 100


class MessageParts(Core):
    """Everything that the Store does with messages."""

    # Writing

    async def append_message(
        self,
        conversation_id: str | int,
        role: str,
        content: Any,
        *,
        id: str | int | None = None,
        format: str | None = None,
        participant: Participant | Mapping[str, Any] | None = None,
        mentions: Sequence[str] = (),
        scope: MessageScope | None = None,
        status: Status = "complete",
        pinned: bool = False,
        created_at: datetime | None = None,
        trace_id: str | None = None,
        sources: Sequence[Source | Mapping[str, Any]] = (),
        usage: Usage | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        audit_id: str | int | None = None,
        branch: str | None = None,
        expected_version: int | None = None,
        on_duplicate: OnDuplicate = "first",
        create: bool = True,
    ) -> str:
        """Appends one message and gives its id. Makes the conversation when it is missing, unless `create=False`."""
        message = Message(
            role=role,
            content=content,
            id="" if id is None else checks.message_id(id, self.limits),
            format=format or "",
            participant=participant,  # type: ignore[arg-type]  # mappings are converted when the draft is checked
            mentions=mentions,  # type: ignore[arg-type]
            scope=scope,
            status=status,
            pinned=pinned,
            created_at=NOT_YET if created_at is None else created_at,
            trace_id=trace_id,
            sources=sources,  # type: ignore[arg-type]
            usage=usage,  # type: ignore[arg-type]
            metadata=metadata,  # type: ignore[arg-type]
        )
        appended = await self.append(
            conversation_id,
            [message],
            user_id=user_id,
            agent_id=agent_id,
            audit_id=audit_id,
            branch=branch,
            expected_version=expected_version,
            on_duplicate=on_duplicate,
            create=create,
        )
        return appended.messages[0].id

    async def append(
        self,
        conversation_id: str | int,
        messages: Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]],
        *,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        audit_id: str | int | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | None = None,
        branch: str | None = None,
        expected_version: int | None = None,
        on_duplicate: OnDuplicate = "first",
        create: bool = True,
        split: bool = False,
        revive: bool = False,
    ) -> Appended:
        """Appends a batch, all or nothing. Ids that are stored already are not stored again: a retry is always safe.

        `title`, `metadata`, `agent_id`, `audit_id` and `expires_at` go to a conversation that this call makes. With
        `expected_version` the batch applies only at that version. `split` lets a backend with a largest atomic batch
        take a longer one in pieces. `revive` stores what was deleted before.
        """
        limits = self._view.limits
        id = checks.id_of(conversation_id, "conversation_id", limits)
        made = drafts.make_drafts(drafts.as_messages(messages), limits)
        user = None if user_id is None else self._writer(user_id)
        new = NewConversation(
            user_id=user,
            agent_id=None if agent_id is None else checks.id_of(agent_id, "agent_id", limits),
            audit_id=None if audit_id is None else checks.id_of(audit_id, "audit_id", limits),
            title=None if title is None else checks.text(title, "title"),
            metadata={} if metadata is None else checks.metadata(metadata),
            expires_at=None if expires_at is None else checks.time(expires_at, "expires_at"),
        )
        append = Append(
            made.drafts,
            new if create else None,
            user_id=user,
            branch=None if branch is None else checks.id_of(branch, "branch", limits),
            expected_version=None
            if expected_version is None
            else checks.count(expected_version, "expected_version", least=0),
            on_duplicate=_on_duplicate(on_duplicate),
            max_messages=limits.messages,
            blobs=made.blobs,
            revive=revive,
        )
        context = self._view.context()
        if not made.drafts:
            return await self._append_nothing(context, id, append)
        if self._largest_batch is None:
            appended = await self._backend.append(context, id, append)
        else:
            appended = await self._append_pieces(context, id, append, self._largest_batch, split=split)
        if appended.created and title is None and self._view.auto_title is not None:
            with after_a_write():
                version = await self._give_title(context, id, appended.messages)
            appended = structs.replace(appended, version=version or appended.version)
        return await self._whole(context, appended, made.blobs) if _have_blobs(appended.messages) else appended

    async def _whole(self, context: Context, appended: Appended, blobs: Mapping[str, bytes]) -> Appended:
        with after_a_write():
            whole = await reading.with_blobs(self._view, context, appended.messages, "inline", blobs)
        return structs.replace(appended, messages=whole)

    def _writer(self, user_id: str | int | None) -> str | None:
        user = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and user not in (None, self._view.user):
            raise ValidationError("a user's view writes only for that user: leave user_id out")
        return user

    async def _append_nothing(self, context: Context, id: str, append: Append) -> Appended:
        conversation = await self._backend.get_conversation(context, id)
        if conversation is None and append.new is None:
            raise rules.not_found(id)
        if conversation is not None:
            rules.check_version(conversation, append.expected_version)
        return Appended([], conversation.version if conversation else 0)

    async def _append_pieces(self, context: Context, id: str, append: Append, largest: int, *, split: bool) -> Appended:
        if len(append.drafts) <= largest:
            return await self._backend.append(context, id, append)
        if not split:
            raise Unsupported(
                f"a batch of {len(append.drafts)} is more than the {largest} that {self.capabilities.name} stores "
                "all or nothing: pass split=True to store it in pieces",
                capability="atomic_batch",
            )
        pieces = [append.drafts[at : at + largest] for at in range(0, len(append.drafts), largest)]
        done = [await self._append_piece(context, id, append, piece, number) for number, piece in enumerate(pieces)]
        return Appended(
            [message for appended in done for message in appended.messages],
            done[-1].version,
            sum(appended.stored for appended in done),
            done[0].created,
        )

    async def _append_piece(
        self, context: Context, id: str, append: Append, piece: tuple[Draft, ...], number: int
    ) -> Appended:
        if number == 0:
            return await self._backend.append(context, id, structs.replace(append, drafts=piece))
        with after_a_write():
            rest = structs.replace(append, drafts=piece, expected_version=None)
            return await self._backend.append(context, id, rest)

    async def _give_title(self, context: Context, id: str, messages: list[Message]) -> int | None:
        """The version after the title was given; None when there is none to give."""
        titler = self._view.auto_title
        assert titler is not None
        title = titler(messages)
        if isinstance(title, Awaitable):
            title = await title
        if not title:
            return None
        change = ConversationChange(title=checks.text(title, "the title"))
        return (await self._backend.update_conversation(context, id, change)).version

    async def replace_messages(
        self,
        conversation_id: str | int,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        branch: str | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        """Makes the branch read exactly these messages: a full snapshot.

        Messages at its beginning that are the same already stay as they are; a message without an id is the same when
        its body is. What other branches share stays for them.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        made = drafts.make_drafts(drafts.as_messages(messages), self.limits)
        replace = Replace(
            made.drafts,
            checks.optional_id(branch, "branch", self.limits),
            checks.optional_count(expected_version, "expected_version"),
            self.limits.messages,
            made.blobs,
        )
        context = self._view.context()
        appended = await self._backend.replace_messages(context, id, replace)
        return await self._whole(context, appended, made.blobs)

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
        """Changes only what is given.

        Metadata is replaced whole. Sets `updated_at` and gives the message as it now is.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        blobs: dict[str, bytes] = {}
        draft = None
        if content is not UNSET:
            draft = drafts.make_draft(Message("user", content, format=format or ""), self.limits, blobs)
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
        wanted = checks.message_id(message_id, self.limits)
        message = await self._backend.update_message(context, id, wanted, change)
        with after_a_write():
            return (await reading.with_blobs(self._view, context, [message], "inline", blobs))[0]

    async def delete_message(
        self, conversation_id: str | int, message_id: str | int, *, expected_version: int | None = None
    ) -> Receipt:
        """Deletes a message from every branch, and the summaries that cover it. False when there was none."""
        return await self.delete_messages(conversation_id, [message_id], expected_version=expected_version)

    async def delete_messages(
        self, conversation_id: str | int, ids: Iterable[str | int], *, expected_version: int | None = None
    ) -> Receipt:
        """Deletes these messages, all or nothing; ids that do not exist are passed over."""
        wanted = tuple(checks.message_id(each, self.limits) for each in ids)
        return (await self._remove(conversation_id, Remove("ids", wanted), expected_version)).receipt

    async def clear_messages(self, conversation_id: str | int, *, expected_version: int | None = None) -> Receipt:
        """Deletes all messages and branches; the conversation and its metadata stay."""
        return (await self._remove(conversation_id, Remove("all"), expected_version)).receipt

    async def pop_message(
        self, conversation_id: str | int, *, branch: str | None = None, expected_version: int | None = None
    ) -> Message | None:
        """Takes the newest message off the branch and gives it; None when there is none."""
        remove = Remove("last", branch=checks.optional_id(branch, "branch", self.limits))
        removed = await self._remove(conversation_id, remove, expected_version)
        return removed.messages[0] if removed.messages else None

    async def _remove(self, conversation_id: str | int, remove: Remove, expected_version: int | None) -> Removed:
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        expected = checks.optional_count(expected_version, "expected_version")
        try:
            return await self._backend.remove_messages(context, id, structs.replace(remove, expected_version=expected))
        except ConversationNotFound:
            if expected is not None:
                raise
            return Removed([], Receipt(at=context.now), 0)

    # Reading

    async def get_message(
        self, conversation_id: str | int, message_id: str | int, *, blobs: BlobMode = "inline"
    ) -> Message:
        """One message, from whichever branch holds it. `MessageNotFound` when there is none."""
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        wanted = checks.message_id(message_id, self.limits)
        context = self._view.context()
        found = await self._backend.find_messages(context, id, [wanted])
        if not found:
            raise rules.no_message(id, wanted)
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        return (await reading.with_blobs(self._view, context, found, blobs))[0]

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
        branch: str | None = None,
        sort: MessageSort = "seq",
        blobs: BlobMode = "inline",
    ) -> Messages:
        """Messages of a branch, as they are stored. Nothing for a missing conversation.

        `limit` (20) pages in `order`; `after` and `before` take a message id or `message.cursor` and follow `order`.
        `last=N` is the newest N and `turns=N` the newest N turns, both oldest first. `since` is inclusive, `until` is
        not. A page ends early when its bodies pass `Limits.page_bytes`; `has_more` tells.
        """
        checks.only_one(after=after, before=before)
        checks.only_one(last=last, turns=turns, limit=limit)
        checks.one_of(order, ("asc", "desc"), "order")
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        narrow = reading.filters(roles, participant_ids, scope, since, until)
        query = reading.query(self.limits, branch, sort, narrow)
        context = self._view.context()
        if last is not None or turns is not None:
            if after is not None or before is not None or order != "asc":
                raise ValidationError(
                    "last and turns take the newest messages, oldest first: leave after, before, order out"
                )
            found, more = await self._newest(context, id, query, last, turns)
        else:
            places = [await reading.position(self._view, context, id, place) for place in (after, before)]
            query = reading.placed(query, order, *places)
            size = checks.count(20 if limit is None else limit, "limit", self.limits.page)
            found, more = await self._take(context, id, structs.replace(query, limit=size))
            found = found[::-1] if before is not None else found
        return Messages(await reading.with_blobs(self._view, context, found, blobs), has_more=more)

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
        """Reads backwards in chunks until enough turns have begun: the cost follows what is returned."""
        found: list[Message] = []
        begun = 0
        while True:
            chunk, more = await self._take(context, id, structs.replace(query, limit=_CHUNK))
            for at, message in enumerate(chunk):
                found.append(message)
                begun += message.role == "user"
                if begun == turns:
                    return found, more or at + 1 < len(chunk)
            if not more:
                return found, False
            query = structs.replace(query, below=rules.position(chunk[-1]))

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
        branch: str | None = None,
        sort: MessageSort = "seq",
        blobs: BlobMode = "inline",
    ) -> AsyncIterator[Message]:
        """Every message of a branch, page by page: any length in constant memory."""
        checks.one_of(order, ("asc", "desc"), "order")
        checks.one_of(blobs, ("inline", "refs"), "blobs")
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        narrow = reading.filters(roles, participant_ids, scope, since, until)
        query = structs.replace(reading.query(self.limits, branch, sort, narrow), limit=_CHUNK)
        place = await reading.position(self._view, self._view.context(), id, after)
        more = True
        while more:
            context = self._view.context()
            found, more = await self._take(context, id, reading.placed(query, order, place, None))
            for message in await reading.with_blobs(self._view, context, found, blobs):
                yield message
            place = rules.position(found[-1]) if found else place

    async def window(
        self,
        conversation_id: str | int,
        *,
        messages: int | None = None,
        turns: int | None = None,
        branch: str | None = None,
    ) -> list[Message]:
        """The newest messages or turns that a model can be given: every tool call with its results, and the other way.

        A group that does not fit, or a call that nothing answered, is left out whole.
        """
        checks.only_one(messages=messages, turns=turns)
        if messages is None and turns is None:
            messages = 20
        found = await self.get_messages(conversation_id, last=messages, turns=turns, branch=branch)
        return windows.valid(found)


def _on_duplicate(value: OnDuplicate) -> OnDuplicate:
    return value if value == "first" else checks.one_of(value, ("first", "error"), "on_duplicate")


def _have_blobs(messages: list[Message]) -> bool:
    for message in messages:  # noqa: SIM110  (a generator costs more than the loop, on every append)
        if message.blobs:
            return True
    return False


def _none_or_unset(value: object) -> UnsetType | None:
    if value is None or value is UNSET:
        return value
    raise ValidationError(f"metadata must be a mapping, not a {type(value).__name__}")


def first_words(messages: Sequence[Message]) -> str | None:
    """A title from the first thing that a user said: its first line, cut at a word."""
    said = next((message.text.strip() for message in messages if message.role == "user" and message.text.strip()), "")
    line = said.partition("\n")[0].strip()
    if len(line) <= _TITLE_LENGTH:
        return line or None
    return line[: line.rfind(" ", 1, _TITLE_LENGTH) if " " in line[1:_TITLE_LENGTH] else _TITLE_LENGTH] + "…"
