"""Answers to `Wants`, read in one round trip, or piece by piece if they are large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from hansard.backends.redis import rows
from hansard.backends.redis.rows import PIECE, piece_of
from hansard.backends.redis.state_cache import Ask, Moment
from hansard.contract.storage import NOTHING, Found, Placed, Run, Span, Wants, Without
from hansard.executor import run_in_thread
from hansard.model import Message, from_micros

T = TypeVar("T")

_LONG = 1_000_000
"""Bytes that are decoded on the event loop; larger answers go to a thread."""
_MANY = 1000


class ReadAnswers(Struct):
    """The answers, and the summaries as stored. Blobs and records are read separately."""

    found: Found
    summaries: Sequence[bytes] = ()


NO_ANSWERS = ReadAnswers(NOTHING)


async def decoded(size: int, make: Callable[[], T]) -> T:
    """Decodes in a thread if the data is large, so that the event loop is not blocked."""
    return await run_in_thread(make) if size > _LONG else make()


def total_size(found: Iterable[bytes | None]) -> int:
    return sum([len(data) for data in found if data is not None])


async def answer(moment: Moment, id: str, wants: Wants, *, whole: bool = False) -> ReadAnswers:
    """`whole` reads everything in one round trip, however large it is."""
    step = piece_of(moment.entry) if moment.entry else PIECE
    count = moment.entry.state.conversation.message_count if moment.entry else 0
    longest = count if wants.newest is None else wants.newest * len(wants.runs)
    at_once = wants.runs if whole or longest <= step else ()
    ids = wants.ids if whole else wants.ids[:PIECE]
    asks = _asks(moment, wants, ids, at_once)
    if not asks and not wants.runs:
        return NO_ANSWERS
    answers = iter(await moment.read(asks) if asks else ())
    found: dict[str, Any] = {}
    if ids:
        found["by_id"] = await _by_id(next(answers), id)
        for at in range(len(ids), len(wants.ids), PIECE):
            (more,) = await moment.read([("find", "", *wants.ids[at : at + PIECE])])
            found["by_id"] |= await _by_id(more, id)
    if at_once:
        found["messages"] = await _placed(at_once, [next(answers) for _ in at_once], id, wants.newest)
    elif wants.runs:
        found["messages"] = await _read_long(moment, id, wants, step)
    return _rest_of_answers(answers, id, wants, found)


def _rest_of_answers(answers: Iterator[Any], id: str, wants: Wants, found: dict[str, Any]) -> ReadAnswers:
    """Reads the answers that follow the messages in the server's reply."""
    if wants.spans:
        found["spans"] = [Span(*(int(number) for number in next(answers))) for _ in wants.spans]
    if wants.last_time_without is not None and (last := next(answers)):
        found["last_time"] = from_micros(rows.row_of(last, id).created_at)
    summaries: Sequence[bytes] = next(answers) if wants.summaries else ()
    if summaries:
        found["summaries"] = [rows.summary_of(data, id) for data in summaries]
    if wants.tombstones:
        times = [time for _ in _pieces(wants.tombstones) for time in next(answers)]
        pairs = zip(wants.tombstones, times, strict=True)
        found["tombstones"] = {each: from_micros(int(at)) for each, at in pairs if at}
    return ReadAnswers(Found(**found), summaries)


def _asks(moment: Moment, wants: Wants, ids: Sequence[str], runs: Sequence[Run]) -> list[Ask]:
    asks: list[Ask] = [("find", "", *ids)] if ids else []
    if runs:
        asks += [_messages_of(run, wants.newest) for run in runs]
    if wants.spans:
        asks += [("span", "", run.segment, run.after, run.upto) for run in wants.spans]
    if wants.last_time_without is not None:
        segments = sorted(rows.segments_of(moment.entry.state)) if moment.entry else []
        asks.append(_last(segments, wants.last_time_without))
    if wants.summaries:
        asks.append(("LRANGE", "summaries", 0, -1))
    if wants.tombstones:
        asks += [("HMGET", "graves", *digests) for digests in _pieces(wants.tombstones)]
    return asks


def _pieces(values: Sequence[str]) -> list[Sequence[str]]:
    """Splits the values: a script can pass only a limited number of them to a command."""
    return [values[at : at + _MANY] for at in range(0, len(values), _MANY)]


def _messages_of(run: Run, newest: int | None) -> Ask:
    key = f"messages:{run.segment}"
    if newest is None:
        return ("ZRANGEBYSCORE", key, f"({run.after}", run.upto)
    return ("ZREVRANGEBYSCORE", key, run.upto, f"({run.after}", "LIMIT", 0, newest)


def _last(segments: Sequence[int], without: Without) -> Ask:
    runs = [each for run in without.runs for each in (run.segment, run.after, run.upto)]
    return ("last", "", len(segments), *segments, len(without.ids), *without.ids, *runs)


async def _by_id(answer: Sequence[bytes | None], id: str) -> dict[str, Placed]:
    """Decodes the answer of `find`: see scripts/read.lua."""
    return await decoded(total_size(answer), partial(_found, answer, id))


def _found(answer: Sequence[bytes | None], id: str) -> dict[str, Placed]:
    pairs = [(place, data) for place, data in zip(answer[::2], answer[1::2], strict=True) if place and data]
    messages = rows.messages_of([data for _, data in pairs], id)
    return {each.id: (int(place.split()[0]), each) for (place, _), each in zip(pairs, messages, strict=True)}


async def _placed(
    runs: Sequence[Run], answers: Sequence[Sequence[bytes]], id: str, newest: int | None = None
) -> list[Placed]:
    """Returns the messages of these runs, in order."""
    found: list[Placed] = []
    for run, stored in zip(runs, answers, strict=True):
        ascending = stored if newest is None else stored[::-1]
        messages: list[Message] = await decoded(total_size(stored), partial(rows.messages_of, ascending, id))
        found += [(run.segment, message) for message in messages]
    return found if newest is None else found[-newest:]


async def _read_long(moment: Moment, id: str, wants: Wants, step: int) -> list[Placed]:
    found: list[Placed] = []
    if wants.newest is not None:
        for run in reversed(wants.runs):
            stored = await moment.read([_messages_of(run, wants.newest - len(found))])
            found = [*await _placed([run], stored, id, wants.newest), *found]
            if len(found) == wants.newest:
                break
        return found
    for run in wants.runs:
        after = run.after
        while piece := await _piece(moment, id, Run(run.segment, after, run.upto), step):
            found += piece
            after = piece[-1][1].seq
    return found


async def _piece(moment: Moment, id: str, run: Run, limit: int) -> list[Placed]:
    stored: list[Any] = await moment.read([(*_messages_of(run, None), "LIMIT", 0, limit)])
    return await _placed([run], stored, id)
