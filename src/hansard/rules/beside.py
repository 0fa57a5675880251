"""What is kept beside the messages: records and usage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime

from msgspec import structs

from hansard import codec
from hansard.contract.storage import RecordChange, RecordKey
from hansard.contract.types import Context, RecordWrite
from hansard.errors import Conflict
from hansard.model import Conversation, Message, Record, Usage, UsageRow


def plan_record(context: Context, write: RecordWrite, current: Record | None) -> Record | None:
    """The record after a write; None when it is gone. `current` is None when it is missing or has expired."""
    actual = current.revision if current else 0
    if write.expected_revision is not None and write.expected_revision != actual:
        raise Conflict(
            f"record {write.key!r} in {write.namespace!r} is at revision {actual}, not {write.expected_revision}",
            expected=write.expected_revision,
            actual=actual,
        )
    if write.delete:
        return None
    if write.exact is not None:
        return write.exact
    return Record(
        namespace=write.namespace,
        key=write.key,
        value=write.value,
        revision=actual + 1,
        created_at=current.created_at if current else context.now,
        updated_at=context.now,
        expires_at=write.expires_at,
        conversation_id=write.conversation_id,
    )


def plan_records(
    context: Context, writes: Iterable[RecordWrite], current: Mapping[RecordKey, Record]
) -> tuple[list[RecordChange], list[Record | None]]:
    """All writes of one call: what to store for each key, and the answer for each write.

    `current` holds the records that exist and have not expired. A later write builds on an earlier one of its key.
    """
    planned: dict[RecordKey, Record | None] = {}
    results: list[Record | None] = []
    for write in writes:
        key = (write.namespace, write.key)
        before = planned[key] if key in planned else current.get(key)
        planned[key] = plan_record(context, write, before)
        results.append(before if write.delete else planned[key])
    revisions = {key: record.revision for key, record in current.items()}
    return [RecordChange(key, revisions.get(key, 0), record) for key, record in planned.items()], results


def unwritten(writes: Sequence[RecordWrite], current: Mapping[RecordKey, Record]) -> list[RecordWrite]:
    """Without the writes of each key whose record already is what they would make of it: for a repeated call."""
    last = {(write.namespace, write.key): write for write in writes}
    done = {key for key, write in last.items() if _is_written(write, current.get(key))}
    return [write for write in writes if (write.namespace, write.key) not in done]


def _is_written(write: RecordWrite, current: Record | None) -> bool:
    if write.delete or current is None:
        return write.delete and current is None
    if (current.expires_at, current.conversation_id) != (write.expires_at, write.conversation_id):
        return False
    if isinstance(write.value, bytes) or isinstance(current.value, bytes):
        return type(write.value) is type(current.value) and bool(write.value == current.value)
    return codec.encode(write.value) == codec.encode(current.value)


def is_alive(record: Record, now: datetime) -> bool:
    return record.expires_at is None or record.expires_at > now


_ACTIVE_DAYS = 60


def active_days(conversations: Iterable[Conversation]) -> dict[str, int]:
    """`Stats.active` of these conversations."""
    return spread((each.created_at.toordinal(), _last_day(each), each.message_count, 1) for each in conversations)


def _last_day(conversation: Conversation) -> int:
    return (conversation.last_message_at or conversation.created_at).toordinal()


def spread(groups: Iterable[tuple[int, int, int, int]]) -> dict[str, int]:
    """The same from groups of equal conversations: first and last day as ordinals, messages of each, and how many."""
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
"""Below this, a sum of costs is what rounding left over."""

UsageKey = tuple[str, str | None, str | None, str | None]


def usage_key(conversation: Conversation, message: Message, usage: Usage) -> UsageKey:
    day = message.created_at.date().isoformat()
    return day, conversation.user_id, conversation.agent_id, usage.model or None


def usage_change(
    conversation: Conversation, message: Message, before: Usage | None, after: Usage | None
) -> list[tuple[UsageKey, UsageRow]]:
    """What a message adds to the usage rows: rows to add up, by key. A changed usage takes the old one back."""
    rows = []
    for usage, sign in ((before, -1), (after, 1)):
        if usage is not None:
            key = usage_key(conversation, message, usage)
            rows.append((key, _usage_row(key, usage, sign)))
    return rows


def usage_of_replacing(
    conversation: Conversation, current: Iterable[Message], fresh: Iterable[Message]
) -> list[tuple[UsageKey, UsageRow]]:
    """What the new messages of a snapshot add to the usage rows, by key, each key once.

    A message counts once. One that is inserted anew takes back what it added when it was first stored.
    """
    before = {message.id: message for message in current if message.usage is not None}
    changes = []
    for message in fresh:
        changes += usage_change(conversation, message, None, message.usage)
        if (old := before.get(message.id)) is not None:
            changes += usage_change(conversation, old, old.usage, None)
    return [((row.day, row.user_id, row.agent_id, row.model), row) for row in total_usage(changes)]


def total_usage(changes: Iterable[tuple[UsageKey, UsageRow]]) -> list[UsageRow]:
    """The rows added up, each key once, without those that cancel out."""
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
    """A row whose amounts were all taken back is none. One without messages may still hold a later correction."""
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
