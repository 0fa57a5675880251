"""Backends that are wrong in one way each, so that the suite can be seen to notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from hansard import rules
from hansard.analysis import Lookup, Match, Matches, RankedMatch, Ranking, searchable
from hansard.backends.memory import MemoryBackend
from hansard.backends.memory.conversation import MemoryConversation
from hansard.contract.backend import Capabilities
from hansard.contract.types import (
    Append,
    Context,
    ConversationChange,
    ConversationQuery,
    Draft,
    MessageChange,
    MessageQuery,
    NewBranch,
    RecordQuery,
    RecordWrite,
    Remove,
    Removed,
    Slice,
)
from hansard.model import Appended, Branch, Conversation, Message, Receipt, Record, UsageRow
from hansard.search import scan

LONG_AGO = datetime(1, 1, 2, tzinfo=UTC)


def stored_of(backend: MemoryBackend, context: Context, id: str) -> MemoryConversation:
    stored = backend.storage.tenant(context).find(context, id)
    assert stored is not None
    return stored


class OrdersByTime(MemoryBackend):
    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await super().get_messages(context, id, structs.replace(query, sort="time"))


class ReusesSeq(MemoryBackend):
    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        removed = await super().remove_messages(context, id, remove)
        stored = stored_of(self, context, id)
        stored.state = structs.replace(stored.state, seq=max([seq for _, seq in stored.places.values()], default=0))
        return removed


class TearsBatches(MemoryBackend):
    """Appends one after another, and lets others in between."""

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        done = []
        for draft in append.drafts:
            done.append(await super().append(context, id, structs.replace(append, drafts=(draft,))))
            await asyncio.sleep(0)
        messages = [message for appended in done for message in appended.messages]
        return Appended(messages, done[-1].version, sum(each.stored for each in done), done[0].created)


class StoresTwice(MemoryBackend):
    async def append(self, context: Context, id: str, append: Append) -> Appended:
        known = await self.find_messages(context, id, [draft.message.id for draft in append.drafts])
        return await super().append(
            context, id, structs.replace(append, drafts=tuple(map(self._renamed(known), append.drafts)))
        )

    def _renamed(self, known: list[Message]) -> Callable[[Draft], Draft]:
        ids = {message.id for message in known}

        def renamed(draft: Draft) -> Draft:
            message = structs.replace(draft.message, id=f"{draft.message.id}+")
            return structs.replace(draft, message=message) if draft.message.id in ids else draft

        return renamed


class IgnoresVersions(MemoryBackend):
    async def append(self, context: Context, id: str, append: Append) -> Appended:
        return await super().append(context, id, structs.replace(append, expected_version=None))


class RefusesRetries(MemoryBackend):
    """Compares the version before it looks whether there is anything to do."""

    async def append(self, context: Context, id: str, append: Append) -> Appended:
        found = await self.get_conversation(context, id)
        if found is not None:
            rules.check_version(found, append.expected_version)
        return await super().append(context, id, append)


class Miscounts(MemoryBackend):
    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        stored = stored_of(self, context, id)
        before = stored.state.conversation.message_count
        removed = await super().remove_messages(context, id, remove)
        conversation = structs.replace(stored.state.conversation, message_count=before)
        stored.state = structs.replace(stored.state, conversation=conversation)
        return removed


class GuessesHasMore(MemoryBackend):
    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        found = await super().get_messages(context, id, query)
        return Slice(found.messages, len(found.messages) == query.limit)


class IgnoresBytes(MemoryBackend):
    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await super().get_messages(context, id, structs.replace(query, max_bytes=None))


class ForgetsFilters(MemoryBackend):
    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        return await super().get_messages(context, id, structs.replace(query, until=None))


class SharesValues(MemoryBackend):
    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        stored = self.storage.tenant(context).find(context, id)
        found = [stored.find(each) for each in message_ids] if stored else []
        return [message for message in found if message]

    async def get_messages(self, context: Context, id: str, query: MessageQuery) -> Slice:
        found = await super().get_messages(context, id, query)
        return Slice(await self.find_messages(context, id, [each.id for each in found.messages]), found.has_more)


class CountsFlushes(MemoryBackend):
    async def update_message(self, context: Context, id: str, message_id: str, change: MessageChange) -> Message:
        updated = await super().update_message(context, id, message_id, change)
        if updated.status == "in_progress":
            await super().update_conversation(context, id, ConversationChange())
        return updated


class IgnoresUsers(MemoryBackend):
    """Its walls have a hole: a message is found by id whoever asks."""

    async def find_messages(self, context: Context, id: str, message_ids: Sequence[str]) -> list[Message]:
        return await super().find_messages(structs.replace(context, user=None), id, message_ids)


class IgnoresTenants(MemoryBackend):
    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        return await super().scan_records(structs.replace(context, tenant="default"), query)


class TellsInErrors(MemoryBackend):
    async def update_conversation(self, context: Context, id: str, change: ConversationChange) -> Conversation:
        stored = self.storage.tenant(context).conversations.get(id)
        if stored is not None and context.user not in (None, stored.state.conversation.user_id):
            change = structs.replace(change, expected_version=10**9)
            context = structs.replace(context, user=None)
        return await super().update_conversation(context, id, change)


class NeverExpires(MemoryBackend):
    async def get_conversation(self, context: Context, id: str) -> Conversation | None:
        return await super().get_conversation(structs.replace(context, now=LONG_AGO), id)


class KeepsRecords(MemoryBackend):
    async def delete_conversation(self, context: Context, id: str, expected_version: int | None = None) -> Receipt:
        records = self.storage.tenant(context).records
        linked = {key: record for key, record in records.items() if record.conversation_id == id}
        for key in linked:
            self.storage.tenant(context).remove_record(key)
        receipt = await super().delete_conversation(context, id, expected_version)
        for record in linked.values():
            await super().write_records(context, [RecordWrite(record.namespace, record.key, record.value)])
        return receipt


class ForgetsTombstones(MemoryBackend):
    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        removed = await super().remove_messages(context, id, remove)
        self.storage.tenant(context).tombstones.clear()
        return removed


class KeepsSummaries(MemoryBackend):
    async def remove_messages(self, context: Context, id: str, remove: Remove) -> Removed:
        stored = stored_of(self, context, id)
        summaries = list(stored.summaries)
        removed = await super().remove_messages(context, id, remove)
        stored.summaries = summaries
        return removed


class LeaksIntoBranches(MemoryBackend):
    """A new branch goes on to read what its parent says later."""

    async def create_branch(self, context: Context, id: str, new: NewBranch) -> Branch:
        made = await super().create_branch(context, id, new)
        stored = stored_of(self, context, id)
        branch = stored.state.branches[new.id]
        path = tuple((segment, 10**9) for segment, _ in branch.path)
        stored.state = structs.replace(
            stored.state, branches={**stored.state.branches, new.id: structs.replace(branch, path=path)}
        )
        return made


class ScansByText(MemoryBackend):
    async def scan_records(self, context: Context, query: RecordQuery) -> tuple[list[Record], bool]:
        everything, _ = await super().scan_records(context, RecordQuery(limit=10**6))
        prefix = "/".join(query.prefix)
        found = [record for record in everything if "/".join(record.namespace).startswith(prefix)]
        return found[: query.limit], len(found) > query.limit


class WritesRecordsOneByOne(MemoryBackend):
    async def write_records(self, context: Context, writes: Sequence[RecordWrite]) -> list[Record | None]:
        return [(await super(WritesRecordsOneByOne, self).write_records(context, [write]))[0] for write in writes]


class ForgetsUsage(MemoryBackend):
    async def usage(self, context: Context, since: str | None, until: str | None) -> list[UsageRow]:
        rows = await super().usage(context, since, until)
        return rows if self.storage.tenant(context).conversations else []


class PagesByOffset(MemoryBackend):
    async def list_conversations(self, context: Context, query: ConversationQuery) -> tuple[list[Conversation], bool]:
        if query.below is None:
            self.seen = 0
        found, more = await super().list_conversations(context, structs.replace(query, below=None, offset=self.seen))
        self.seen += len(found)
        return found, more


class NeverWakes(MemoryBackend):
    """Hears only of what is there when it is asked."""

    async def wait(self, context: Context, id: str, seen: int, timeout: float) -> int:
        if seen == 0:
            return 1
        await asyncio.sleep(timeout)
        return seen


class WorksWhenClosed(MemoryBackend):
    async def close(self) -> None: ...


class RoundsTimes(MemoryBackend):
    async def append(self, context: Context, id: str, append: Append) -> Appended:
        def rounded(message: Message) -> Message:
            return structs.replace(message, created_at=message.created_at.replace(microsecond=0))

        drafts = tuple(structs.replace(draft, message=rounded(draft.message)) for draft in append.drafts)
        given = all(draft.message.created_at.year > 1 for draft in append.drafts)
        return await super().append(context, id, structs.replace(append, drafts=drafts) if given else append)


class SortsKeys(MemoryBackend):
    async def append(self, context: Context, id: str, append: Append) -> Appended:
        def in_order(content: Any) -> Any:
            return dict(sorted(content.items())) if isinstance(content, dict) else content

        drafts = tuple(
            structs.replace(draft, message=structs.replace(draft.message, content=in_order(draft.message.content)))
            for draft in append.drafts
        )
        return await super().append(context, id, structs.replace(append, drafts=drafts))


# Indexes. Each looks through the messages as the scan does, and then errs.


class MemoryIndex(MemoryBackend):
    @property
    def capabilities(self) -> Capabilities:
        return structs.replace(super().capabilities, search="index")

    async def rank(self, context: Context, lookup: Lookup) -> Ranking:
        found = (await self.search(context, lookup)).found
        return Ranking([RankedMatch(match, 1.0) for match in found])


class SearchesEveryUser(MemoryIndex):
    async def search(self, context: Context, lookup: Lookup) -> Matches:
        return await scan.find(self, structs.replace(context, user=None), structs.replace(lookup, user_id=None))


class IndexesLate(MemoryIndex):
    """The newest message of the store is not in the index yet."""

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        found = await scan.find(self, context, lookup)
        newest = max(
            each.seq
            for stored in self.storage.tenant(context).conversations.values()
            for _, each in stored.all_messages()
        )
        return structs.replace(found, found=[match for match in found.found if match.message.seq < newest])


class RemembersTheDeleted(MemoryIndex):
    def __init__(self) -> None:
        super().__init__()
        self._remembered: dict[str, Match] = {}

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        matches = await scan.find(self, context, lookup)
        self._remembered |= {match.message.id: match for match in matches.found}
        found = sorted(self._remembered.values(), key=lambda match: match.position, reverse=True)
        return structs.replace(matches, found=found)


class FindsParts(MemoryIndex):
    """As LIKE does: a part of the text, not words."""

    async def search(self, context: Context, lookup: Lookup) -> Matches:
        text = lookup.query.text.lower()
        found = [
            Match(stored.state.conversation, message)
            for stored in self.storage.tenant(context).conversations.values()
            for _, message in stored.all_messages()
            if text in searchable(message).lower()
        ]
        found.sort(key=lambda match: match.position, reverse=True)
        return Matches(found)
