"""Commands that show conversations: `conversations`, `show`, `branches`, `watch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context, require_store
from hansard.cli.table import print_table
from hansard.cli.transcript import TranscriptPrinter
from hansard.cli.values import pairs
from hansard.model import LABELS, MEMBERS, Conversation, ConversationSort, Order, Page
from hansard.rules import not_found
from hansard.store.titles import first_words

if TYPE_CHECKING:
    from hansard import sync

Archived = Literal["no", "yes", "both"]
_FIRST = 5
"""Messages among which the first words of the user are looked for."""
_ARCHIVED = {"no": False, "yes": True, "both": None}


def conversations(
    *,
    agent: Annotated[str | None, Parameter(help="Only those of this agent.")] = None,
    metadata: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help="key=value that must be in the metadata; may be repeated."),
    ] = None,
    archived: Annotated[Archived, Parameter(help="Include archived ones (both), or show only those (yes).")] = "no",
    label: Annotated[str | None, Parameter(help="Only those with this label.")] = None,
    rating: Annotated[
        float | None, Parameter(allow_leading_hyphen=True, help="Only those with a message rated with this value.")
    ] = None,
    sort: Annotated[
        ConversationSort, Parameter(help="Sort by the last message, or by the last change.")
    ] = "last_message_at",
    order: Annotated[Order, Parameter(help="Newest first, or oldest first.")] = "desc",
    limit: Annotated[int, Parameter(help="How many, 1 to 100.")] = 20,
    after: Annotated[str | None, Parameter(help="Continue after this cursor of the previous page.")] = None,
    before: Annotated[str | None, Parameter(help="The page before this cursor.")] = None,
    context: Context,
) -> None:
    """List conversations, newest first.

    --user shows one user's. If there are more, the option for the next page is printed after "more:".
    """
    with context.open() as store:
        page = store.list_conversations(
            agent_id=agent,
            metadata=pairs(metadata, "--metadata"),
            archived=_ARCHIVED[archived],
            label=label,
            rating=rating,
            sort=sort,
            order=order,
            after=after,
            before=before,
            limit=limit,
        )
        titles = {} if context.json else {each.id: _title(store, each) for each in page.items}
    if context.json:
        output.print_json(page)
    else:
        _print_page(page, titles)


def _title(store: sync.Store, conversation: Conversation) -> str | None:
    """Returns the title or, if there is none, the first words of the user."""
    if conversation.title or not conversation.message_count:
        return conversation.title
    return first_words(store.get_messages(conversation.id, limit=_FIRST, blobs="refs"))


def _print_page(page: Page, titles: dict[str, str | None]) -> None:
    if not page.items:
        output.print_note("no conversations")
        return
    rows = [
        (
            conversation.id,
            conversation.user_id,
            conversation.agent_id,
            output.preview(titles[conversation.id]),
            conversation.message_count,
            conversation.last_message_at or conversation.created_at,
        )
        for conversation in page.items
    ]
    columns = ("ID", "USER", "AGENT", "TITLE", "MESSAGES", "LAST")
    leave_out = ("AGENT", "USER", "MESSAGES", "LAST", "TITLE")
    print_table(columns, rows, numbers=["MESSAGES"], shorten="TITLE", leave_out=leave_out)
    if page.next_cursor is not None:
        output.print_note(f"more: --after {page.next_cursor}")


def show(
    id: Annotated[str, Parameter(help="The conversation.")],
    /,
    *,
    last: Annotated[int, Parameter(help="How many of the newest messages.")] = 20,
    all: Annotated[bool, Parameter(negative="", show_default=False, help="Every message, however many.")] = False,
    branch: Annotated[str | None, Parameter(help="Another branch than the active one.")] = None,
    raw: Annotated[
        bool, Parameter(negative="", show_default=False, help="Only the content, exactly as it is stored.")
    ] = False,
    context: Context,
) -> None:
    """Show a conversation and its newest messages.

    With --json, content includes large base64 as it was sent; otherwise, blobs are only named.
    """
    with context.open() as store:
        conversation = store.get_conversation(id)
        if conversation is None:
            raise not_found(id)
        blobs: Literal["inline", "refs"] = "inline" if raw or context.json else "refs"
        found = (
            store.iter_messages(id, branch=branch, blobs=blobs)
            if all
            else iter(store.get_messages(id, last=last, branch=branch, blobs=blobs))
        )
        if context.json:
            output.print_messages_json(conversation, found)
            return
        if not raw:
            _print_conversation(conversation)
        transcript = TranscriptPrinter()
        for message in found:
            output.print_raw(message) if raw else transcript.print(message)


def _print_conversation(conversation: Conversation) -> None:
    output.print_facts(
        [
            ("conversation", conversation.id),
            ("title", conversation.title),
            ("user", conversation.user_id),
            ("agent", conversation.agent_id),
            ("audit", conversation.audit_id),
            ("branch", conversation.branch),
            ("messages", conversation.message_count),
            ("created", conversation.created_at),
            ("last message", conversation.last_message_at),
            ("expires", conversation.expires_at),
            ("archived", conversation.archived_at),
            ("members", ", ".join(conversation.members) or None),
            ("labels", ", ".join(conversation.labels) or None),
            ("metadata", {key: each for key, each in conversation.metadata.items() if key not in (LABELS, MEMBERS)}),
            ("summary", conversation.summary),
        ]
    )


def branches(
    id: Annotated[str, Parameter(help="The conversation.")],
    /,
    *,
    switch: Annotated[str | None, Parameter(help="Make this branch the active one.")] = None,
    context: Context,
) -> None:
    """List the branches of a conversation, or switch to another."""
    with context.open() as store:
        if switch is not None:
            store.switch_branch(id, switch)
        found = store.list_branches(id)
    if not found:
        raise not_found(id)
    if context.json:
        output.print_json({"items": found})
        return
    rows = [
        (each.id, "active" if each.active else "", each.parent, each.from_seq, each.message_count, each.created_at)
        for each in found
    ]
    columns = ("BRANCH", "", "FROM", "AT SEQ", "MESSAGES", "CREATED")
    print_table(columns, rows, numbers=["AT SEQ", "MESSAGES"], leave_out=("CREATED", "AT SEQ", "MESSAGES", "FROM"))


def watch(
    id: Annotated[str, Parameter(help="The conversation.")],
    /,
    *,
    after: Annotated[str | None, Parameter(help="Start after this message; by default, with the next new one.")] = None,
    branch: Annotated[str | None, Parameter(help="Another branch than the active one.")] = None,
    context: Context,
) -> None:
    """Show messages as they arrive.

    From any process, until Ctrl-C. A message in progress is shown again as it grows. With --json, one message per line.
    """
    import asyncio

    require_store(context.url)
    asyncio.run(_watch(id, after, branch, context))


async def _watch(id: str, after: str | None, branch: str | None, context: Context) -> None:
    from hansard import connect

    async with connect(context.url) as store:
        view = store if context.tenant is None else store.tenant(context.tenant)
        view = view if context.user is None else view.user(context.user)
        if await view.get_conversation(id) is None:
            raise not_found(id)
        transcript = TranscriptPrinter()
        async for message in view.watch(id, after=after, branch=branch):
            if context.json:
                output.print_json(message)
            else:
                transcript.print(message)
