"""What a member sees: the conversations of others, read as if without a user, after the conversation has said so.

A storage knows only owners. So a read in the view of a user that finds nothing is repeated here, if the user is a
member. Writes need none of this: their operations see the members in the state.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from msgspec import structs

from hansard import rules
from hansard.analysis import Lookup, Matches, Ranking
from hansard.backends.shared import lists
from hansard.contract.backend import Index
from hansard.contract.storage import Storage, Wants
from hansard.contract.types import Context, ConversationQuery, RecordQuery
from hansard.errors import Denied
from hansard.model import Conversation

ListedPage = tuple[list[Conversation], bool]
OwnList = Callable[[Context, ConversationQuery, tuple[str, ...]], Awaitable[ListedPage | None]]
"""Like `Storage.list_conversations`, but returns None if the tenant has shared records of this exact namespace."""

_ONLY_STATE = Wants()
_SEARCHED = 100
"""How many conversations of others one search covers, in addition to the user's own."""


async def as_member(storage: Storage, context: Context, id: str) -> Context | None:
    """Returns the context in which a member reads; None if the user is none, or owns the conversation."""
    if context.user is None:
        return None
    shared = rules.without_user(context)
    found = await storage.read(shared, id, _ONLY_STATE)
    if found is None or context.user == found[0].conversation.user_id:
        return None
    return shared if context.user in found[0].conversation.members else None


async def refuse_records(storage: Storage, context: Context, id: str) -> None:
    """Refuses records of a member that would belong to the conversation: storages show them only to its owner."""
    if await as_member(storage, context, id) is not None:
        raise Denied(f"only the owner of conversation {id!r} may store records that belong to it")


async def conversations(storage: Storage, context: Context) -> list[Conversation]:
    """Returns the conversations that the context's user is a member of."""
    user = context.user
    if user is None or not storage.capabilities.records:
        return []
    shared = rules.without_user(context)
    query = RecordQuery(prefix=(*rules.MEMBERSHIPS, user), exact=True, limit=rules.MOST_MEMBERSHIPS)
    noted, _ = await storage.scan_records(shared, query)
    found = [await storage.read(shared, record.key, _ONLY_STATE) for record in noted]
    states = [each[0].conversation for each in found if each is not None]
    return [each for each in states if user != each.user_id and user in each.members]


async def listed(
    storage: Storage, context: Context, query: ConversationQuery, list_own: OwnList | None = None
) -> ListedPage:
    """Returns a page of the user's own conversations and of those that the user is a member of."""
    if list_own is not None and query.memberships and context.user is not None:
        page = await list_own(context, query, (*rules.MEMBERSHIPS, context.user))
        if page is not None:
            return page
    others = await conversations(storage, context) if query.memberships else []
    if not others:
        return await storage.list_conversations(context, query)
    own, _ = await storage.list_conversations(
        context, structs.replace(query, offset=0, limit=query.offset + query.limit + 1)
    )
    return lists.page_of_conversations([*own, *others], context, structs.replace(query, user_id=None))


async def searched(storage: Storage, index: Index, context: Context, lookup: Lookup) -> Matches:
    """Searches the user's own conversations, and those that the user is a member of."""
    if lookup.conversation_id is not None:
        own = await index.search(context, lookup)
        # Only its owner finds something without being a member.
        shared = None if own.found else await as_member(storage, context, lookup.conversation_id)
        return own if shared is None else await index.search(shared, _of_anybody(lookup))
    places, complete = await _places(storage, context, lookup)
    return _merged([await index.search(*place) for place in places], lookup.limit, complete=complete)


async def ranked(storage: Storage, index: Index, context: Context, lookup: Lookup) -> Ranking:
    """Ranks what is in the user's own conversations, and in each of those that the user is a member of."""
    if lookup.conversation_id is not None:
        own = await index.rank(context, lookup)
        shared = None if own.found else await as_member(storage, context, lookup.conversation_id)
        return own if shared is None else await index.rank(shared, _of_anybody(lookup))
    places, complete = await _places(storage, context, lookup)
    rankings = [await index.rank(*place) for place in places]
    if len(rankings) == 1:
        return rankings[0]
    every = [match for each in rankings for match in each.found]
    every.sort(key=lambda each: (each.score, each.match.position), reverse=True)
    return Ranking(every[: lookup.limit], complete and all(each.complete for each in rankings))


async def _places(storage: Storage, context: Context, lookup: Lookup) -> tuple[list[tuple[Context, Lookup]], bool]:
    """Returns what to search, each in its context, and whether that is everything."""
    others = await conversations(storage, context) if lookup.user_id in (None, context.user) else []
    shared = rules.without_user(context)
    lookups = [structs.replace(_of_anybody(lookup), conversation_id=each.id) for each in others[:_SEARCHED]]
    return [(context, lookup), *((shared, each) for each in lookups)], len(others) <= _SEARCHED


def _of_anybody(lookup: Lookup) -> Lookup:
    return structs.replace(lookup, user_id=None)


def _merged(found: Sequence[Matches], limit: int, *, complete: bool) -> Matches:
    if len(found) == 1:
        return found[0]
    every = sorted((match for each in found for match in each.found), key=lambda match: match.position, reverse=True)
    has_more = len(every) > limit or any(each.has_more for each in found)
    return Matches(every[:limit], has_more, complete and all(each.complete for each in found))
