"""Commands that mark conversations and messages: `rate`, `label`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context
from hansard.cli.table import print_table
from hansard.errors import ValidationError


def rate(
    id: Annotated[str, Parameter(help="The conversation.")],
    message_id: Annotated[str, Parameter(help="The message.")],
    value: Annotated[
        float | None, Parameter(allow_leading_hyphen=True, help="The rating, such as 1 and -1, or 1 to 5.")
    ] = None,
    /,
    *,
    by: Annotated[str | None, Parameter(help="Who rates; with --user, it is that user.")] = None,
    comment: Annotated[str | None, Parameter(help="Why, in words.")] = None,
    remove: Annotated[bool, Parameter(negative="", show_default=False, help="Remove the rating.")] = False,
    context: Context,
) -> None:
    """Rate a message, or remove a rating.

    A later rating by the same person replaces it. Prints all ratings of the message.
    """
    if remove == (value is not None):
        raise ValidationError("pass a value, or --remove to remove the rating")
    with context.open() as store:
        if value is None:
            message = store.remove_rating(id, message_id, by=by)
        else:
            message = store.rate(id, message_id, value, by=by, comment=comment)
    if context.json:
        output.print_json({"conversation_id": id, "id": message.id, "ratings": message.ratings})
    elif message.ratings:
        rows = [(each.value, each.by, output.preview(each.comment), each.created_at) for each in message.ratings]
        print_table(("RATING", "BY", "COMMENT", "GIVEN"), rows, numbers=["RATING"])
    else:
        output.print_note("no ratings")


def label(
    id: Annotated[str, Parameter(help="The conversation.")],
    labels: Annotated[list[str] | None, Parameter(negative="", show_default=False, help="The labels.")] = None,
    /,
    *,
    message: Annotated[str | None, Parameter(help="Label this message, not the conversation.")] = None,
    remove: Annotated[bool, Parameter(negative="", show_default=False, help="Remove these labels.")] = False,
    context: Context,
) -> None:
    """Add labels to a conversation or a message, or remove them.

    Prints all labels that it has. 'hansard conversations --label' lists what has a label.
    """
    if not labels:
        raise ValidationError("pass at least one label")
    found: tuple[str, ...] = ()
    with context.open() as store:
        change = store.remove_label if remove else store.add_label
        for each in labels:
            found = change(id, each, message_id=message)
    if context.json:
        output.print_json({"conversation_id": id, "message_id": message, "labels": found})
    elif found:
        for each in found:
            output.print_line(each)
    else:
        output.print_note("no labels")
