"""`hansard import` of other programs' files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from hansard.cli import output
from hansard.cli.context import Context, is_missing
from hansard.errors import ValidationError

if TYPE_CHECKING:
    from hansard.importers import Importer, ImportReport, ImportSource
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
    path: Path,
    context: Context,
    *,
    importer: str | None,
    fields: str | None,
    agent: str | None,
    dry: bool,
    strict: bool,
) -> int:
    from hansard.importers import importer_for, importer_named, open_source

    source = open_source(path)
    try:
        if fields is not None and importer not in ("jsonl", "csv"):
            raise ValidationError("--map is for plain rows: pass --from jsonl or --from csv with it")
        found = importer_named(importer, _parsed(fields)) if importer else importer_for(source)
        report = asyncio.run(_import(source, found, context, agent=agent, dry=dry, strict=strict))
    finally:
        source.close()
    _print(report, found, context, dry=dry)
    return ValidationError.exit_code if report.problems else 0


def _parsed(fields: str | None) -> dict[str, str]:
    """`role=author,content=body` as a mapping."""
    pairs = [pair.partition("=") for pair in (fields or "").split(",") if pair]
    if any(not name or not field for name, _, field in pairs):
        raise ValidationError("--map takes pairs: role=author,content=body")
    return {name.strip(): field.strip() for name, _, field in pairs}


async def _import(
    source: ImportSource, importer: Importer, context: Context, *, agent: str | None, dry: bool, strict: bool
) -> ImportReport:
    from hansard import connect
    from hansard.importers import ImportReport, load
    from hansard.importers.load import Owner

    report = ImportReport(importer.name)
    # A dry run must not make a store that is missing.
    url = "memory://" if dry and is_missing(context.url) else context.url
    total = sum(source.size(name) for name in source.names())
    with output.progress_bar(f"importing {importer.name}, kB", total // 1000, shown=not context.json) as move:
        read = 0

        def moved(count: int) -> None:
            nonlocal read
            read += count
            move(min(read, total) // 1000)

        source.moved = moved
        async with connect(url) as store:
            conversations = importer.read(source, report)
            return await load(
                _view(store, context), conversations, report, owner=Owner(agent_id=agent), dry_run=dry, strict=strict
            )


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
