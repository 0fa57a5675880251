"""The command `why`: what a model was given for a stored answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context
from hansard.cli.table import print_table

if TYPE_CHECKING:
    from hansard.assembly.explanation import AnswerPrompt


def why(
    id: Annotated[str, Parameter(help="The conversation.")],
    message_id: Annotated[str, Parameter(help="The answer.")],
    /,
    *,
    context: Context,
) -> None:
    """Show what the model was given for an answer.

    Lists the messages of the prompt that was stored with the answer, and whether they changed since. An answer that
    was appended without a prompt_id has none.
    """
    with context.open() as store:
        given = store.get_prompt(id, message_id)
    if context.json:
        output.print_json({"prompt": given})
    elif given is None:
        output.print_note("what the model was given for this message was not stored with it")
    else:
        _print_prompt(given)


def _print_prompt(given: AnswerPrompt) -> None:
    left_out = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in given.dropped.items())
    summary = given.summary
    output.print_facts(
        [
            ("answer", given.message_id),
            ("assembled", given.created_at),
            ("model", given.model),
            ("tokens", f"{given.tokens:,} of {given.budget:,}" if given.budget else f"{given.tokens:,}, no budget"),
            ("counted by", given.counter),
            ("summary", None if summary is None else f"messages {summary.from_seq} to {summary.to_seq}"),
            ("left out", left_out or None),
            ("earlier", f"{given.unnamed:,} messages that are not listed" if given.unnamed else None),
        ]
    )
    rows = [
        (
            each.message_id,
            each.why.replace("_", " "),
            each.tokens,
            "" if each.state == "same" else f"{each.state} since",
            "" if each.message is None else output.preview(each.message.text),
        )
        for each in given.messages
    ]
    columns = ("MESSAGE", "REASON", "TOKENS", "STATE", "TEXT")
    print_table(columns, rows, numbers=["TOKENS"], shorten="TEXT", leave_out=("REASON", "TOKENS", "TEXT"))
