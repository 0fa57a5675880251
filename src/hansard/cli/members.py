"""The command that changes the members of a conversation: `member`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context
from hansard.errors import ValidationError


def member(
    id: Annotated[str, Parameter(help="The conversation.")],
    users: Annotated[list[str] | None, Parameter(negative="", show_default=False, help="The users.")] = None,
    /,
    *,
    remove: Annotated[bool, Parameter(negative="", show_default=False, help="End their membership.")] = False,
    context: Context,
) -> None:
    """Let users see a conversation and append to it, or end that.

    Prints all members. Their messages stay.
    """
    if not users:
        raise ValidationError("pass at least one user")
    found: tuple[str, ...] = ()
    with context.open() as store:
        change = store.remove_member if remove else store.add_member
        for each in users:
            found = change(id, each)
    if context.json:
        output.print_json({"conversation_id": id, "members": found})
    elif found:
        for each in found:
            output.print_line(each)
    else:
        output.print_note("no members")
