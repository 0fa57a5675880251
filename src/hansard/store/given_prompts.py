"""Reads back the prompt of a stored answer, and compares it with what is stored now."""

from __future__ import annotations

from msgspec import structs

from hansard import rules
from hansard.assembly import prompt_ids
from hansard.assembly.explanation import AnswerPrompt, GivenMessage, GivenSummary, State
from hansard.assembly.prompt_ids import GivenPrompt, NamedMessage, NamedSummary
from hansard.contract.types import Context
from hansard.errors import Corrupt, ValidationError
from hansard.model import Message, Summary
from hansard.store.core import View


async def read(view: View, conversation_id: str, message_id: str) -> AnswerPrompt | None:
    context = view.context()
    found = await view.backend.find_messages(context, conversation_id, [message_id])
    if not found:
        raise rules.no_message(conversation_id, message_id)
    answer = found[0]
    if answer.prompt_id is None:
        return None
    given = _decoded(answer)
    names = [each.id for each in given.messages]
    there = {each.id: each for each in await view.backend.find_messages(context, conversation_id, names)}
    options = {name: value for name, value in structs.asdict(given.options).items() if name != "token_budget"}
    return AnswerPrompt(
        conversation_id=conversation_id,
        message_id=message_id,
        created_at=given.at,
        model=None if answer.usage is None else answer.usage.model,
        messages=[_compared(each, there.get(each.id)) for each in given.messages],
        unnamed=given.unnamed,
        summary=await _summary(view, context, conversation_id, given.summary),
        dropped=given.dropped,
        tokens=given.tokens,
        budget=given.options.token_budget,
        reserved=given.reserved,
        counter=given.counter,
        calibration=given.calibration,
        loaded=given.loaded,
        has_older=given.has_older,
        options=options if given.options.token_budget else {"format": given.options.format},
    )


def _decoded(answer: Message) -> GivenPrompt:
    try:
        return prompt_ids.decode(answer.prompt_id or "")
    except ValidationError as error:
        where = f"message {answer.id!r} of conversation {answer.conversation_id!r}"
        raise Corrupt(f"the prompt of {where} is unreadable", where=where) from error


def _compared(name: NamedMessage, message: Message | None) -> GivenMessage:
    if message is None:
        return GivenMessage(name.id, name.tokens, name.why, "deleted", None)
    is_same = prompt_ids.digest_of(message) == name.digest
    return GivenMessage(name.id, name.tokens, name.why, "same" if is_same else "changed", message)


async def _summary(view: View, context: Context, id: str, name: NamedSummary | None) -> GivenSummary | None:
    if name is None:
        return None
    stored = await view.backend.list_summaries(context, id, name.branch)
    found: Summary | None = next(
        (each for each in stored if (each.from_seq, each.to_seq) == (name.from_seq, name.to_seq)), None
    )
    is_same = found is not None and prompt_ids.digest_of_text(found.text) == name.digest
    state: State = "same" if is_same else "changed" if found else "deleted"
    return GivenSummary(name.branch, name.from_seq, name.to_seq, name.tokens, state, found)
