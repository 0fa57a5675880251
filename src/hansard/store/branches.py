"""Branches, forks and summaries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from hansard import ids, rules
from hansard.contract.types import Context, ConversationChange, NewBranch
from hansard.errors import Conflict, Unavailable, ValidationError
from hansard.model import Branch, Conversation, Message, Receipt, Summary
from hansard.store import checks, marks, shares, vector_records
from hansard.store.append import AppendMethods
from hansard.store.core import StorePart, outcome_unknown_on_failure
from hansard.store.messages import MessageMethods

_FORK_BATCH = 500


class BranchMethods(StorePart):
    async def branch(
        self,
        conversation_id: str | int,
        *,
        at: str | int | None = None,
        before: str | int | None = None,
        empty: bool = False,
        source: str | None = None,
        branch_id: str | None = None,
        activate: bool = True,
        expected_version: int | None = None,
    ) -> Branch:
        """Creates a branch and, by default, makes it the active one. It shares messages of `source` without copying
        them.

        - `conversation_id`: which conversation.
        - `at`: share everything up to and including this message.
        - `before`: share everything before this message, which is how to edit it.
        - `empty`: share nothing. Without `at`, `before` and `empty`, the branch shares everything.
        - `source`: the branch to start from; None for the active one.
        - `branch_id`: an id of your own; None lets the store choose one, `branch_…`.
        - `activate`: False leaves the active branch as it is.
        - `expected_version`: apply only at this version, else raise `Conflict`.
        """
        checks.only_one(at=at, before=before, empty=empty or None)
        limits = self.limits
        self._view.require(self.capabilities.branches, "branches", "branch")
        new = NewBranch(
            id=ids.branch_id() if branch_id is None else checks.id_of(branch_id, "branch_id", limits),
            source=checks.optional_id(source, "source", limits),
            at=None if at is None else checks.message_id(at, limits),
            before=None if before is None else checks.message_id(before, limits),
            empty=checks.flag(empty, "empty"),
            activate=checks.flag(activate, "activate"),
            expected_version=checks.optional_count(expected_version, "expected_version"),
        )
        id = checks.id_of(conversation_id, "conversation_id", limits)
        return await self._backend.create_branch(self._view.context(), id, new)

    async def switch_branch(
        self, conversation_id: str | int, branch: str, *, expected_version: int | None = None
    ) -> Conversation:
        """Makes another branch the active one, and returns the conversation.

        - `conversation_id`, `branch`: which branch of which conversation; `NotFound` if there is none.
        - `expected_version`: apply only at this version, else raise `Conflict`.
        """
        change = ConversationChange(
            branch=checks.id_of(branch, "branch", self.limits),
            expected_version=checks.optional_count(expected_version, "expected_version"),
        )
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        return await self._backend.update_conversation(self._view.context(), id, change)

    async def list_branches(self, conversation_id: str | int) -> list[Branch]:
        """Returns the branches of `conversation_id`, oldest first; none for a missing conversation."""
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        return await self._backend.list_branches(self._view.context(), id)

    async def delete_branch(
        self, conversation_id: str | int, branch: str, *, expected_version: int | None = None
    ) -> Receipt:
        """Deletes a branch and the messages that only it holds.

        - `conversation_id`, `branch`: which branch. `Conflict` if it is active or other branches start from it.
        - `expected_version`: delete only at this version, else raise `Conflict`.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        name = checks.id_of(branch, "branch", self.limits)
        expected = checks.optional_count(expected_version, "expected_version")
        context = self._view.context()
        async with vector_records.removal(self._backend, context, id) as removal:
            receipt = await self._backend.delete_branch(context, id, name, expected)
            await removal.delete_missing()
        with outcome_unknown_on_failure():
            await shares.forget_removed(self._backend, context, id)
        return receipt

    async def fork(
        self,
        conversation_id: str | int,
        *,
        at: str | int | None = None,
        branch: str | None = None,
        new_id: str | int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Conversation:
        """Copies a branch into a new, independent conversation, and returns that.

        - `conversation_id`, `branch`: what to copy; None for the active branch.
        - `at`: copy up to and including this message; None for everything.
        - `new_id`: the id of the new conversation; None lets the store choose one.
        - `metadata`: merged into the copied metadata.
        """
        limits = self.limits
        id = checks.id_of(conversation_id, "conversation_id", limits)
        context = self._view.context()
        source = await self._backend.get_conversation(context, id)
        if source is None:
            raise rules.not_found(id)
        last = None if at is None else checks.message_id(at, limits)
        target = structs.replace(
            source,
            id=ids.conversation_id() if new_id is None else checks.id_of(new_id, "new_id", limits),
            metadata=source.metadata | checks.metadata(metadata),
            created_at=context.now,
            updated_at=context.now,
        )
        try:
            made = await self._backend.create_conversation(context, target)
        except Unavailable as error:
            if error.outcome == "unknown":
                await self._take_back(context, target)
            raise
        try:
            await self._copy_branch(id, made.id, branch, last)
        except BaseException:
            with outcome_unknown_on_failure():
                await self._backend.delete_conversation(context, made.id)
            raise
        with outcome_unknown_on_failure():
            await marks.note_conversation(self._backend, context, made.id, made.metadata)
            copied = await self._backend.get_conversation(context, made.id)
        if copied is None:
            # It was deleted at once, for example with its tenant.
            raise rules.not_found(made.id)
        if self._view.embeddings is not None:
            self._view.embeddings.note(context.tenant, made.id, None)
        return copied

    async def _take_back(self, context: Context, target: Conversation) -> None:
        """Deletes a fork whose creation may have succeeded although its reply was lost, so that it can be tried again.

        Deletes only a conversation with exactly our creation time and no writes; any other belongs to another caller.
        """
        with outcome_unknown_on_failure():
            found = await self._backend.get_conversation(context, target.id)
            if found is not None and found.created_at == target.created_at and not found.version:
                expected = 0 if self.capabilities.compare_and_swap else None
                with suppress(Conflict):
                    await self._backend.delete_conversation(context, target.id, expected)

    async def _copy_branch(self, source: str, target: str, branch: str | None, last: str | None) -> None:
        append = AppendMethods(self._view).append
        batch: list[Message] = []
        reached = last is None
        async for message in MessageMethods(self._view).iter_messages(source, branch=branch):
            batch.append(message)
            reached = reached or message.id == last
            if len(batch) == _FORK_BATCH or message.id == last:
                await append(target, batch, create=False, revive=True, count_usage=False)
                batch = []
            if message.id == last:
                break
        if not reached:
            raise rules.no_message(source, str(last))
        await append(target, batch, create=False, revive=True, count_usage=False)

    # Summaries

    async def add_summary(
        self,
        conversation_id: str | int,
        text: str,
        *,
        from_seq: int,
        to_seq: int,
        branch: str | None = None,
        model: str | None = None,
        prompt_id: str | None = None,
        token_count: int | None = None,
    ) -> Summary:
        """Stores a summary of a range of messages. The messages stay.

        - `conversation_id`, `branch`: which branch; None for the active one.
        - `text`: the summary.
        - `from_seq`, `to_seq`: the seqs of the first and the last message that it covers.
        - `model`, `prompt_id`: the model and the prompt that wrote it.
        - `token_count`: how many tokens the text has.
        """
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        context = self._view.context()
        conversation = await self._backend.get_conversation(context, id)
        if conversation is None:
            raise rules.not_found(id)
        first, last = checks.count(from_seq, "from_seq"), checks.count(to_seq, "to_seq")
        if first > last:
            raise ValidationError(f"from_seq {first} is after to_seq {last}")
        if not checks.text(text, "text").strip():
            raise ValidationError("the text of a summary is empty")
        summary = Summary(
            conversation_id=id,
            from_seq=first,
            to_seq=last,
            text=text,
            branch=conversation.branch if branch is None else checks.id_of(branch, "branch", self.limits),
            model=checks.optional_text(model, "model"),
            prompt_id=checks.optional_text(prompt_id, "prompt_id"),
            token_count=checks.optional_count(token_count, "token_count"),
            created_at=context.now,
        )
        await self._backend.put_summary(context, summary)
        return summary

    async def list_summaries(self, conversation_id: str | int, *, branch: str | None = None) -> list[Summary]:
        """Returns the summaries of `conversation_id`, oldest first: of `branch`, or of all branches."""
        id = checks.id_of(conversation_id, "conversation_id", self.limits)
        name = checks.optional_id(branch, "branch", self.limits)
        return await self._backend.list_summaries(self._view.context(), id, name)
