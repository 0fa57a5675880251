"""Appending one message, a batch, or a full snapshot of a branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import structs

from hansard import rules
from hansard.contract.types import (
    Append,
    Context,
    Draft,
    NewConversation,
    OnDuplicate,
    RecordWrite,
    Replace,
)
from hansard.errors import Unsupported, ValidationError
from hansard.executor import run_in_thread
from hansard.model import (
    NOT_YET,
    Appended,
    Message,
    MessageScope,
    Participant,
    Source,
    Status,
    Usage,
)
from hansard.store import checks, drafts, marks, read_query, shares, vector_records
from hansard.store.core import StorePart, outcome_unknown_on_failure
from hansard.store.records import Delete, Put, Records, checked_writes

_FIRST: OnDuplicate = "first"
MANY = 500
"""Larger batches are checked and encoded in a thread, so that they do not block the event loop."""


class AppendMethods(StorePart):
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
        prompt_id: str | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        audit_id: str | int | None = None,
        branch: str | None = None,
        expected_version: int | None = None,
        on_duplicate: OnDuplicate = "first",
        create: bool = True,
    ) -> str:
        """Appends one message and returns its id.

        - `conversation_id`: which conversation. It is created if it is missing, unless `create` is False.
        - `role`: `"user"`, `"assistant"`, `"system"`, `"tool"` or another of `hansard.model.ROLES`.
        - `content`: any JSON value, stored verbatim.
        - `id`: a message id of your own, which makes the call safe to repeat; None lets the store choose one, `msg_…`.
        - `format`: the vocabulary of the content, such as `"openai.chat"`. None for `"text"` or, if it is not text,
          `"json"`.
        - `participant`: who wrote it: a `Participant` or a mapping.
        - `mentions`: the ids of the participants that it mentions.
        - `scope`: where it was written: `"channel"`, `"dm"` or `"thread"`.
        - `status`: `"complete"`, `"in_progress"` (it grows by `update_message`), `"interrupted"` or `"blocked"`.
        - `pinned`: whether it stays in every prompt and window.
        - `created_at`: when it was written; None for now.
        - `trace_id`: the trace that produced it.
        - `sources`: the documents that it is based on.
        - `usage`: the tokens and cost that it reports.
        - `metadata`: a JSON object of your own, for this message.
        - `prompt_id`: for an answer, the `prompt_id` of the prompt that the model was given; `get_prompt` reads it.
        - `user_id`, `agent_id`, `audit_id`: for a conversation that this call creates. `Conflict` if an existing one
          has another owner.
        - `branch`: which branch; None for the active one.
        - `expected_version`, `on_duplicate`, `create`: as in `append`.
        """
        message = Message(
            role=role,
            content=content,
            id="" if id is None else checks.message_id(id, self.limits),
            format="" if format is None else checks.text(format, "format"),
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
            prompt_id=prompt_id,
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
        messages: Message | Mapping[str, Any] | Iterable[Message | Mapping[str, Any]] | drafts.Drafts,
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
        count_usage: bool = True,
        records: Iterable[Put | Delete] = (),
    ) -> Appended:
        """Appends a batch, all or nothing. Ids that are already stored are not stored again, so a retry is always safe.

        - `conversation_id`: which conversation.
        - `messages`: one message or several: `Message` values, or mappings with at least a role and content.
        - `user_id`: the owner of a conversation that this call creates. `Conflict` if an existing one has another
          owner.
        - `agent_id`, `audit_id`, `title`, `metadata`, `expires_at`: for a conversation that this call creates.
        - `branch`: which branch; None for the active one.
        - `expected_version`: append only at this version, else raise `Conflict`. A retry of a stored batch succeeds.
        - `on_duplicate`: for a stored id with another body: `"first"` keeps the stored message, `"error"` raises
          `Conflict`.
        - `create`: False raises `ConversationNotFound` instead of creating the conversation.
        - `split`: lets a backend with a largest atomic batch store a longer one in pieces.
        - `revive`: also store messages that were deleted before.
        - `count_usage`: False for copies, whose tokens and cost are already counted.
        - `records`: `Put` and `Delete` of records, written in the same commit. Each belongs to this conversation or to
          none.
        """
        limits = self._view.limits
        id = checks.id_of(conversation_id, "conversation_id", limits)
        if type(messages) is drafts.Drafts:
            made = messages  # importers make them themselves
        else:
            given = drafts.as_messages(messages)
            if len(given) > MANY or drafts.are_long(given):
                made = await run_in_thread(drafts.make_drafts, given, limits)
            else:
                made = drafts.make_drafts(given, limits)
        if made.has_ratings:
            marks.check_raters(self._view.user, made.drafts)
        user = None if user_id is None else self._writer(user_id)
        new = NewConversation(
            user,
            None if agent_id is None else checks.id_of(agent_id, "agent_id", limits),
            None if audit_id is None else checks.id_of(audit_id, "audit_id", limits),
            None if title is None else checks.text(title, "title"),
            {} if metadata is None else checks.metadata(metadata),
            None if expires_at is None else checks.time(expires_at, "expires_at"),
        )
        append = Append(
            made.drafts,
            new if create is True or checks.flag(create, "create") else None,
            user,
            None if branch is None else checks.id_of(branch, "branch", limits),
            None if expected_version is None else checks.count(expected_version, "expected_version", least=0),
            _FIRST if on_duplicate is _FIRST else checks.one_of(on_duplicate, (_FIRST, "error"), "on_duplicate"),
            limits.messages,
            made.blobs,
            revive is not False and checks.flag(revive, "revive"),
            count_usage is True or checks.flag(count_usage, "count_usage"),
        )
        context = self._view.context()
        if records:
            append = structs.replace(append, records=self._records(records, context, made.drafts))
        if not made.drafts:
            return await self._append_nothing(context, id, append)
        # Read at each call: a backend that opens with its first call does not know it earlier.
        largest = self._backend.capabilities.atomic_batch if len(made.drafts) > 1 else None
        if largest is None:
            appended = await self._backend.append(context, id, append)
        else:
            appended = await self._append_pieces(context, id, append, largest, split=split)
        if new.metadata or made.has_ratings:
            await self._note_marks(context, id, appended, new)
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, id, [message.seq for message in appended.messages])
        if self._view.titles is not None and appended.stored:
            with outcome_unknown_on_failure():
                version = await self._view.titles.after(self._backend, context, id, append, appended)
            appended = structs.replace(appended, version=version or appended.version)
        return await self._whole(context, appended, made.blobs) if _have_blobs(appended.messages) else appended

    async def _note_marks(self, context: Context, id: str, appended: Appended, new: NewConversation) -> None:
        with outcome_unknown_on_failure():
            await marks.note_ratings(self._backend, context, id, appended.messages)
            await marks.note_conversation(self._backend, context, id, new.metadata)

    def _records(
        self, records: Iterable[Put | Delete], context: Context, drafts: Sequence[Draft]
    ) -> tuple[RecordWrite, ...]:
        writes = checked_writes(Records(self._view), records, context.now)
        if writes and not drafts:
            raise ValidationError("records are written with messages, and there are none: use records.write")
        if writes:
            can = self.capabilities.append_records
            self._view.require(can, "append_records", "write records and messages in one commit: use records.write")
        return tuple(writes)

    async def _whole(self, context: Context, appended: Appended, blobs: Mapping[str, bytes]) -> Appended:
        with outcome_unknown_on_failure():
            whole = await read_query.with_blobs(self._view, context, appended.messages, "inline", blobs)
        # Fewer if one of them has been deleted since.
        return structs.replace(appended, messages=whole) if len(whole) == len(appended.messages) else appended

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
        # Records are written with the last piece: if they are stored, so are all messages.
        rest, last = structs.replace(append, records=()), len(pieces) - 1
        done = [
            await self._append_piece(context, id, append if number == last else rest, piece, number)
            for number, piece in enumerate(pieces)
        ]
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
        with outcome_unknown_on_failure():
            rest = structs.replace(append, drafts=piece, expected_version=None)
            return await self._backend.append(context, id, rest)

    async def replace_messages(
        self,
        conversation_id: str | int,
        messages: Iterable[Message | Mapping[str, Any]],
        *,
        branch: str | None = None,
        expected_version: int | None = None,
        revive: bool = False,
    ) -> Appended:
        """Makes the branch hold exactly these messages: a full snapshot.

        Messages at its beginning that are already equal stay as they are; a message without an id is equal if its body
        is. Messages that other branches share stay in those branches.

        - `conversation_id`: which conversation; it must exist.
        - `messages`: the whole branch, oldest first.
        - `branch`: which branch; None for the active one.
        - `expected_version`: apply only at this version, else raise `Conflict`.
        - `revive`: also store messages that were deleted before.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        made = drafts.make_drafts(drafts.as_messages(messages), self.limits)
        replace = Replace(
            made.drafts,
            checks.optional_id(branch, "branch", self.limits),
            checks.optional_count(expected_version, "expected_version"),
            self.limits.messages,
            made.blobs,
            checks.flag(revive, "revive"),
        )
        context = self._view.context()
        async with vector_records.removal(self._backend, context, id) as removal:
            appended = await self._backend.replace_messages(context, id, replace)
            await removal.delete_missing()
        with outcome_unknown_on_failure():
            await shares.forget_removed(self._backend, context, id)
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, id, [message.seq for message in appended.messages])
        return await self._whole(context, appended, made.blobs)


def _have_blobs(messages: list[Message]) -> bool:
    for message in messages:  # noqa: SIM110  (a generator costs more than the loop, on every append)
        if message.blobs:
            return True
    return False
