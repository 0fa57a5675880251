"""Stores foreign conversations: whole trees as branches, and of those that are stored already only what is new.

A message is known by its id. A missing message is appended to the branch whose last message it follows, or to a new
branch that is named after its first message. So an import can be repeated, continued after it was stopped, and mixed
with messages that were written here meanwhile. What was deleted here stays deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, aclosing, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import cast

from msgspec import Struct, structs

from hansard.contract.backend import Indexed
from hansard.errors import Conflict, QuotaExceeded, ValidationError
from hansard.executor import run_in_thread
from hansard.importers.garbage import rare_collections
from hansard.importers.importer import (
    ForeignConversation,
    ForeignConversationWriter,
    ForeignMessage,
    characters_of,
    named,
    size_of,
)
from hansard.importers.report import ImportReport
from hansard.importers.transcripts import store_lines, store_new_lines
from hansard.importers.values import reporting_times, text
from hansard.model import MAIN, Conversation, Message, Rating
from hansard.store import Store, checks, marks
from hansard.store.append import MANY
from hansard.store.drafts import LONG, Drafts, make_drafts

BATCH = 1_000
"""Messages of one append."""
_BATCH_CHARACTERS = 4_000_000
"""Characters after which one ends: the storage holds them several times on their way, encoded and as words."""
_THUMBS = {"thumbs_up": 1, "thumbs_down": -1, "thumbsUp": 1, "thumbsDown": -1}
_COMMENT = 1_000
"""Characters of a rating's comment that are kept with it; the metadata has all of them."""
_GROUP = 200
"""Conversations that are stored at once, and below their messages and the characters of those."""
_GROUP_MESSAGES = 5_000
_GROUP_CHARACTERS = 4_000_000
"""The same, unless a single conversation has more. The search index costs less the more messages come at once."""

Progress = Callable[[ImportReport], None]
Conversations = Iterable[ForeignConversation] | AsyncIterable[ForeignConversation]


class Owner(Struct, frozen=True):
    """Whose the conversations become, where the source does not say it or the caller knows better."""

    user_id: str | None = None
    agent_id: str | None = None


async def load(
    store: Store,
    conversations: Conversations,
    report: ImportReport,
    *,
    owner: Owner = Owner(),  # noqa: B008  (frozen)
    dry_run: bool = False,
    strict: bool = False,
    progress: Progress | None = None,
) -> ImportReport:
    """Stores the conversations and returns the report. `dry_run` only counts. `strict` raises the first problem."""
    with rare_collections(), _indexing(store, is_needed=not dry_run):
        if not isinstance(conversations, AsyncIterable):
            conversations = reporting_times(conversations, report)
        async with aclosing(_groups(conversations, 1 if strict else _GROUP)) as groups:
            async for group in groups:
                if strict:
                    _refuse_problems(report)
                # At once: the storage commits them together.
                ways = (_load_one(_Loading(store, *each, report, owner), dry_run=dry_run) for each in group)
                failed = [each for each in await asyncio.gather(*ways, return_exceptions=True) if each is not None]
                if failed:
                    raise failed[0]
                if progress is not None:
                    progress(report)
    if not dry_run:
        await _index(store)
    if not report.conversations and not report.problems:
        report.complain(report.source, "no conversation was found")
    if strict:
        _refuse_problems(report)
    return report


def _refuse_problems(report: ImportReport) -> None:
    if report.problems:
        problem = report.problems[0]
        raise ValidationError(f"{problem.where}: {problem.what}")


async def _load_one(loading: _Loading, *, dry_run: bool) -> None:
    try:
        await (loading.count() if dry_run else loading.run())
    except (ValidationError, Conflict, QuotaExceeded) as error:
        await loading.take_back()
        loading.complain(str(error))


def _indexing(store: Store, *, is_needed: bool) -> AbstractContextManager[None]:
    is_indexed = is_needed and store.capabilities.search == "index"
    return cast(Indexed, store.backend).bulk_load() if is_indexed else nullcontext()


