"""Search: what was said, found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hansard.errors import Denied, ValidationError
from hansard.search.hits import Hits
from hansard.store import checks, read_query
from hansard.store.core import StorePart
from hansard.store.read_query import BlobMode

if TYPE_CHECKING:
    from hansard.search.tool import SearchTool
    from hansard.store.search_modes import SearchMode, SearchOrder, WordMatch

_LOOKS = 3
"""How often a search is made anew, while others go on deleting what it finds."""


_UNFILTERED = read_query.Filters()


class SearchMethods(StorePart):
    async def search(
        self,
        query: str,
        *,
        conversation_id: str | int | None = None,
        user_id: str | int | None = None,
        agent_id: str | int | None = None,
        roles: Iterable[str] | None = None,
        participant_ids: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        branch: str | None = None,
        all_branches: bool = False,
        mode: SearchMode | None = None,
        match: WordMatch | None = None,
        order: SearchOrder = "relevance",
        limit: int = 10,
        token_cap: int | None = 2000,
        cursor: str | None = None,
        blobs: BlobMode = "inline",
    ) -> Hits:
        """Messages that have these words: in one conversation, in a user's, or in all of the tenant's.

        Words, `"phrases"`, `prefix*`, `-not`, `a OR b`; everything else in a query is text. It covers the active
        branches. Hits come by relevance, or the newest first; they end at `limit`, or before `token_cap` is passed.
        With an embedder, `mode="meaning"` finds what means the same, and `mode="hybrid"` ranks by both.
        """
        from hansard.store import search_modes  # only now: its tables cost an import that never searches nothing

        if blobs != "inline":
            checks.one_of(blobs, ("inline", "refs"), "blobs")
        how = search_modes.mode(mode, order, match)
        narrow = _UNFILTERED
        if roles is not None or participant_ids is not None or since is not None or until is not None:
            narrow = read_query.filters(roles, participant_ids, None, since, until)
        lookup = search_modes.lookup(
            query,
            how,
            self.limits,
            conversation_id=checks.optional_id(conversation_id, "conversation_id", self.limits),
            branch=checks.optional_id(branch, "branch", self.limits),
            all_branches=checks.flag(all_branches, "all_branches"),
            user_id=self._owner(user_id),
            agent_id=checks.optional_id(agent_id, "agent_id", self.limits),
            metadata=checks.metadata(metadata),
            roles=narrow.roles,
            participant_ids=narrow.participant_ids,
            since=narrow.since,
            until=narrow.until,
            limit=checks.count(limit, "limit", self.limits.page),
        )
        cap = checks.optional_count(token_cap, "token_cap", least=1)
        place = checks.optional_text(cursor, "the cursor")
        context = self._view.context()
        hits = await how.search(self._view, context, lookup, place, cap)
        if self._view.backend.capabilities.changed_elsewhere:
            for _ in range(_LOOKS):
                if await search_modes.are_there(self._view, context, hits):
                    break
                hits = await how.search(self._view, context, lookup, place, cap)
        return await search_modes.with_blobs(self._view, context, hits, blobs)

    async def embed(self) -> int:
        """Gives every message of the tenant its vector, and returns how many had none.

        With an embedder this goes on in the background anyway; where no event loop runs, or before a store is closed,
        it can be waited for. `Unavailable` when the embedder fails.
        """
        from hansard.store import search_modes

        if self._view.user is not None:
            raise Denied("messages are embedded for a whole tenant: use the store that this user's view was made from")
        return await search_modes.embeddings_of(self._view).complete(self._view.tenant)

    def search_tool(
        self,
        conversation_id: str | int | None = None,
        *,
        user_id: str | int | None = None,
        mode: SearchMode | None = None,
        token_cap: int = 2000,
    ) -> SearchTool:
        """A `conversation_search` tool for a model, fixed to one conversation, or to all of a user's.

        Through a user's view, and without a conversation, it is fixed to that user. With an embedder it searches by
        words and meaning, otherwise by words, unless `mode` says how.
        """
        from hansard.search.tool import SearchTool
        from hansard.store import search_modes

        conversation = checks.optional_id(conversation_id, "conversation_id", self.limits)
        owner = self._owner(user_id)
        if conversation is None and owner is None:
            raise ValidationError("a search tool is fixed to a conversation or to a user: name one")
        cap = checks.count(token_cap, "token_cap")
        if checks.one_of(mode, (None, "words", "meaning", "hybrid"), "mode") not in (None, "words"):
            search_modes.embeddings_of(self._view)
        how: SearchMode = mode or ("words" if self._view.embeddings is None else "hybrid")

        async def find(query: str, limit: int, match: WordMatch | None) -> Hits:
            return await self.search(
                query, conversation_id=conversation, user_id=owner, mode=how, match=match, limit=limit, token_cap=cap
            )

        return SearchTool(find, "this user's conversations" if conversation is None else "this conversation", how)

    def _owner(self, user_id: str | int | None) -> str | None:
        """Whose conversations are searched: through a user's view, only that user's."""
        owner = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and owner not in (None, self._view.user):
            raise ValidationError("a user's view searches only that user's conversations: leave user_id out")
        return owner if self._view.user is None else self._view.user
