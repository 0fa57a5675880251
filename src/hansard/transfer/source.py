"""What is read from a store that is copied or exported, in pieces of bounded size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from msgspec import Struct, structs

from hansard import codec, cursors, rules
from hansard.contract.types import Context, ConversationQuery, RecordQuery, Row
from hansard.errors import Corrupt
from hansard.model import Conversation, Record, Summary, to_micros
from hansard.store import vectoring
from hansard.store.core import View
from hansard.transfer.numbering import Numbered, numbered

ROWS = 2000
BYTES = 8_000_000
_PAGE = 100
_RECORDS = 50


def pieces(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows, cut where the blobs that they refer to pass the bound in bytes."""
    start = size = 0
    for index, row in enumerate(rows):
        if row.message.blobs:
            size += sum(ref.size for ref in row.message.blobs)
            if size >= BYTES:
                yield rows[start : index + 1]
                start, size = index + 1, 0
    if start < len(rows):
        yield rows[start:]


def _checked_last(rows: Sequence[Row], after: int, id: str) -> int:
    """The last seq of a page. `Corrupt` when it does not go upwards: whoever reads on from there would never end."""
    for row in rows:
        if row.message.seq <= after:
            where = f"message {row.message.id!r} of conversation {id!r}"
            raise Corrupt(f"{where} is not in the order of seq", where=where)
        after = row.message.seq
    return after


class Choice(Struct, frozen=True):
    """Which conversations are meant, checked. Records come along: see `Source.records`."""

    conversation_ids: tuple[str, ...] | None = None
    user_id: str | None = None
    agent_id: str | None = None

    @property
    def is_everything(self) -> bool:
        return self.conversation_ids is None and self.user_id is None and self.agent_id is None


class Source:
    def __init__(self, view: View, choice: Choice) -> None:
        self._view = view
        self._backend = view.backend
        self._choice = choice
        self._ids = frozenset(choice.conversation_ids or ())

    async def check(self) -> None:
        """Conversations that were asked for by their ids must exist."""
        for id in self._choice.conversation_ids or ():
            if await self._backend.get_conversation(self._view.context(), id) is None:
                raise rules.not_found(id)

    async def conversations(self) -> AsyncIterator[str]:
        """The id of each conversation, once. One that is written to meanwhile is not missed."""
        if self._choice.conversation_ids is not None:
            for id in dict.fromkeys(self._choice.conversation_ids):
                yield id
            return
        # By the time of the last change, upwards: a conversation that changes moves to where we have not been. Only
        # the hash of an id is remembered, so that a large store costs little.
        seen: set[int] = set()
        async for conversation in self._changed_upwards():
            if hash(conversation.id) not in seen:
                seen.add(hash(conversation.id))
                yield conversation.id

    async def _changed_upwards(self) -> AsyncIterator[Conversation]:
        query = ConversationQuery(
            user_id=self._choice.user_id,
            agent_id=self._choice.agent_id,
            archived=None,
            sort="updated_at",
            newest_first=False,
            limit=_PAGE,
        )
        more = True
        while more:
            page, more = await self._backend.list_conversations(self._view.context(), query)
            for conversation in page:
                yield conversation
            if page:
                last = page[-1]
                query = structs.replace(query, above=(to_micros(cursors.sort_time(last, "updated_at")), last.id))

    async def image(self, id: str) -> Numbered | None:
        image = await self._backend.read_image(self._view.context(), id)
        return None if image is None else numbered(image)

    async def rows(self, of: Numbered) -> AsyncIterator[Sequence[Row]]:
        """The messages that the image counts, of all lines, in the order of seq."""
        last, end = 0, of.image.seq
        while last < end:
            rows = await self._backend.read_rows(self._view.context(), of.image.conversation.id, last, ROWS, BYTES)
            if not rows:
                return
            last = _checked_last(rows, last, of.image.conversation.id)
            if last > end:
                rows = [row for row in rows if row.message.seq <= end]
            of.check(rows)
            for piece in pieces(rows):
                yield piece

    async def blobs(self, digests: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(digests))
        found = await self._backend.get_blobs(self._view.context(), wanted) if wanted else {}
        for sha256 in wanted:
            if sha256 not in found:
                raise Corrupt(f"blob {sha256} is missing, but a message refers to it", where=f"blob {sha256}")
            codec.check_blob(sha256, found[sha256], f"tenant {self._view.tenant!r}")
        return found

    async def summaries(self, id: str) -> list[Summary]:
        return await self._backend.list_summaries(self._view.context(), id, None)

    # Records

    async def records(self) -> AsyncIterator[tuple[str | None, list[Record]]]:
        """Records, with the user in whose space they lie.

        All of them; or, of a choice, those that belong to its conversations, and the chosen user's own.
        """
        if not self._backend.capabilities.records:
            return
        for owner in await self._owners():
            async for page in self._record_pages(owner):
                own = [record for record in page if not vectoring.is_own_affair(record)]
                chosen = [record for record in own if await self._is_chosen(owner, record)]
                if chosen:
                    yield owner, chosen

    async def _owners(self) -> list[str | None]:
        """Whose spaces to look into; None is the tenant's."""
        if self._view.user is not None:
            return [self._view.user]
        return [None, *await self._backend.record_owners(self._view.context())]

    async def _record_pages(self, owner: str | None) -> AsyncIterator[list[Record]]:
        query = RecordQuery(limit=_RECORDS)
        more = True
        while more:
            context = Context(self._view.tenant, self._view.clock(), owner)
            page, more = await self._backend.scan_records(context, query)
            yield page
            if page:
                query = structs.replace(query, after=(page[-1].namespace, page[-1].key))

    async def _is_chosen(self, owner: str | None, record: Record) -> bool:
        choice = self._choice
        if choice.is_everything or (owner is not None and owner == choice.user_id and choice.agent_id is None):
            return True
        id = record.conversation_id
        if id is None:
            return False
        if choice.conversation_ids is not None:
            return id in self._ids
        context = self._view.context()
        conversation = await self._backend.get_conversation(context, id)
        query = ConversationQuery(user_id=choice.user_id, agent_id=choice.agent_id, archived=None)
        return conversation is not None and rules.matches(conversation, query, context)
