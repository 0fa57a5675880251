"""Search over messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from hansard.errors import Denied, ValidationError
from hansard.model import ReadFrom
from hansard.search.hits import Hits
from hansard.store import checks, marks, read_query
from hansard.store.core import StorePart
from hansard.store.read_query import BlobMode

if TYPE_CHECKING:
    from hansard.search.tool import SearchTool
    from hansard.store.search_modes import Grouping, SearchMode, SearchOrder, WordMatch

_ATTEMPTS = 3
"""How often a search is repeated while other processes delete what it finds."""


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
        label: str | None = None,
        rating: float | None = None,
        branch: str | None = None,
        all_branches: bool = False,
        mode: SearchMode | None = None,
        match: WordMatch | None = None,
        order: SearchOrder = "relevance",
        time: Literal["auto"] | None = None,
        around: int = 0,
        group_by: Grouping | None = None,
        limit: int = 10,
        token_cap: int | None = 2000,
        cursor: str | None = None,
        blobs: BlobMode = "inline",
        read_from: ReadFrom = "primary",
    ) -> Hits:
        """Searches messages by words and, with an embedder, by meaning.

        Hits end at `limit`, or before their texts exceed `token_cap`.

        - `query`: words, `"phrases"`, `prefix*`, `-not`, `a OR b`; everything else in a query is text.
        - `conversation_id`: only in this conversation; None for all of the tenant's, or of the view's user.
        - `user_id`, `agent_id`, `metadata`: only in conversations of this owner, of this agent, with this metadata.
        - `roles`, `participant_ids`: only messages with one of these roles, or by one of these participants.
        - `since`, `until`: only messages created from `since` on and before `until`.
        - `label`: only messages that have this label, or are in a conversation that has it.
        - `rating`: only messages that somebody rated with this value. Labels and ratings are looked for in the newest
          1,000 matches; if there are more, `complete` is False.
        - `branch`: another branch of `conversation_id`; None for the active one.
        - `all_branches`: search every branch, not only the active ones.
        - `mode`: `"words"`; with an embedder also `"meaning"`, or `"hybrid"`, which ranks by both. None for `"hybrid"`
          with an embedder, and for `"words"` without one, or with `match` or `order="newest"`.
        - `match`: `"all"` words, `"any"` of them, `"auto"` for a question: any, and answers without its words, too; or
          `"part"` for all, as pieces of words. None for all with `"words"` and any with `"hybrid"`.
        - `order`: `"relevance"` or `"newest"`.
        - `time`: `"auto"` reads times in the query, such as `last week` or `in May`, and searches only messages of that
          time, if there are any: see `hits.period`.
        - `around`: up to this many messages before and after each hit, as far as `token_cap` allows, in `hit.passages`.
          Hits whose passages touch are joined.
        - `group_by`: `"conversation"` for the best conversations, each as one hit with its best passages.
        - `limit`: the most hits in a page, or conversations.
        - `token_cap`: the most tokens in the texts of a page; None for no limit.
        - `cursor`: a page's `next_cursor`.
        - `blobs`: as in `get_messages`.
        - `read_from`: `"replica"` lets a replica answer, if the store has one: the newest writes may be missing.
        """
        # Imported late: programs that never search need not load their tables. Every call repeats the imports, and
        # `from` a module takes three times as long as this form: rare words have a bar in W6.
        import hansard.analysis.lookups as lookup_types
        import hansard.store.search_context as contexts
        import hansard.store.search_modes as modes

        view = self._view
        limits = view.limits
        if blobs != "inline":
            checks.one_of(blobs, ("inline", "refs"), "blobs")
        how = modes.checked_mode(mode, order, match, has_embedder=view.embeddings is not None)
        narrow = _UNFILTERED
        if roles is not None or participant_ids is not None or since is not None or until is not None:
            narrow = read_query.filters(roles, participant_ids, None, since, until)
        if branch is not None and (conversation_id is None or all_branches):
            raise ValidationError(
                "branch names a branch of one conversation: give its conversation_id, not all_branches"
            )
        words, is_question = modes.checked_query(query, how, limits)
        lookup = lookup_types.Lookup(
            words,
            conversation_id=checks.optional_id(conversation_id, "conversation_id", limits),
            branch=None if branch is None else checks.id_of(branch, "branch", limits),
            all_branches=all_branches is not False and checks.flag(all_branches, "all_branches"),
            user_id=view.user if user_id is None else self._owner(user_id),
            agent_id=None if agent_id is None else checks.id_of(agent_id, "agent_id", limits),
            metadata={} if metadata is None else checks.metadata(metadata),
            roles=narrow.roles,
            participant_ids=narrow.participant_ids,
            since=narrow.since,
            until=narrow.until,
            limit=checks.count(limit, "limit", limits.page),
            label=None if label is None else marks.checked_label(label, limits),
            rating=None if rating is None else marks.checked_value(rating),
            neighbours=is_question,
        )
        cap = None if token_cap is None else checks.count(token_cap, "token_cap")
        place = None if cursor is None else checks.text(cursor, "the cursor")
        near = 0
        if group_by is not None or around != 0 or type(around) is not int:
            near = contexts.checked_around(around, group_by, lookup, place)
        context = view.context(read_from)
        timed = None
        if time is not None:
            checks.one_of(time, (None, "auto"), "time")
            timed = contexts.narrowed(lookup, str(query), context, how, limits)

        if timed is None and group_by is None:
            hits = await how.search(view, context, lookup, place, cap)
        else:
            hits = await contexts.find(view, context, lookup, how, timed, place=place, cap=cap, group_by=group_by)
        if view.backend.capabilities.changed_elsewhere:
            for _ in range(_ATTEMPTS):
                if await modes.are_unchanged(view, context, hits):
                    break
                hits = await contexts.find(view, context, lookup, how, timed, place=place, cap=cap, group_by=group_by)
        hits = await modes.with_blobs(view, context, hits, blobs)
        if not near and group_by is None:
            return hits
        hits = await contexts.with_context(view, context, lookup, hits, near, cap, grouped=group_by is not None)
        return await contexts.whole(view, context, hits, blobs)

    async def embed(self) -> int:
        """Computes the missing vectors of the tenant's messages, and returns how many there were.

        With an embedder this also happens in the background. Call it where no event loop runs, or before closing a
        store. `Unavailable` if the embedder fails.
        """
        from hansard.store import nearest_messages

        if self._view.user is not None:
            raise Denied("messages are embedded for a whole tenant: use the store that this user's view was made from")
        return await nearest_messages.embeddings_of(self._view).complete(self._view.tenant)

    def search_tool(
        self,
        conversation_id: str | int | None = None,
        *,
        user_id: str | int | None = None,
        mode: SearchMode | None = None,
        around: int = 0,
        group_by: Grouping | None = None,
        token_cap: int = 2000,
    ) -> SearchTool:
        """Returns a `conversation_search` tool for a model, restricted to one conversation or to one user's.

        - `conversation_id`: the conversation to search; None for all of the user's.
        - `user_id`: whose conversations to search. Through a user's view it is that user.
        - `mode`: as in `search`; None for `"hybrid"` with an embedder and `"words"` without one.
        - `around`, `group_by`: as in `search`: results with the messages around them, or the best conversations.
        - `token_cap`: the most tokens in the texts of a result.
        """
        from hansard.search.tool import SearchTool
        from hansard.store import nearest_messages, search_context

        checks.count(around, "around", search_context.MOST_AROUND, least=0)
        checks.one_of(group_by, (None, "conversation"), "group_by")
        conversation = checks.optional_id(conversation_id, "conversation_id", self.limits)
        owner = self._owner(user_id)
        if conversation is None and owner is None:
            raise ValidationError("a search tool is fixed to a conversation or to a user: name one")
        cap = checks.count(token_cap, "token_cap")
        if checks.one_of(mode, (None, "words", "meaning", "hybrid"), "mode") not in (None, "words"):
            nearest_messages.embeddings_of(self._view)
        how: SearchMode = mode or ("words" if self._view.embeddings is None else "hybrid")

        async def find(query: str, limit: int) -> Hits:
            return await self.search(
                query,
                conversation_id=conversation,
                user_id=owner,
                mode=how,
                match="auto",
                around=around,
                group_by=group_by,
                limit=limit,
                token_cap=cap,
            )

        return SearchTool(find, "this user's conversations" if conversation is None else "this conversation", how)

    def _owner(self, user_id: str | int | None) -> str | None:
        """Returns the user whose conversations are searched: through a user's view, that user."""
        owner = checks.optional_id(user_id, "user_id", self.limits)
        if self._view.user is not None and owner not in (None, self._view.user):
            raise ValidationError("a user's view searches only that user's conversations: leave user_id out")
        return owner if self._view.user is None else self._view.user
