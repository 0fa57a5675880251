"""`hansard import` of other programs' files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from hansard.cli import output
from hansard.cli.context import Context, is_missing
from hansard.errors import ValidationError

if TYPE_CHECKING:
    from hansard.importers import Importer, ImportReport, ImportSource
    from hansard.importers.load import Progress
    from hansard.store import Store

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
    from hansard.importers import importer_for, importer_named, open_source
    from hansard.importers.registry import parsed_map

    source = open_source(path)
    try:
        if fields is not None and importer not in ("jsonl", "csv"):
            raise ValidationError("--map is for plain rows: pass --from jsonl or --from csv with it")
        found = importer_named(importer, parsed_map(fields)) if importer else importer_for(source)
        report = asyncio.run(_import(source, found, context, agent=agent, dry=dry, strict=strict))
    finally:
        source.close()
    _print(report, found, context, dry=dry)
    return ValidationError.exit_code if report.problems else 0


async def _import(
    source: ImportSource, importer: Importer, context: Context, *, agent: str | None, dry: bool, strict: bool
) -> ImportReport:
    from hansard import connect
    from hansard.importers import ImportReport, load
    from hansard.importers.load import Owner

    report = ImportReport(importer.name)
    with _progress(source, report, context) as progress:
        conversations = importer.read(source, report)
        first = list(islice(conversations, 1))
        is_refused = not first or (strict and bool(report.problems))
        # A dry run, or an import that stores nothing, must not create a store that is missing.
        url = "memory://" if (dry or is_refused) and is_missing(context.url) else context.url
        async with connect(url) as store:
            return await load(
                _view(store, context),
                chain(first, conversations),
                report,
                owner=Owner(agent_id=agent),
                dry_run=dry,
                strict=strict,
                progress=progress,
            )


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
