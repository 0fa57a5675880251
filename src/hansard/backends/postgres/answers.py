"""Answers about one conversation: `Wants` as queries, their rows as `Found`.

One statement asks everything, so the answers take one round trip and are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hansard import rules
from hansard.backends.postgres import rows, tenant_data
from hansard.backends.postgres.connection import PostgresConnection, Question, Row
from hansard.backends.postgres.state_cache import stamped_state_of
from hansard.contract.storage import NOTHING, Found, Placed, Run, Span, Wants
from hansard.contract.types import Context, ConversationState
from hansard.model import from_micros


async def read(
    link: PostgresConnection, context: Context, id: str, wants: Wants
) -> tuple[ConversationState, Found] | None:
    """Returns the conversation and the answers, if the context may see it."""
    asked = {"head": _ask("find_heads", context.tenant, [id])} | _questions(context, id, wants)
    found = await _answers(link, asked)
    states = found.pop("head")
    if not states:
        return None
    state = stamped_state_of(states[0], states[0][-1], context.tenant).state
    return (state, found_of(context, id, found)) if rules.is_visible(state.conversation, context) else None


async def answer(link: PostgresConnection, context: Context, id: str, wants: Wants) -> dict[str, list[Row]]:
    """Returns the rows for each question of an operation, by the name of the answer in `Found`."""
    return await _answers(link, _questions(context, id, wants))


async def _answers(link: PostgresConnection, asked: Mapping[str, Question]) -> dict[str, list[Row]]:
    return dict(zip(asked, await link.together(list(asked.values())), strict=True)) if asked else {}


def _ask(name: str, *values: object) -> Question:
    return name, values


def _questions(context: Context, id: str, wants: Wants) -> dict[str, Question]:
    tenant, asked = context.tenant, {}
    if wants.ids:
        asked["by_id"] = _ask("find_messages", tenant, id, rows.possible(wants.ids))
    if wants.runs and wants.newest is None:
        asked["messages"] = _ask("read_runs", tenant, id, *columns(wants.runs))
    elif wants.runs:
        asked["messages"] = _ask("newest_of_runs", tenant, id, *columns(wants.runs), wants.newest)
    if wants.spans:
        asked["spans"] = _ask("count_runs", tenant, id, *columns(wants.spans))
    if wants.last_time_without is not None:
        gone = wants.last_time_without
        asked["last_time"] = _ask("last_time_without", tenant, id, rows.possible(gone.ids), *columns(gone.runs))
    if wants.summaries:
        asked["summaries"] = _ask("find_summaries", tenant, id)
    if wants.tombstones:
        asked["tombstones"] = _ask("find_tombstones", tenant, list(wants.tombstones))
    if wants.blobs:
        asked["blobs"] = _ask("find_blobs", tenant, list(wants.blobs))
    if wants.records:
        asked["records"] = _ask("find_records", *tenant_data.place_of(context, wants.records))
    return asked


def columns(runs: Sequence[Run]) -> list[list[int]]:
    return rows.columns([(run.segment, run.after, run.upto) for run in runs], 3)


def found_of(context: Context, id: str, found: Mapping[str, Sequence[Row]]) -> Found:
    """Decodes only the answers that were asked for: most reads and writes ask little."""
    return Found(**{name: _MADE[name](context, id, answer) for name, answer in found.items()}) if found else NOTHING


def _messages(context: Context, id: str, found: Sequence[Row]) -> list[Placed]:
    return [(row[0], message) for row, message in zip(found, rows.messages_of(found, id), strict=True)]


def _by_id(context: Context, id: str, found: Sequence[Row]) -> dict[str, Placed]:
    return {placed[1].id: placed for placed in _messages(context, id, found)}


_MADE: dict[str, Callable[[Context, str, Sequence[Row]], Any]] = {
    "by_id": _by_id,
    "messages": _messages,
    "spans": lambda context, id, found: [Span(*row) for row in found],
    "last_time": lambda context, id, found: from_micros(found[0][0]) if found else None,
    "summaries": lambda context, id, found: [rows.summary_of(row, id) for row in found],
    "tombstones": lambda context, id, found: {row[0]: from_micros(row[1]) for row in found},
    "blobs": lambda context, id, found: {row[0]: row[1] for row in found},
    "records": lambda context, id, found: tenant_data.live_records(context, found),
}
"""How the rows of each answer become the field of `Found` with the same name."""
