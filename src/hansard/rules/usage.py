"""Usage by day, user, agent and model, and the days on which conversations were active."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date

from msgspec import structs

from hansard.model import Conversation, Message, Usage, UsageRow

_ACTIVE_DAYS = 60


def active_days(conversations: Iterable[Conversation]) -> dict[str, int]:
    """Returns `Stats.active` of these conversations."""
    return spread((each.created_at.toordinal(), _last_day(each), each.message_count, 1) for each in conversations)


def _last_day(conversation: Conversation) -> int:
    return (conversation.last_message_at or conversation.created_at).toordinal()


def spread(groups: Iterable[tuple[int, int, int, int]]) -> dict[str, int]:
    """Like `active_days`, from groups of equal conversations: first and last day, messages of each, how many."""
    days: Counter[int] = Counter()
    for first, last, messages, conversations in groups:
        lasted = max(1, last - first + 1)
        each, rest = divmod(messages, lasted)
        for back in range(min(lasted, _ACTIVE_DAYS)):
            days[last - back] += conversations * (each + (back < rest))
    return newest_days({date.fromordinal(day).isoformat(): messages for day, messages in days.items()})


def newest_days(days: Mapping[str, int]) -> dict[str, int]:
    return {day: days[day] for day in sorted(day for day in days if days[day])[-_ACTIVE_DAYS:]}


_NOTHING = 1e-12
"""Costs below this are rounding errors."""

UsageKey = tuple[str, str | None, str | None, str | None]


def usage_key(conversation: Conversation, message: Message, usage: Usage) -> UsageKey:
    day = message.created_at.date().isoformat()
    return day, conversation.user_id, conversation.agent_id, usage.model or None


def usage_change(
    conversation: Conversation, message: Message, before: Usage | None, after: Usage | None
) -> list[tuple[UsageKey, UsageRow]]:
    """Returns the usage that a message adds, by key. A changed usage subtracts the old one."""
    rows = []
    for usage, sign in ((before, -1), (after, 1)):
        if usage is not None:
            key = usage_key(conversation, message, usage)
            rows.append((key, _usage_row(key, usage, sign)))
    return rows


def usage_of_replacing(
    conversation: Conversation, current: Iterable[Message], fresh: Iterable[Message]
) -> list[tuple[UsageKey, UsageRow]]:
    """Returns the usage that the new messages of a snapshot add, by key, each key once.

    A message counts once. One that is inserted again subtracts what it added when it was first stored.
    """
    before = {message.id: message for message in current if message.usage is not None}
    changes = []
    for message in fresh:
        changes += usage_change(conversation, message, None, message.usage)
        if (old := before.get(message.id)) is not None:
            changes += usage_change(conversation, old, old.usage, None)
    return [((row.day, row.user_id, row.agent_id, row.model), row) for row in total_usage(changes)]


def total_usage(changes: Iterable[tuple[UsageKey, UsageRow]]) -> list[UsageRow]:
    """Adds the rows up, each key once, without those that cancel out."""
    rows: dict[UsageKey, UsageRow] = {}
    for key, row in changes:
        rows[key] = add_usage(rows[key], row) if key in rows else row
    return [row for row in rows.values() if counts_anything(row)]


def _usage_row(key: UsageKey, usage: Usage, sign: int) -> UsageRow:
    return UsageRow(
        *key,
        messages=sign,
        input_tokens=sign * usage.input_tokens,
        output_tokens=sign * usage.output_tokens,
        cached_tokens=sign * usage.cached_tokens,
        reasoning_tokens=sign * usage.reasoning_tokens,
        cost=sign * usage.cost,
    )


def counts_anything(row: UsageRow) -> bool:
    """Returns whether a row counts anything. A row without messages may still hold a later correction."""
    amounts = (row.messages, row.input_tokens, row.output_tokens, row.cached_tokens, row.reasoning_tokens)
    return any(amounts) or abs(row.cost) > _NOTHING


def add_usage(one: UsageRow, other: UsageRow) -> UsageRow:
    return structs.replace(
        one,
        messages=one.messages + other.messages,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
        cost=one.cost + other.cost,
    )