async def _index(store: Store) -> None:
    """What was imported can be found at once."""
    if store.capabilities.search == "index":
        await cast(Indexed, store.backend).catch_up()


async def _groups(conversations: Conversations, most: int) -> AsyncGenerator[list[tuple[ForeignConversation, int]]]:
    """Conversations to store at once, with their sizes: different ones, and few enough messages to hold."""
    group: dict[str, tuple[ForeignConversation, int]] = {}
    messages = characters = 0
    async with aclosing(_each(conversations)) as each:
        async for conversation in each:
            count = len(conversation.messages)
            size = size_of(conversation)
            is_full = len(group) >= most or messages + count > _GROUP_MESSAGES or characters + size > _GROUP_CHARACTERS
            if group and (is_full or conversation.id in group):
                yield [*group.values()]
                group, messages, characters = {}, 0, 0
            group[conversation.id] = conversation, size
            messages, characters = messages + count, characters + size
            if conversation.writer is not None:
                # It reads on from its source, which the importer closes when it goes on.
                yield [*group.values()]
                group, messages, characters = {}, 0, 0
    if group:
        yield [*group.values()]


async def _each(conversations: Conversations) -> AsyncGenerator[ForeignConversation]:
    if isinstance(conversations, AsyncIterable):
        async for each in conversations:
            yield each
        return
    for each in conversations:
        yield each


