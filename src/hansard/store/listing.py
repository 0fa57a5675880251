"""Lists of conversations whose filters no storage has an index for: labels and ratings."""

from __future__ import annotations

from msgspec import Struct, structs

from hansard import cursors
from hansard.contract.types import Context, ConversationQuery
from hansard.model import Conversation, to_micros
from hansard.store.core import View
from hansard.store.marks import MarkFilter

MOST = 1000
"""How many conversations one call looks at."""
_STEP = 50


class ListedConversations(Struct, frozen=True):
    """A part of a list, in the order of the query."""

    found: list[Conversation]
    more: bool
    last: Conversation | None = None
    """The last one that was looked at, where the next part begins; None for the last one found."""


async def listed(
    view: View, context: Context, query: ConversationQuery, marks: MarkFilter | None
) -> ListedConversations:
    if marks is None:
        return ListedConversations(*await view.backend.list_conversations(context, query))
    ids = await marks.candidates(MOST)
    narrow = structs.replace(query, ids=None if ids is None else tuple(ids))
    return await _marked(view, context, narrow, marks)


async def _marked(view: View, context: Context, query: ConversationQuery, marks: MarkFilter) -> ListedConversations:
    """Walks the list, and stops when the page is full or enough was looked at.

    A few candidates are read at once. Where there are many, the whole list is walked, a step at a time.
    """
    end = query.offset + query.limit
    step = structs.replace(query, offset=0, limit=MOST if query.ids is not None else _STEP)
    found: list[Conversation] = []
    looked, more = 0, True
    last: Conversation | None = None
    while more and looked < MOST:
        page, more = await view.backend.list_conversations(context, step)
        for at in range(0, len(page), _STEP):
            found += await marks.matching(page[at : at + _STEP])
            if len(found) > end:
                return ListedConversations(found[query.offset : end], True)
        if page:
            looked, last = looked + len(page), page[-1]
            step = _after(step, last)
    return ListedConversations(found[query.offset :], more, last)


def _after(query: ConversationQuery, last: Conversation) -> ConversationQuery:
    place = to_micros(cursors.sort_time(last, query.sort)), last.id
    return structs.replace(query, below=place) if query.newest_first else structs.replace(query, above=place)
