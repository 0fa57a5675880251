"""`hansard import` of other programs' files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from hansard.cli import output
from hansard.cli.context import Context, is_missing
from hansard.errors import HansardError, ValidationError

if TYPE_CHECKING:
    from hansard.importers import Importer, ImportReport, ImportSource
    from hansard.importers.importer import ForeignConversation
    from hansard.importers.load import Owner, Progress
    from hansard.store import Store

_REMEDY = (
    ". Name its kind with --from, or say which field is which in JSON Lines or CSV: --from jsonl --map "
    "role=author,content=body"
)
_SIGN = b'{"hansard":'
_SHOWN = 5
"""Problems that are printed; JSON has more."""


def is_own_export(path: Path) -> bool:
    """Whether a file begins as `hansard export` writes it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(200).replace(b" ", b"").startswith(_SIGN)


def import_foreign(
    path: Path | str,
    context: Context,
    *,
    importer: str | None,
    fields: str | None,
    agent: str | None,
    dry: bool,
    strict: bool,
) -> int:
    from hansard.importers import ImportReport, importer_for, importer_named, open_source
    from hansard.importers.registry import parsed_map

    source = open_source(path)
    try:
        if fields is not None and importer not in ("jsonl", "csv"):
            raise ValidationError("--map is for plain rows: pass --from jsonl or --from csv with it")
        found = importer_named(importer, parsed_map(fields)) if importer else importer_for(source, _REMEDY)
        report = ImportReport(found.name)
        with _telling_what_is_stored(report, dry=dry):
            asyncio.run(_import(source, found, context, report, agent=agent, dry=dry, strict=strict))
    finally:
        source.close()
    _print(report, found, context, dry=dry)
    return ValidationError.exit_code if report.problems else 0


async def _import(
    source: ImportSource,
    importer: Importer,
    context: Context,
    report: ImportReport,
    *,
    agent: str | None,
    dry: bool,
    strict: bool,
) -> None:
    from hansard import connect
    from hansard.importers import load
    from hansard.importers.load import Owner
    from hansard.importers.reader_process import is_worthwhile, read_source
    from hansard.limits import Limits

    owner = Owner(agent_id=agent)
    url = context.url
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(_progress(source, report, context))
        store = None if is_missing(url) else await stack.enter_async_context(connect(url))
        is_apart = not (dry or strict) and is_worthwhile(source, importer)
        # Only another process makes terms, and only SQLite takes them: no other import must look for earlier ones.
        has_terms = is_apart and url.startswith("sqlite:")
        with_terms = has_terms and (store is None or await _is_first(_view(store, context), importer))
        found = read_source(source, importer, Limits(), report, with_terms=with_terms, is_apart=is_apart)
        read = await stack.enter_async_context(aclosing(found))
        conversations: AsyncIterable[ForeignConversation] = read
        if store is None:
            # A dry run, or an import that stores nothing, must not create the store.
            first = None if dry else await _first_accepted(read, report, context, owner, strict=strict)
            conversations = read if first is None else _with_first(first, read)
            store = await stack.enter_async_context(connect("memory://" if first is None else url))
        await load(
            _view(store, context),
            conversations,
            report,
            owner=owner,
            dry_run=dry,
            strict=strict,
            progress=progress,
        )


@contextmanager
def _telling_what_is_stored(report: ImportReport, *, dry: bool) -> Iterator[None]:
    """An import that does not reach its end says what of it stays: an error knows only of the write that failed."""

    def stored() -> str:
        count = output.counted(report.messages, "message is stored", "messages are stored")
        return f"{count}: another import adds the rest"

    try:
        yield
    except KeyboardInterrupt:
        if not dry:
            output.print_note(f"stopped. {stored()}")
        raise
    except HansardError as error:
        if report.messages and not dry:
            error.args = (f"{error}. {stored()}", *error.args[1:])
        raise


async def _is_first(store: Store, importer: Importer) -> bool:
    """Whether nothing was imported from this program: else most of it is stored, and need not be analysed."""
    return not (await store.list_conversations(metadata={"imported_from": importer.name}, limit=1)).items


async def _with_first(
    first: ForeignConversation, others: AsyncIterable[ForeignConversation]
) -> AsyncIterator[ForeignConversation]:
    yield first
    async for conversation in others:
        yield conversation


async def _first_accepted(
    conversations: AsyncIterable[ForeignConversation],
    report: ImportReport,
    context: Context,
    owner: Owner,
    *,
    strict: bool,
) -> ForeignConversation | None:
    """Returns the first conversation that a store accepts; None if it refuses all, each of which is reported."""
    from hansard import connect
    from hansard.importers import ImportReport, load

    async with connect("memory://") as store:
        async for conversation in conversations:
            tried = ImportReport(report.source, problems=[*report.problems] if strict else [])
            # One with a writer can be read only once, and is checked by its own way into a store.
            if conversation.writer is None or tried.problems:
                await load(_view(store, context), [conversation], tried, owner=owner, strict=strict)
            if conversation.writer is not None or tried.conversations:
                return conversation
            report.merge(tried)
    return None


@contextmanager
def _progress(source: ImportSource, report: ImportReport, context: Context) -> Iterator[Progress]:
    """A bar by what was read of the files. A database does not say how much it has: there, messages are counted."""
    with source.tables() as database:
        is_database = database is not None or not source.names()
    total = None if is_database else sum(source.size(name) for name in source.names()) // 1000
    unit = "messages" if is_database else "kB"
    what = f"importing {report.source}, {unit}"
    with output.progress_bar(what, total, shown=not context.json, unit=unit) as move:
        read = 0

        def moved(count: int) -> None:
            nonlocal read
            read += count

        def stored(report: ImportReport) -> None:
            move(report.messages if total is None else min(read // 1000, total))

        source.moved = moved
        yield stored


def _view(store: Store, context: Context) -> Store:
    view = store if context.tenant is None else store.tenant(context.tenant)
    return view if context.user is None else view.user(context.user)


def _print(report: ImportReport, importer: Importer, context: Context, *, dry: bool) -> None:
    if context.json:
        output.print_json(report)
        return
    output.print_facts(
        [
            ("source", importer.title),
            ("conversations", report.conversations),
            ("  new", report.new),
            ("  with new messages", report.grown),
            ("  unchanged", report.unchanged),
            ("messages", report.messages),
            ("other branches", report.branches),
            ("attachments", report.attachments),
            *([("lines of transcripts", report.lines)] if report.lines else []),
        ]
    )
    for what, loss in report.losses.items():
        output.print_line(f"not kept: {what}, {output.counted(loss.count, 'time')}, as {output.preview(loss.example)}")
    for problem in report.problems[:_SHOWN]:
        output.print_line(f"problem: {problem.where}: {problem.what}")
    more = len(report.problems) - _SHOWN + report.more_problems
    if more > 0:
        output.print_line(f"… and {output.counted(more, 'problem')} more: --json lists them")
    if dry:
        output.print_note("this was a dry run: nothing was stored")
    elif report.messages:
        output.print_note("find it with `hansard search WORDS`, or on the page that `hansard serve` shows")