class _Loading:
    """One conversation on its way into a store."""

    def __init__(self, store: Store, given: ForeignConversation, size: int, report: ImportReport, owner: Owner) -> None:
        self._store = store
        self._given = given
        self._size = size
        self._report = report
        self._owner = owner
        self._messages = _ordered(given, report)
        self._branch_of: dict[str, str] = {}
        """The branch on which each stored message can be found."""
        self._tips: dict[str, str] = {}
        """The branch of which a message is the last one."""
        self._is_new = True
        self._is_created = False
        self._empty_branch: str | None = None
        """The branch of a conversation that is stored without any message, as by an import that was stopped."""
        self._stored = 0
        self._left_out: set[str] = set()
        """Messages that the store does not take. What follows one follows the message before it."""
        self._is_refused = False
        """Whether one of them is beyond the limits."""

    @property
    def _user_id(self) -> str | None:
        """In a user's view everything becomes that user's, whatever the file says."""
        return self._owner.user_id or self._store.user_id or self._given.user_id

    async def count(self) -> None:
        """What `run` would do, without doing it."""
        found = await self._store.get_conversation(self._given.id)
        if self._given.writer is not None:
            self._is_new = found is None
            grown = max(0, self._given.writer.count() - (found.message_count if found is not None else 0))
            self._report.messages += grown
            self._note(grown)
            return
        if found is not None:
            await self._find_stored(found)
        else:
            self._check()
        kept = self._within_limits()
        missing = [id for id in kept if id not in self._branch_of]
        if self._is_new and not kept and self._is_refused:
            return  # each message was reported
        self._report.messages += len(missing)
        self._report.branches += max(0, len(_leaves(kept)) - 1) if found is None else 0
        self._note(len(missing))

    def _check(self) -> None:
        """Raises `ValidationError` if the conversation itself is beyond the store's limits."""
        given, limits = self._given, self._store.limits
        checks.id_of(given.id, "id", limits)
        checks.optional_id(self._user_id, "user_id", limits)
        checks.optional_id(self._owner.agent_id or given.agent_id, "agent_id", limits)
        checks.optional_text(given.title or given.first_words, "title")
        checks.metadata(given.metadata)

    def _within_limits(self) -> dict[str, ForeignMessage]:
        """The messages that the store has or would take, each with the nearest of them above it."""
        kept: dict[str, ForeignMessage] = {}
        for id, each in self._messages.items():
            parent = each.parent
            while parent in self._left_out:
                parent = self._messages[parent].parent
            if id in self._branch_of or self._is_within_limits(each.message):
                kept[id] = ForeignMessage(each.message, parent)
        return kept

    def _is_within_limits(self, message: Message) -> bool:
        try:
            make_drafts([self._prepared(message)], self._store.limits, are_parsed=self._given.is_parsed)
        except ValidationError as error:
            self._refuse(message, error)
            return False
        return True

    def _refuse(self, message: Message, error: ValidationError) -> None:
        self._left_out.add(message.id)
        self._is_refused = True
        self._report.complain(f"conversation {self._given.id!r}, message {message.id[:100]!r}", str(error))

    async def run(self) -> None:
        found = await self._store.get_conversation(self._given.id)
        if self._given.writer is not None:
            await self._run_writer(self._given.writer, found)
            return
        if found is not None:
            await self._find_stored(found)
        for leaf in _leaves(self._messages, self._shown_leaf()):
            await self._store_path(leaf)
        stored = self._stored
        if self._is_new and not self._messages:
            await self._create()
        elif self._is_created and not stored and await self._delete_empty():
            if self._is_refused:
                return  # each message was reported
            raise Conflict("it was deleted from this store, and stays deleted")
        self._note(stored)
        if stored:
            await self._activate()
        await self._put_records()
        lines = 0
        if self._given.transcript is not None:
            store = self._store
            if self._is_created:
                lines = await store_new_lines(store, self._user_id, self._given.id, self._given.transcript)
            else:
                lines = await store_lines(store, self._given.id, self._given.transcript)
            self._report.lines += lines
        if found is not None and (stored or lines):
            await self._describe(found)

    async def _run_writer(self, writer: ForeignConversationWriter, found: Conversation | None) -> None:
        self._is_new = found is None
        branches = len(await self._store.list_branches(self._given.id)) if found is not None else 1
        await writer.write(self._store, self._user_id)
        now = await self._store.get_conversation(self._given.id)
        if now is not None:
            self._report.branches += len(await self._store.list_branches(self._given.id)) - branches
        stored = (now.message_count if now else 0) - (found.message_count if found else 0)
        self._report.messages += max(0, stored)
        self._note(stored)
        if now is not None:
            await self._describe(now)

    async def _put_records(self) -> None:
        user_id = self._user_id
        owner = self._store if user_id in (None, self._store.user_id) else self._store.user(user_id)
        for view, records in ((self._store, self._given.records), (owner, self._given.user_records)):
            for record in records:
                if await view.records.get(record.namespace, record.key) is None:
                    await view.records.write([record])

    def complain(self, what: str) -> None:
        self._report.complain(f"conversation {self._given.id!r}", what)

    async def take_back(self) -> None:
        """Removes a conversation that was made by this import and got no message."""
        if self._is_created and not self._branch_of:
            await self._delete_empty()

    async def _delete_empty(self) -> bool:
        """Deletes the conversation unless another import has stored its messages."""
        found = await self._store.get_conversation(self._given.id)
        if found is None or found.message_count:
            return False
        await self._store.delete_conversation(self._given.id)
        return True

    def _note(self, stored: int) -> None:
        if self._is_new:
            self._report.new += 1
        elif stored:
            self._report.grown += 1
        else:
            self._report.unchanged += 1

    def _shown_leaf(self) -> str | None:
        leaf = self._given.leaf
        if leaf in self._messages:
            return leaf
        return next(reversed(self._messages), None)

    async def _find_stored(self, found: Conversation) -> None:
        self._is_new = False
        if not found.message_count:
            self._empty_branch = found.branch
            await self._archive()
            return
        for branch in await self._store.list_branches(found.id):
            last = None
            async for message in self._store.iter_messages(found.id, branch=branch.id, blobs="refs"):
                self._branch_of.setdefault(message.id, branch.id)
                last = message.id
            if last is not None:
                self._tips[last] = branch.id

    async def _store_path(self, leaf: str) -> None:
        """Stores what is missing of the way from the first message to this one."""
        missing: list[Message] = []
        at: str | None = leaf
        while at is not None and at not in self._branch_of:
            each = self._messages[at]
            if at not in self._left_out:
                missing.append(self._prepared(each.message))
            at = each.parent
        if missing:
            missing.reverse()
            await self._append(at, missing)

    async def _append(self, after: str | None, messages: list[Message]) -> None:
        branch = await self._branch_after(after, messages[0].id)
        for batch in self._batches(messages):
            try:
                drafts = await self._drafts(batch)
                appended = await self._store.append(self._given.id, drafts, branch=branch, create=False, split=True)
                self._count_stored(appended.stored)
            except (Conflict, ValidationError):
                await self._append_one_by_one(batch, branch)
        kept = [message.id for message in messages if message.id not in self._left_out]
        if kept:
            self._tips.pop(after or "", None)
            self._tips[kept[-1]] = branch
            self._branch_of.update(dict.fromkeys(kept, branch))

    def _batches(self, messages: list[Message]) -> Iterator[list[Message]]:
        if self._size <= _BATCH_CHARACTERS:
            yield from (messages[start : start + BATCH] for start in range(0, len(messages), BATCH))
            return
        batch: list[Message] = []
        characters = 0
        for message in messages:
            batch.append(message)
            characters += characters_of(message.content)
            if len(batch) == BATCH or characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    async def _drafts(self, messages: list[Message]) -> Drafts | list[Message]:
        """The messages, checked and encoded where that is less work than the Store has with messages of any origin."""
        if self._messages[messages[0].id].draft is not None:
            drafts = [each for message in messages if (each := self._messages[message.id].draft) is not None]
            if len(drafts) == len(messages):
                return Drafts(tuple(drafts), {})
        if not self._given.is_parsed:
            return messages
        limits = self._store.limits
        if len(messages) > MANY or self._size > LONG:
            return await run_in_thread(partial(make_drafts, messages, limits, are_parsed=True))
        return make_drafts(messages, limits, are_parsed=True)

    def _prepared(self, message: Message) -> Message:
        has_rating = message.metadata is not None and "rating" in message.metadata
        return self._rated(message) if has_rating else message

    def _rated(self, message: Message) -> Message:
        """Returns a message with what somebody thought of it in the foreign program."""
        given = (message.metadata or {})["rating"]
        try:
            value = marks.checked_value(_rating_in(given) if isinstance(given, str) else given)
        except ValidationError as error:
            self._report.lose("rating that is no number, or too large", f"message {message.id!r}: {error}"[:160])
            return message
        comment = text((message.metadata or {}).get("rating_comment"))[:_COMMENT] or None
        return structs.replace(message, ratings=(Rating(value, self._user_id, comment),))

    def _count_stored(self, messages: int) -> None:
        self._stored += messages
        self._report.messages += messages

    async def _append_one_by_one(self, messages: list[Message], branch: str) -> None:
        """Stores what was not deleted here and is within the limits: one message must not keep the others out."""
        for message in messages:
            try:
                appended = await self._store.append(self._given.id, message, branch=branch, create=False)
                self._count_stored(appended.stored)
            except Conflict as conflict:
                self._left_out.add(message.id)
                self._report.lose("was deleted from this store", str(conflict))
            except ValidationError as error:
                self._refuse(message, error)

    async def _branch_after(self, after: str | None, first: str) -> str:
        """Returns the branch that ends with a message, or a new one from there."""
        if not self._branch_of:
            if self._is_new and await self._create():
                return MAIN
            if self._empty_branch is not None:
                return self._empty_branch
        if after is not None and after in self._tips:
            return self._tips[after]
        source = self._branch_of[after] if after is not None else None
        try:
            await self._store.branch(
                self._given.id, at=after, source=source, empty=after is None, branch_id=first, activate=False
            )
        except Conflict:
            if first not in [branch.id for branch in await self._store.list_branches(self._given.id)]:
                raise
            return first  # another import of the same file has made it
        self._report.branches += 1
        return first

    async def _create(self) -> bool:
        """Creates the conversation. Returns False if another import has created it since it was looked for."""
        given = self._given
        try:
            await self._store.create_conversation(
                given.id,
                user_id=self._user_id,
                agent_id=self._owner.agent_id or given.agent_id,
                audit_id=given.audit_id,
                title=given.title or given.first_words,
                metadata=given.metadata,
                created_at=_earlier(given.created_at, datetime.now(UTC)),
            )
        except Conflict:
            found = await self._store.get_conversation(given.id)
            if found is None:
                raise
            self._is_new = False
            self._empty_branch = found.branch
            return False
        self._is_created = True
        await self._archive()
        return True

    async def _archive(self) -> None:
        """Before there are messages: an import that is stopped among them has done it."""
        if self._given.archived_at is not None:
            await self._store.update_conversation(self._given.id, archived=True)

    async def _describe(self, found: Conversation) -> None:
        """Metadata of the foreign program follow it, as the model in use. A title that was given here stays."""
        given = self._given
        changed = {name: value for name, value in given.metadata.items() if found.metadata.get(name) != value}
        best = given.title or given.first_words
        title = best if found.title in (None, given.first_words) and best != found.title else None
        if changed:
            await self._store.update_conversation(given.id, metadata=changed)
        if title:
            await self._store.update_conversation(given.id, title=title)

    async def _activate(self) -> None:
        """Makes the branch that the foreign program shows the active one."""
        leaf = self._shown_leaf()
        while leaf in self._left_out:
            leaf = self._messages[leaf].parent
        if leaf is None:
            return
        branch = self._branch_of[leaf]
        if branch != await self._active_branch():
            await self._store.switch_branch(self._given.id, branch)

    async def _active_branch(self) -> str | None:
        if self._is_created:
            return MAIN
        conversation = await self._store.get_conversation(self._given.id)
        return None if conversation is None else conversation.branch


