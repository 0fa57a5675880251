"""A sample to look at: what a week of several agents and their people leaves in a store.

It can be filled in twice: every message has its id, and what is there stays. Times lie in the weeks before now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from hansard.connect import connect
from hansard.model import Message, Participant, Usage
from hansard.server.web import sample_talks
from hansard.server.web.sample_talks import Line, Talk
from hansard.store import Store

_DAYS = 28
_LONG = 2_400
_BATCH = 400
_ASKED = (
    ("Where is my order {n}?", "It left the warehouse this morning and should arrive **tomorrow** before noon."),
    (
        "Can I change the address of order {n}?",
        "Yes, until it is packed. I have changed it; the label is printed at 16:00.",
    ),
    ("The invoice for {n} has the wrong VAT number.", "I have issued a corrected invoice. The old one is cancelled."),
    ("Do you ship to Iceland?", "We do. It takes 4–6 working days, and duties are paid at checkout."),
    (
        "How do I return item {n}?",
        "Print the label from your account, and drop the parcel at any pick-up point within 30 days.",
    ),
)
_WHO = (("ann", "support"), ("ben", "coder"), ("chloé", "support"), ("dmitri", "analyst"), ("小林", "support-ja"))
_MODELS = (("gpt-5-mini", 0.25, 2.0), ("claude-sonnet-5", 3.0, 15.0), ("qwen3-32b", 0.1, 0.3))


class Filled(Struct, frozen=True):
    conversations: int
    messages: int


async def fill_url(url: str, tenant: str | None, user: str | None) -> Filled:
    """Stores the sample in the store of a URL, as a tenant and a user see it."""
    async with connect(url) as store:
        view = store if tenant is None else store.tenant(tenant)
        return await fill(view if user is None else view.user(user))


async def fill(store: Store, now: datetime | None = None) -> Filled:
    """Stores the sample, as the tenant or user of the store: what of it is not there yet."""
    now = now or datetime.now(UTC)
    talks = [*_everyday(now), *sample_talks.talks()]
    stored = await asyncio.gather(*(_store(store, talk, now) for talk in talks), _long(store, now))
    await _branches(store, now)
    return Filled(sum(1 for each in stored if each), sum(stored))


async def _store(store: Store, talk: Talk, now: datetime) -> int:
    if await store.get_conversation(talk.id) is not None:
        return 0
    owner = store.user_id or talk.user
    start = now - timedelta(hours=talk.hours_ago)
    made = [_message(talk, line, start + timedelta(seconds=40 * at), at) for at, line in enumerate(talk.lines)]
    await store.create_conversation(
        talk.id, user_id=owner, agent_id=talk.agent, title=talk.title, metadata=talk.metadata, created_at=start
    )
    return (await store.append(talk.id, made)).stored


def _message(talk: Talk, line: Line, at: datetime, number: int) -> Message:
    who = line.who
    return Message(
        line.role,
        line.content,
        id=line.id or f"{talk.id}-{number + 1}",
        format=line.format,
        participant=who,
        mentions=line.mentions,
        scope=line.scope,
        status=line.status,
        pinned=line.pinned,
        created_at=at,
        sources=line.sources,
        usage=line.usage,
        metadata=line.metadata,
    )


def _everyday(now: datetime) -> Iterator[Talk]:
    """Short questions over some weeks: more on working days than on others."""
    for day in range(_DAYS, 0, -1):
        weekend = (now - timedelta(days=day)).weekday() >= 5
        for number in range(1 if weekend else 2 + day % 3):
            yield _short(day, number)


def _short(day: int, number: int) -> Talk:
    user, agent = _WHO[(day * 3 + number) % len(_WHO)]
    asked, answered = _ASKED[(day + number * 2) % len(_ASKED)]
    order = 4000 + day * 7 + number
    model, per_in, per_out = _MODELS[(day + number) % len(_MODELS)]
    tokens_in, tokens_out = 380 + (day * 97 + number * 211) % 2600, 60 + (day * 31 + number * 17) % 420
    usage = Usage(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        cost=round((tokens_in * per_in + tokens_out * per_out) / 1e6, 6),
        model=model,
    )
    lines = [
        Line("user", asked.format(n=order)),
        Line("assistant", answered, who=Participant("agent", agent), usage=usage),
        Line("user", "Thank you!"),
        Line("assistant", "You are welcome.", who=Participant("agent", agent)),
    ]
    title = asked.format(n=order).rstrip("?.")
    return Talk(f"sample-{day:02}-{number}", title, user, agent, day * 24 - 9 - number * 2, lines, {"shop": 3})


# The long one


async def _long(store: Store, now: datetime) -> int:
    """A ship's log, with summaries of its older part."""
    id = "sample-long"
    if await store.get_conversation(id) is not None:
        return 0
    start = now - timedelta(days=41)
    await store.create_conversation(
        id,
        user_id=store.user_id or "captain",
        agent_id="navigator",
        title="Log of the Aurora, Tromsø to Reykjavík",
        created_at=start,
    )
    stored = 0
    for first in range(0, _LONG, _BATCH):
        batch = [_entry(number, start) for number in range(first, min(first + _BATCH, _LONG))]
        stored += (await store.append(id, batch, count_usage=False)).stored
    for begin, end, text in _SUMMARIES:
        await store.add_summary(id, text, from_seq=begin, to_seq=end, model="claude-sonnet-5")
    return stored


