"""Administration commands: `stats`, `usage`, `tenants`, `check`, `reindex`, `upgrade`, `purge`, …"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from msgspec import structs

from hansard import __version__
from hansard.cli import output
from hansard.cli.context import Context, EmbedderName, confirm, load_embedder, require_store
from hansard.cli.table import print_table
from hansard.cli.values import instant, moment
from hansard.errors import Corrupt, NotFound, ValidationError
from hansard.model import Problem, Receipt, UsageRow
from hansard.rules import add_usage
from hansard.store.erasure import PurgeBy
from hansard.urls import shown

if TYPE_CHECKING:
    from hansard import sync


Yes = Annotated[bool, Parameter(name=["--yes", "-y"], negative="", show_default=False, help="Do not ask.")]
Grouping = Literal["day", "user", "agent", "model"]


def stats(*, context: Context) -> None:
    """Show statistics of the store.

    Of all tenants, or of the one that --tenant names.
    """
    with context.open_whole() as store:
        found = context.view(store).stats() if context.tenant or context.user else store.admin.stats()
        durability = store.capabilities.durability
    if context.json:
        output.print_json(found)
        return
    output.print_facts(
        [
            ("store", found.backend),
            ("survives a crash of", durability),
            ("tenants", found.tenants),
            ("conversations", found.conversations),
            ("messages", found.messages),
            ("records", found.records),
            ("blobs", f"{found.blobs:,} ({output.size(found.blob_bytes)})"),
            ("on disk", output.size(found.bytes)),
            ("not indexed yet", found.unindexed or None),
            ("evicted conversations", found.evicted_conversations or None),
            ("evicted messages", found.evicted_messages or None),
        ]
    )


def _day(text: str | None, what: str) -> date | None:
    """Returns the day that was written, or the one so long ago: usage is counted by days in UTC."""
    return None if text is None else instant(text, what).date()


_LEFT_OUT = ("REASONING", "CACHED", "MESSAGES", "OUTPUT", "INPUT", "AGENT", "USER")
"""Columns of usage that a narrow terminal does not show, the first one first."""


def usage(
    *,
    since: Annotated[str | None, Parameter(help="From this day on, YYYY-MM-DD; or an age, such as 30d.")] = None,
    until: Annotated[str | None, Parameter(help="Before this day, YYYY-MM-DD; or an age.")] = None,
    by: Annotated[Grouping | None, Parameter(help="Group rows by this; by default, show every row.")] = None,
    context: Context,
) -> None:
    """Show tokens and cost by day, user, agent and model."""
    with context.open() as store:
        rows = store.usage(since=_day(since, "--since"), until=_day(until, "--until"))
    if by is not None:
        rows = _grouped(rows, by)
    if context.json:
        output.print_json({"items": rows})
        return
    if not rows:
        output.print_note("no usage")
        return
    columns = ("DAY", "USER", "AGENT", "MODEL", "MESSAGES", "INPUT", "OUTPUT", "CACHED", "REASONING", "COST")
    lines = [
        (
            row.day,
            row.user_id,
            row.agent_id,
            row.model,
            row.messages,
            row.input_tokens,
            row.output_tokens,
            row.cached_tokens,
            row.reasoning_tokens,
            f"{row.cost:,.4f}",
        )
        for row in rows
    ]
    empty = [name for name in columns[:4] if by is not None and name != by.upper()]
    leave_out = (*empty, *(each for each in _LEFT_OUT if each not in empty))
    print_table(columns, lines, numbers=columns[4:], shorten="MODEL", leave_out=leave_out)


def _grouped(rows: list[UsageRow], by: Grouping) -> list[UsageRow]:
    names = {"user": "user_id", "agent": "agent_id"}
    found: dict[str, list[UsageRow]] = defaultdict(list)
    for row in rows:
        found[getattr(row, names.get(by, by)) or ""].append(row)
    return [_total(key, group, by) for key, group in sorted(found.items())]


def _total(key: str, group: list[UsageRow], by: Grouping) -> UsageRow:
    total = UsageRow(
        day=key if by == "day" else "",
        user_id=key or None if by == "user" else None,
        agent_id=key or None if by == "agent" else None,
        model=key or None if by == "model" else None,
    )
    for row in group:
        total = add_usage(total, row)
    return total


def tenants(
    *,
    delete: Annotated[str | None, Parameter(help="Delete this tenant and all its data permanently.")] = None,
    yes: Yes = False,
    context: Context,
) -> None:
    """List the tenants of the store, or delete one."""
    context.refuse_user()
    with context.open_whole() as store:
        names = store.admin.tenants()
        if delete is None:
            _print_tenants(names, context)
            return
        if delete not in names:
            raise NotFound(f"there is no tenant {delete!r}")
        count = store.tenant(delete).stats().conversations
        confirm(f"Delete tenant {delete!r} with {output.counted(count, 'conversation')}?", yes=yes)
        _print_receipt("deleted", store.admin.delete_tenant(delete), context, store)


def _print_tenants(names: list[str], context: Context) -> None:
    if context.json:
        output.print_json({"items": names})
    else:
        for name in names:
            output.print_line(name)


def _print_receipt(verb: str, receipt: Receipt, context: Context, store: sync.Store | None) -> None:
    if context.json:
        output.print_json(receipt)
        return
    output.print_line(f"{verb}: {output.receipt_text(receipt)}")
    if store is not None:
        output.print_physically_gone(receipt, store.capabilities)


def check(*, context: Context) -> int:
    """Check everything that is stored, and report problems.

    In all tenants, or in the one that --tenant names. Exit code 6 if there are problems.
    """
    context.refuse_user()
    problems: list[Problem] = []
    with context.open_whole() as store:
        durability = store.capabilities.durability
        if context.tenant:
            problems = store.tenant(context.tenant).check()
        else:
            total = store.admin.stats().conversations
            with output.progress_bar("checking conversations", total, shown=not context.json) as progress:
                for found in store.admin.check():
                    if isinstance(found, Problem):
                        problems.append(found)
                    else:
                        progress(found)
    if context.json:
        output.print_json({"problems": problems, "durability": durability})
        return Corrupt.exit_code if problems else 0
    output.print_note(f"acknowledged writes survive {output.SURVIVES[durability]}")
    if problems:
        for problem in problems:
            output.print_line(f"{problem.where}: {problem.what}")
    else:
        output.print_line("nothing is wrong")
    return Corrupt.exit_code if problems else 0


def reindex(
    *,
    embedder: EmbedderName = None,
    forget_others: Annotated[bool, Parameter(negative=(), help="Delete the vectors of all other embedders.")] = False,
    context: Context,
) -> None:
    """Rebuild the search index and, with an embedder, the vectors.

    Reads and writes continue meanwhile. Does nothing for a store without an index.
    """
    context.refuse_user()
    with context.open_whole(embedder=load_embedder(embedder)) as store:
        how = store.capabilities.search
        total = store.admin.stats().messages
        with output.progress_bar("indexing messages", total, shown=not context.json) as progress:
            for done in store.admin.reindex(forget_others=forget_others):
                progress(min(done, total))
    if context.json:
        output.print_json({"search": how, "messages": total, "embedder": embedder})
    elif how == "index" or embedder is not None:
        output.print_line(f"indexed: {output.counted(total, 'message')}")
    else:
        output.print_line("this store has no search index: searches scan the messages")


def upgrade(*, context: Context) -> None:
    """Upgrade a store to the format of this version.

    In place: back it up first. A store that has this format stays unchanged.
    """
    import asyncio

    from hansard.adapters.langgraph import forms
    from hansard.backends.schemes import open_backend

    async def upgraded() -> int:
        backend = await open_backend(context.url, upgrade=True)
        try:
            return await forms.upgrade(backend)
        finally:
            await backend.close()

    context.refuse_user()
    require_store(context.url)
    checkpoints = asyncio.run(upgraded())
    if context.json:
        output.print_json({"url": shown(context.url), "version": __version__, "checkpoints": checkpoints})
    else:
        output.print_note(f"{shown(context.url)} has the format of Hansard {__version__}")


def purge(
    *,
    older_than: Annotated[
        str | None,
        Parameter(help="Delete conversations whose last message is older than this (30d, 12h, 2w) or a date."),
    ] = None,
    by: Annotated[
        Literal["last-message", "updated"],
        Parameter(help="Which time counts: the last message, or the last change of any kind, including imports."),
    ] = "last-message",
    all_tenants: Annotated[
        bool, Parameter(negative="", show_default=False, help="In every tenant, not only one.")
    ] = False,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False, help="Only count what would go.")] = False,
    yes: Yes = False,
    context: Context,
) -> None:
    """Delete old conversations, and remove expired data.

    Without --older-than, only expired data of all tenants is removed, and only without --tenant and --user.
    """
    if all_tenants and (context.tenant or context.user):
        raise ValidationError("--all-tenants includes everything: leave --tenant and --user out")
    since = None if older_than is None else moment(older_than, "--older-than")
    what: PurgeBy = "updated" if by == "updated" else "last_message"
    with context.open_whole() as store:
        views = [store.tenant(name) for name in store.admin.tenants()] if all_tenants else [context.view(store)]
        total = Receipt(physically_gone=True)
        if since is not None:
            total = sum((view.purge(since, by=what, dry_run=True) for view in views), total)
        if not dry_run:
            if total:
                confirm(f"Delete {output.receipt_text(total)}?", yes=yes)
            receipts = [view.purge(since, by=what) for view in views]
            if all_tenants:
                # Expired data is removed in all tenants at once, through the whole store.
                receipts.append(store.purge())
            is_gone = all(each.physically_gone for each in receipts)
            total = structs.replace(sum(receipts, Receipt()), physically_gone=is_gone)
    _print_receipt("would delete" if dry_run else "deleted", total, context, None if dry_run else store)
    swept = not dry_run and context.tenant is None and context.user is None
    if swept and total.physically_gone and store.capabilities.secure_delete and not context.json:
        output.print_line("The storage contains no remnants of earlier deletions.")


def vacuum(*, context: Context) -> None:
    """Free the disk space of deleted data.

    Reads continue meanwhile; on SQLite, writers wait until it is done.
    """
    context.refuse_user()
    with context.open_whole() as store:
        done = store.admin.vacuum()
    if context.json:
        output.print_json(done)
    else:
        output.print_line(f"vacuumed: {output.size(done.bytes_before)} before, {output.size(done.bytes_after)} after")


def erase_user(
    id: Annotated[str, Parameter(help="The user.")],
    /,
    *,
    yes: Yes = False,
    context: Context,
) -> None:
    """Erase a user.

    Deletes the user's own conversations, messages in others, records and usage. Can be repeated.
    """
    with context.open() as store:
        confirm(f"Erase all data of user {id!r}?", yes=yes)
        receipt = store.erase_user(id)
    _print_receipt("erased", receipt, context, store)


def version(*, context: Context) -> None:
    """Show the version of Hansard."""
    if context.json:
        output.print_json({"version": __version__})
    else:
        output.print_line(__version__)