def _rating_in(text: str) -> float | None:
    """A thumb, or a number as a table has it; None for anything else."""
    try:
        return _THUMBS[text] if text in _THUMBS else float(text)
    except ValueError:
        return None


def _earlier(time: datetime | None, now: datetime) -> datetime | None:
    """A clock that was ahead must not keep a conversation out."""
    return time if time is None or time <= now else now


def _ordered(given: ForeignConversation, report: ImportReport) -> dict[str, ForeignMessage]:
    """The messages by id, parents before children. Missing parents, cycles and repeated ids are reported."""
    messages = named(given.messages)
    if (chain := _chain(messages)) is not None:
        return chain
    where = f"conversation {given.id!r}"
    by_id: dict[str, ForeignMessage] = {}
    for each in messages:
        if each.message.id in by_id:
            report.complain(where, f"message {each.message.id!r} is there twice: the first one was taken")
        else:
            by_id[each.message.id] = each
    for id, each in by_id.items():
        if each.parent is not None and each.parent not in by_id:
            report.complain(where, f"message {id!r} follows {each.parent!r}, which is missing: it begins a branch")
            by_id[id] = ForeignMessage(each.message, None)
    return _sorted_by_parent(by_id, where, report)


def _chain(messages: list[ForeignMessage]) -> dict[str, ForeignMessage] | None:
    """The messages by id if each follows the one before it, as most do; else None."""
    chain: dict[str, ForeignMessage] = {}
    before: str | None = None
    for each in messages:
        if each.parent != before:
            return None
        before = each.message.id
        chain[before] = each
    return chain if len(chain) == len(messages) else None


def _sorted_by_parent(by_id: dict[str, ForeignMessage], where: str, report: ImportReport) -> dict[str, ForeignMessage]:
    done: dict[str, ForeignMessage] = {}
    for id in by_id:
        path: dict[str, None] = {}
        at: str | None = id
        while at is not None and at not in done and at not in path:
            path[at] = None
            at = by_id[at].parent
        for each in reversed(path):
            message = by_id[each]
            if message.parent is not None and message.parent not in done:
                report.complain(where, f"message {each!r} is its own ancestor: it begins a branch")
                message = ForeignMessage(message.message, None)
            done[each] = message
    return done


def _leaves(messages: dict[str, ForeignMessage], first: str | None = None) -> list[str]:
    """The messages that nothing follows, the named one before the others."""
    parents = {each.parent for each in messages.values()}
    leaves = [id for id in messages if id not in parents and id != first]
    return leaves if first is None else [first, *leaves]


__all__ = ["BATCH", "Owner", "Progress", "load"]
