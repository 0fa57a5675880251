"""Commands of shares: `share`, `shares`, `unshare`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context
from hansard.cli.table import print_table
from hansard.cli.values import moment
from hansard.errors import NotFound


def share(
    id: Annotated[str, Parameter(help="The conversation.")],
    /,
    *,
    branch: Annotated[str | None, Parameter(help="Another branch than the active one.")] = None,
    expires: Annotated[str | None, Parameter(help="End the share after this time: 7d, 12h.")] = None,
    redact: Annotated[str | None, Parameter(help="package.module:function that every text passes through.")] = None,
    context: Context,
) -> None:
    """Make a read-only snapshot of a conversation, and print the path of its page.

    'hansard serve' shows it to anybody who has the path. The token in it is not stored, and cannot be printed again.
    """
    from hansard.exporters.redaction import redact_named

    with context.open() as store:
        made = store.share(
            id,
            branch=branch,
            expires_at=None if expires is None else moment(expires, "--expires"),
            redact=None if redact is None else redact_named(redact),
        )
    if context.json:
        output.print_json(made)
    else:
        output.print_line(f"/s/{made.token}")


def shares(id: Annotated[str, Parameter(help="The conversation.")], /, *, context: Context) -> None:
    """List the shares of a conversation that have not ended."""
    with context.open() as store:
        found = store.list_shares(id)
    if context.json:
        output.print_json({"items": found})
    elif found:
        rows = [(each.id, each.branch, each.message_count, each.created_at, each.expires_at) for each in found]
        print_table(("SHARE", "BRANCH", "MESSAGES", "CREATED", "EXPIRES"), rows, numbers=["MESSAGES"])
    else:
        output.print_note("no shares")


def unshare(
    id: Annotated[str, Parameter(help="The conversation.")],
    share_id: Annotated[str, Parameter(help="The share, as 'hansard shares' prints it.")],
    /,
    *,
    context: Context,
) -> None:
    """End a share at once."""
    with context.open() as store:
        ended = store.unshare(id, share_id)
    if not ended:
        raise NotFound(f"conversation {id!r} has no share {share_id!r}")
    if context.json:
        output.print_json({"ended": True})
    else:
        output.print_line(f"ended {share_id}")