_FIRST = (
    "The first days: out of Tromsø in light airs, a torn jib mended, water and diesel within plan. "
    "Open: the bilge pump."
)
_SECOND = (
    "Out of Tromsø in light airs; the jib was torn and mended; the bilge pump was replaced at Jan Mayen. Since then "
    "steady north-easterlies of 5 to 6, all well on board. **Course** 215°, Reykjavík expected in two days."
)
_SUMMARIES = ((1, 1200, _FIRST), (1, 2376, _SECOND))


def _entry(number: int, start: datetime) -> Message:
    at = start + timedelta(minutes=5 * number)
    watch = number // 2 + 1
    if number % 2 == 0:
        return Message("user", _reading(watch), id=f"log-{number + 1}", created_at=at)
    who = Participant("agent", "navigator", "Navigator")
    return Message("assistant", _advice(watch), id=f"log-{number + 1}", created_at=at, participant=who)


def _reading(watch: int) -> str:
    wind, sea, speed = 8 + watch * 7 % 19, ("calm", "slight", "moderate", "rough")[watch % 4], 4 + watch * 3 % 5
    barometer = 1004 + watch % 17
    return (
        f"Watch {watch}: wind {wind} kn NE, sea {sea}, {speed}.{watch % 10} kn over ground, barometer {barometer} hPa."
    )


_ADVICE: tuple[Callable[[int], str], ...] = (
    lambda watch: f"Noted. Hold {205 + watch % 20}°; the current sets you north by {watch % 3}.{watch % 9} kn.",
    lambda watch: "Noted. Ease the main a little, and check the preventer before dark.",
    lambda watch: f"Noted. At this speed the next waypoint is {3 + watch % 9} hours away.",
)


def _advice(watch: int) -> str:
    return _ADVICE[watch % len(_ADVICE)](watch)


# Branches


async def _branches(store: Store, now: datetime) -> None:
    """Kyoto in spring, thought over twice: one answer asked for again, one question put in another way."""
    id = sample_talks.TRIP
    if not store.capabilities.branches or len(await store.list_branches(id)) > 1:
        return
    agent, at = Participant("agent", "travel", "旅行エージェント"), now - timedelta(hours=14)
    await store.branch(id, at=f"{id}-3", branch_id="cheaper", activate=False)
    cheaper = "もちろんです。**ゲストハウス**なら一泊 4,500 円ほどで、二条城の近くに静かな宿があります。"
    await store.append(id, [Message("assistant", cheaper, participant=agent, created_at=at)], branch="cheaper")
    await store.branch(id, before=f"{id}-3", branch_id="by-train", activate=False)
    asked: list[Any] = [
        Message("user", "宿より先に、東京からの新幹線を調べてください。", created_at=at),
        Message("assistant", "「のぞみ」で 2 時間 15 分、片道 13,970 円です。", participant=agent, created_at=at),
    ]
    await store.append(id, asked, branch="by-train")
