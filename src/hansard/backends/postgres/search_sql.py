"""The SQL of a search, made of constant fragments, and its values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hansard.analysis import Lookup, Position
from hansard.backends.postgres import rows
from hansard.backends.postgres.lexemes import Expression
from hansard.contract.types import Context
from hansard.model import to_micros

_ORDER = "created_at DESC, seq DESC, conversation DESC"
_OF_S = "s.created_at DESC, s.seq DESC, s.conversation DESC"
# The columns of a row: those of a message, then its conversation, and whether the row must be checked.
_COLUMNS = "m.line, m.seq, m.id, m.role, m.format, m.body, m.created_at, m.extra, s.conversation, s.loose"
SEQ, BODY, CREATED_AT, CONVERSATION, LOOSE = 1, 5, 6, 8, 9
WIDTH = 10
_CONVERSATION_COLUMNS = (
    "id, user_id, agent_id, audit_id, title, metadata, summary, created_at, updated_at, last_message_at, "
    "message_count, version, branch, expires_at, archived_at"
)


class Statement:
    """SQL made of constant fragments, and its values."""

    def __init__(self, context: Context, lookup: Lookup) -> None:
        self.values: list[Any] = [context.tenant]
        self.context = context
        self.lookup = lookup

    def value(self, value: Any, kind: str) -> str:
        self.values.append(value)
        return f"${len(self.values)}::{kind}"

    def number(self, number: int | None) -> str:
        """Returns a bound as a literal: with a parameter PostgreSQL plans again each time, which takes longest."""
        return "ALL" if number is None else str(int(number))

    def between(self, below: Position | None) -> str:
        """Conditions that the index of times supports, too."""
        return "".join(f" AND {condition}" for condition in self._between(below))

    def _between(self, below: Position | None) -> Iterator[str]:
        if self.lookup.since is not None:
            yield f"created_at >= {self.value(to_micros(self.lookup.since), 'bigint')}"
        if self.lookup.until is not None:
            yield f"created_at < {self.value(to_micros(self.lookup.until), 'bigint')}"
        if below is not None:
            created_at, seq, id = below
            place = f"{self.value(created_at, 'bigint')}, {self.value(seq, 'bigint')}, {self.value(id, 'text')}"
            yield f"(created_at, seq, conversation) < ({place})"

    def owned(self, table: str = "") -> str:
        if self.lookup.conversation_id is None:
            return ""
        return f" AND {table}conversation = {self.value(self.lookup.conversation_id, 'text')}"

    def terms(self, expression: Expression) -> str:
        return f"terms @@ {self.value(expression.text, 'text')}::tsquery"

    def looked_up(self, expression: Expression) -> str:
        """Like `terms`, for the index of terms."""
        return f"terms @@ {self.value(expression.in_index, 'text')}::tsquery"

    def joined(self) -> str:
        """Joins the visible rows of `s` that the lookup selects. OFFSET keeps the planner to one index lookup a row."""
        return (
            f"CROSS JOIN LATERAL (SELECT branch FROM hansard.conversations WHERE tenant = $1 AND id = s.conversation"
            f"{''.join(self._conversation())} OFFSET 0) AS c "
            f"{self._branch()}"
            f"CROSS JOIN LATERAL (SELECT * FROM hansard.messages WHERE tenant = $1 AND conversation = s.conversation "
            f"AND line = s.line AND seq = s.seq{''.join(self._message())} OFFSET 0) AS m "
        )

    def _conversation(self) -> Iterator[str]:
        yield f" AND (expires_at IS NULL OR expires_at > {self.value(to_micros(self.context.horizon), 'bigint')})"
        names = {"user_id": self.lookup.user_id, "agent_id": self.lookup.agent_id}
        for column, value in (*names.items(), ("user_id", self.context.user)):
            if value is not None:
                yield f" AND {column} = {self.value(value, 'text')}"

    def _branch(self) -> str:
        if self.lookup.all_branches:
            return ""
        branch = "c.branch" if self.lookup.branch is None else self.value(self.lookup.branch, "text")
        return (
            f"CROSS JOIN LATERAL (SELECT 1 FROM hansard.branches AS b WHERE tenant = $1 "
            f"AND conversation = s.conversation AND id = {branch} AND (b.line = s.line OR EXISTS ("
            f"SELECT 1 FROM unnest(b.lines, b.uptos) AS part (line, upto) "
            f"WHERE part.line = s.line AND s.seq <= part.upto)) OFFSET 0) AS b "
        )

    def _message(self) -> Iterator[str]:
        lookup = self.lookup
        for names, column in ((lookup.roles, "role"), (lookup.participant_ids, "participant")):
            if names is not None:
                yield f" AND {column} = ANY({self.value([rows.escaped(name) for name in sorted(names)], 'text[]')})"

    def homes(self) -> str:
        """The conversations of `found` that are searched, with the segments of their branch."""
        branch = "c.branch" if self.lookup.branch is None else self.value(self.lookup.branch, "text")
        return (
            f"SELECT d.conversation, b.line, b.lines, b.uptos FROM (SELECT DISTINCT conversation FROM found) AS d "
            f"CROSS JOIN LATERAL (SELECT branch FROM hansard.conversations WHERE tenant = $1 AND id = d.conversation"
            f"{''.join(self._conversation())} OFFSET 0) AS c "
            f"CROSS JOIN LATERAL (SELECT line, lines, uptos FROM hansard.branches WHERE tenant = $1 "
            f"AND conversation = d.conversation AND id = {branch} OFFSET 0) AS b"
        )

    def searched(self) -> str:
        """The conditions that a row `s` is on the branch of its home `h`, and passes the filters."""
        on_branch = (
            "(h.line = s.line OR EXISTS (SELECT 1 FROM unnest(h.lines, h.uptos) AS part (line, upto) "
            "WHERE part.line = s.line AND s.seq <= part.upto))"
        )
        conditions = "".join(self._message())
        filters = (
            f" AND EXISTS (SELECT 1 FROM hansard.messages WHERE tenant = $1 AND conversation = s.conversation "
            f"AND line = s.line AND seq = s.seq{conditions})"
        )
        return ("true" if self.lookup.all_branches else on_branch) + (filters if conditions else "")

    def posted(self, terms: Expression, most: int | None, *, walled: bool) -> str:
        """The rows with the terms, up to a bound. See `found` for the form of the conditions."""
        columns = f"tenant = $1{self.between(None)}{self.owned()}"
        return (
            f"SELECT conversation, line, seq, created_at, loose, words FROM hansard.search "
            f"WHERE {self.looked_up(terms)} AND {columns if walled else f'({columns}) IS TRUE'} "
            f"LIMIT {self.number(most)}"
        )

    def walked(
        self, terms: Expression, below: Position | None, limit: int, walked: int | None, condition: str = "true"
    ) -> str:
        """The newest matches among the first `walked` messages in order."""
        return (
            f"SELECT {_COLUMNS} FROM (SELECT * FROM hansard.search WHERE tenant = $1{self.between(below)} "
            f"AND {condition} ORDER BY {_ORDER} LIMIT {self.number(walked)}) AS s {self.joined()}"
            f"WHERE s.{self.terms(terms)}{self.owned('s.')} ORDER BY {_OF_S} LIMIT {self.number(limit)}"
        )

    def peeked(self, terms: Expression, below: Position | None, walked: int) -> str:
        """The matches among the first messages of a walk."""
        return (
            f"SELECT 1 FROM (SELECT * FROM hansard.search WHERE tenant = $1{self.between(below)} "
            f"ORDER BY {_ORDER} LIMIT {self.number(walked)}) AS s WHERE s.{self.terms(terms)}"
        )

    def found(self, terms: Expression, below: Position | None, most: int, condition: str = "true") -> str:
        """The rows with the terms, up to a bound, and one more if there are more.

        The tenant is one of the terms, unless most messages are its own. Columns are compared in a form that no other
        index supports, so that the planner must use the index of terms.
        """
        return (
            f"SELECT conversation, line, seq, created_at, loose FROM hansard.search WHERE {self.looked_up(terms)} "
            f"AND (tenant = $1{self.between(below)}{self.owned()}) IS TRUE AND {condition} "
            f"LIMIT {self.number(most + 1)}"
        )

    def sorted(self, most: int, limit: int) -> str:
        """The newest rows of `found`, unless there are more than the bound."""
        return (
            f"SELECT {_COLUMNS} FROM (SELECT * FROM found WHERE counted.number <= {self.number(most)} "
            f"ORDER BY {_ORDER}) AS s {self.joined()}ORDER BY {_OF_S} LIMIT {self.number(limit)}"
        )


def select_walked(
    context: Context, lookup: Lookup, terms: Expression, below: Position | None, limit: int, walked: int | None
) -> tuple[str, list[Any]]:
    """A page by the index of times."""
    one = Statement(context, lookup)
    return one.walked(terms, below, limit, walked), one.values


def select_sorted(
    context: Context, lookup: Lookup, terms: Expression, below: Position | None, limit: int, most: int
) -> tuple[str, list[Any]]:
    """A page by the index of terms, after the number of rows with them; more than `most` are not read."""
    one = Statement(context, lookup)
    sql = (
        f"WITH found AS MATERIALIZED ({one.found(terms, below, most)}), "
        f"counted AS MATERIALIZED (SELECT count(*) AS number FROM found) "
        f"SELECT counted.number, page.* FROM counted LEFT JOIN LATERAL ({one.sorted(most, limit)}) AS page ON true"
    )
    return sql, one.values


def select_quick(
    context: Context, lookup: Lookup, terms: Expression, limit: int, walked: int, most: int, *, is_common: bool = False
) -> tuple[str, list[Any]]:
    """The first two steps in one statement, with the conversations: sufficient for most searches.

    Only the first step for words that are known to be common.

    The first columns are the version of the index, whether there is a tail, and the number of rows with the terms, if
    it was counted.
    """
    one = Statement(context, lookup)
    page = "SELECT * FROM walked" if is_common else one.sorted(most, limit)
    if is_common:
        steps = (
            f"walked AS MATERIALIZED ({one.walked(terms, lookup.below, limit, walked)}), "
            f"found AS MATERIALIZED (SELECT 1 WHERE false), "
        )
    elif walked:
        # If the first eighth of a walk has less than its share of the hits, they are few, and the index of terms is
        # faster.
        has_hits = f"(SELECT count(*) FROM peeked) >= {one.number(max(1, limit // 8))}"
        is_enough = f"(SELECT count(*) FROM walked) = {one.number(limit)}"
        steps = (
            f"peeked AS MATERIALIZED ({one.peeked(terms, lookup.below, walked // 8)}), "
            f"walked AS MATERIALIZED ({one.walked(terms, lookup.below, limit, walked, has_hits)}), "
            f"found AS MATERIALIZED ({one.found(terms, lookup.below, most, f'NOT {is_enough}')}), "
        )
        page = f"SELECT * FROM walked WHERE {is_enough} UNION ALL SELECT * FROM ({page}) AS sorted"
    else:
        steps = f"found AS MATERIALIZED ({one.found(terms, lookup.below, most)}), "
    sql = (
        f"WITH {steps}counted AS MATERIALIZED (SELECT count(*) AS number FROM found) "
        f"SELECT state.version, EXISTS (SELECT 1 FROM hansard.search_queue WHERE tenant = $1), counted.number, page.*, "
        f"c.* FROM (SELECT version FROM hansard.search_state LIMIT 1) AS state CROSS JOIN counted "
        f"LEFT JOIN LATERAL ({page}) AS page ON true "
        f"LEFT JOIN LATERAL (SELECT {_CONVERSATION_COLUMNS} FROM hansard.conversations "
        f"WHERE tenant = $1 AND id = page.conversation OFFSET 0) AS c ON true"
    )
    return sql, one.values


def select_tail(context: Context, lookup: Lookup) -> tuple[str, list[Any]]:
    """The messages that are not indexed yet."""
    one = Statement(context, lookup)
    sql = (
        f"SELECT {_COLUMNS} FROM (SELECT conversation, line, seq, true AS loose FROM hansard.search_queue "
        f"WHERE tenant = $1{one.owned()} OFFSET 0) AS s {one.joined()}"
    )
    return sql, one.values


def select_postings(context: Context, lookup: Lookup, terms: Expression, *, walled: bool) -> tuple[str, list[Any]]:
    """The messages with the terms."""
    one = Statement(context, lookup)
    sql = (
        f"WITH found AS MATERIALIZED ({one.posted(terms, None, walled=walled)}), "
        f"homes AS MATERIALIZED ({one.homes()}) "
        f"SELECT s.conversation, s.line, s.seq, s.words, s.created_at, s.loose FROM found AS s "
        f"JOIN homes AS h ON h.conversation = s.conversation WHERE {one.searched()}"
    )
    return sql, one.values


def count_postings(
    context: Context, lookup: Lookup, terms: Expression, most: int, *, walled: bool
) -> tuple[str, list[Any]]:
    """How many of the first rows with the terms are searched, how many those rows are, and whether some are loose."""
    one = Statement(context, lookup)
    sql = (
        f"WITH found AS MATERIALIZED ({one.posted(terms, most, walled=walled)}), "
        f"homes AS MATERIALIZED ({one.homes()}) "
        f"SELECT (SELECT count(*) FROM found AS s JOIN homes AS h ON h.conversation = s.conversation "
        f"WHERE {one.searched()}), (SELECT count(*) FROM found), (SELECT coalesce(bool_or(loose), false) FROM found)"
    )
    return sql, one.values


def select_places(
    context: Context, lookup: Lookup, conversations: list[str], lines: list[int], seqs: list[int]
) -> tuple[str, list[Any]]:
    """The messages at these places, if they are searched."""
    one = Statement(context, lookup)
    places = (
        f"unnest({one.value(conversations, 'text[]')}, {one.value(lines, 'bigint[]')}, {one.value(seqs, 'bigint[]')})"
    )
    sql = (
        f"SELECT {_COLUMNS} FROM (SELECT conversation, line, seq, true AS loose FROM {places} "
        f"AS place (conversation, line, seq) OFFSET 0) AS s {one.joined()}"
    )
    return sql, one.values


def select_lines(context: Context, conversations: list[str]) -> tuple[str, list[Any]]:
    """The segments of conversations."""
    sql = "SELECT conversation, line, lines FROM hansard.branches WHERE tenant = $1 AND conversation = ANY($2::text[])"
    return sql, [context.tenant, conversations]
