"""W9: a prompt with default options, compared with reading the same messages; and the cost of selection alone.

The cost of assembly must depend on what it loads, not on what is stored: at most 1.5 times reading the same 100
messages plus 1 ms, for conversations of any length. The peers trim the same 100 messages, in their own types, to the
same 3,000 tokens; for them and for ours, that part is timed without storage.

All pages are in memory and nothing is written, so CPU time is measured. A limit in milliseconds is therefore valid on a
busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any, cast

from benchmarks.arena import Arena, stepped
from benchmarks.contenders.product import Ours, as_messages
from benchmarks.measure import Series, TimedContender, by_turns, check
from benchmarks.report import Comparison, Judge
from benchmarks.samples import samples
from benchmarks.scenarios.history import fill, verify_last
from hansard import Message
from hansard.assembly import projection, selection
from hansard.formats import registry

TITLE = "W9 assembly"
LOADED = 100
BUDGET = 3000
CALLS = 10
FLAT = 1.25

READING, ALLOWED, ASSEMBLY = "reading the last 100", "1.5 x reading + 1 ms", "hansard assemble_prompt"


def run(arena: Arena) -> Iterator[Comparison]:
    lengths = [200, 1_000, 5_000] if arena.options.quick else [200, 10_000, 100_000]
    (ours,) = cast("list[Ours]", arena.enter("ours"))
    for length in lengths:
        arena.run(ours, fill(ours, name_of(length), length))
        arena.run(ours, verify_last(ours, name_of(length), length, LOADED))
    rounds = arena.size(40, quick=5)
    timed_contenders = [
        TimedContender(f"{name}@{length}", partial(portion, arena, ours, timed, name_of(length)), rounds)
        for length in lengths
        for name, timed in ((READING, timed_reads), (ASSEMBLY, timed_prompts))
    ]
    series = by_turns(timed_contenders)
    for length in lengths:
        yield from verdicts(arena, series, length)
    yield flatness(arena, series, lengths)
    yield from choosing(arena, rounds)


def name_of(length: int) -> str:
    return f"w9-{length}"


def verdicts(arena: Arena, series: Series, length: int) -> Iterator[Comparison]:
    reading, assembly = series[f"{READING}@{length}"], series[f"{ASSEMBLY}@{length}"]
    allowed = [1.5 * cost + 1000 for cost in reading]
    judge = Judge(arena.roster, f"{TITLE} from {length:,}", {READING: reading, ALLOWED: allowed, ASSEMBLY: assembly})
    yield judge.compare(ASSEMBLY, ALLOWED, 1.0)
    yield judge.compare(ASSEMBLY, READING)


def flatness(arena: Arena, series: Series, lengths: list[int]) -> Comparison:
    names = {length: f"{ASSEMBLY} at {length:,}" for length in (lengths[0], lengths[-1])}
    renamed = {name: series[f"{ASSEMBLY}@{length}"] for length, name in names.items()}
    return Judge(arena.roster, f"{TITLE}, flat", renamed).compare(names[lengths[-1]], names[lengths[0]], FLAT)


def portion(arena: Arena, ours: Ours, timed: Callable[..., Any], conversation: str, _round: int) -> float:
    return float(arena.run(ours, timed(ours, conversation))) / CALLS * 1e6


async def timed_reads(ours: Ours, conversation: str) -> float:
    begin = process_time()
    for _ in range(CALLS):
        await ours.store.get_messages(conversation, last=LOADED)
    return process_time() - begin


async def timed_prompts(ours: Ours, conversation: str) -> float:
    prompt = await ours.store.assemble_prompt(conversation)
    check(prompt.loaded == LOADED and prompt.tokens <= BUDGET, f"{conversation}: {prompt.loaded}, {prompt.tokens}")
    check(prompt.decisions[-1].why == "newest", "the newest message is not in the prompt")
    begin = process_time()
    for _ in range(CALLS):
        await ours.store.assemble_prompt(conversation)
    return process_time() - begin


# --- choosing, without reading ----------------------------------------------------------------------------------------


def choosing(arena: Arena, rounds: int) -> Iterator[Comparison]:
    trimmers = {ASSEMBLY: ours_trimming, "langchain-core trim_messages": langchain, "agent-framework": agent_framework}
    timed_contenders = []
    for name, make in trimmers.items():
        try:
            timed_contenders.append(TimedContender(name, partial(timed_trim, make()), rounds))
        except ImportError:
            continue  # reported below
    series = by_turns(timed_contenders)
    judge = Judge(arena.roster, f"{TITLE}: choosing from {LOADED} in memory", series)
    for name in list(trimmers)[1:]:
        yield (
            judge.compare(ASSEMBLY, name)
            if name in series
            else Comparison(judge.workload, ASSEMBLY, name, note="not installed")
        )


class Trimmer:
    """Trims a list of messages. `messages` returns the list in its own types, and is not timed."""

    def __init__(self, messages: Callable[[], list[Any]], trim: Callable[[list[Any]], int]) -> None:
        self.messages = messages
        self.trim = trim


def timed_trim(trimmer: Trimmer, _round: int) -> float:
    kept = trimmer.trim(trimmer.messages())
    check(0 < kept < LOADED, f"{kept} of {LOADED} messages kept")
    histories = [trimmer.messages() for _ in range(CALLS)]
    begin = process_time()
    for history in histories:
        trimmer.trim(history)
    return (process_time() - begin) / CALLS * 1e6


def ours_trimming() -> Trimmer:
    options = selection.PromptOptions(view=projection.viewpoint(None, None, ()), token_budget=BUDGET)

    def trim(messages: list[Message]) -> int:
        chosen = selection.choose(messages, options, None)
        pairs = selection.ordered(zip(chosen.messages, chosen.readings, strict=True), None, None)
        return len(registry.convert_readings(pairs, "openai.chat"))

    return Trimmer(lambda: as_messages(samples(LOADED)), trim)


def langchain() -> Trimmer:
    from langchain_core.messages import AIMessage, HumanMessage, trim_messages
    from langchain_core.messages.utils import count_tokens_approximately

    kinds = {"assistant": AIMessage, "user": HumanMessage}
    fitting = partial(
        trim_messages,
        max_tokens=BUDGET,
        token_counter=count_tokens_approximately,
        strategy="last",
        include_system=True,
    )
    return Trimmer(
        lambda: [kinds[one.role](one.text) for one in samples(LOADED)], lambda messages: len(fitting(messages))
    )


def agent_framework() -> Trimmer:
    from agent_framework import CharacterEstimatorTokenizer, TruncationStrategy, apply_compaction
    from agent_framework import Message as TheirMessage

    tokenizer = CharacterEstimatorTokenizer()
    strategy = TruncationStrategy(max_n=BUDGET, compact_to=BUDGET, tokenizer=tokenizer)
    return Trimmer(
        lambda: [TheirMessage(role=one.role, contents=[one.text]) for one in samples(LOADED)],
        lambda messages: len(stepped(apply_compaction(messages, strategy=strategy, tokenizer=tokenizer))),
    )
