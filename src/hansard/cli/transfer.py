"""Commands that transfer conversations: `export`, `import`, `copy`, `backup`, `restore`."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

from cyclopts import Parameter
from msgspec import structs

from hansard.cli import output
from hansard.cli.context import STORE_FILE, Context, is_missing, path_of
from hansard.cli.foreign import import_foreign, is_own_export
from hansard.cli.values import STDIN, moment, pairs
from hansard.errors import Conflict, Corrupt, FormatMismatch, NotFound, Unsupported, ValidationError
from hansard.model import OnConflict, Problem, Report
from hansard.urls import Url

if TYPE_CHECKING:
    from hansard import sync
    from hansard.exporters import ExportReport
    from hansard.exporters.redaction import Redact


OnConflictOption = Annotated[
    OnConflict,
    Parameter(help="Skip and report what exists with other content, or stop with an error."),
]
_RESUME = "stopped. Nothing is lost: run the same command again to continue."


def export(
    *ids: Annotated[str, Parameter(help="Only these conversations; by default, all.")],
    format: Annotated[
        str, Parameter(name="--as", help="The format: openai, markdown, html, csv, …; by default Hansard's own.")
    ] = "hansard",
    agent: Annotated[str | None, Parameter(help="Only the conversations of this agent.")] = None,
    metadata: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help="key=value that a conversation must have; may be repeated."),
    ] = None,
    since: Annotated[str | None, Parameter(help="Last message not older than this: 30d, 12h, or a date.")] = None,
    until: Annotated[str | None, Parameter(help="Last message older than this.")] = None,
    model: Annotated[str | None, Parameter(help="Only conversations in which this model answered.")] = None,
    label: Annotated[str | None, Parameter(help="Only conversations with this label.")] = None,
    rating: Annotated[
        float | None, Parameter(allow_leading_hyphen=True, help="Only those with a message rated with this value.")
    ] = None,
    redact: Annotated[
        str | None, Parameter(help="package.module:function, a function of text that every text passes through.")
    ] = None,
    out: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Write to this file instead of stdout.")
    ] = None,
    force: Annotated[bool, Parameter(negative="", show_default=False, help="Replace a file that exists.")] = False,
    context: Context,
) -> None:
    """Write conversations, without loss or in another format.

    Without --as these are JSON Lines with branches, blobs, summaries and records: see docs/reference/export-format.md.
    For training data, pages for people and tables, see docs/howto/export.md; --redact is for these.
    --tenant and --user choose whose. A file is created only when it is complete.
    """
    from hansard.exporters import ExportReport

    chosen = list(ids) or None
    report = ExportReport() if format != "hansard" else None
    with context.open() as store:
        filters = (chosen, agent, context.user, metadata, since, until, model, label, rating, report)
        total = None if any(each is not None for each in filters) else store.stats().messages
        pieces = store.export(
            conversation_ids=chosen,
            agent_id=agent,
            format=format,
            metadata=pairs(metadata, "--metadata") if metadata else None,
            since=None if since is None else moment(since, "--since"),
            until=None if until is None else moment(until, "--until"),
            model=model,
            label=label,
            rating=rating,
            redact=_redaction(redact),
            report=report,
        )
        with (
            output.progress_bar("exporting messages", total, shown=out is not None) as progress,
            _output_file(out, force) as file,
        ):
            messages = 0
            for piece in pieces:
                file.write(piece)
                messages = messages + piece.startswith(b'{"type":"message"') if report is None else report.messages
                progress(messages)
    if out is not None:
        _print_exported(out, messages if report is None else report, context)


def _redaction(name: str | None) -> Redact | None:
    if name is None:
        return None
    from hansard.exporters.redaction import redact_named

    # As for `python -m`: a module next to the caller's files.
    if "" not in sys.path:
        sys.path.insert(0, "")
    return redact_named(name)


def _print_exported(out: Path, written: int | ExportReport, context: Context) -> None:
    if isinstance(written, int):
        if context.json:
            output.print_json({"file": str(out), "messages": written})
        else:
            output.print_note(f"exported {output.counted(written, 'message')} to {out}")
        return
    if context.json:
        output.print_json({"file": str(out)} | structs.asdict(written))
        return
    pairs_too = f", {output.counted(written.pairs, 'pair')}" if written.pairs else ""
    what = f"{output.counted(written.conversations, 'conversation')}, {output.counted(written.messages, 'message')}"
    output.print_note(f"exported {what}{pairs_too} to {out}")
    for loss, found in written.losses.items():
        output.print_note(f"not written: {loss}, {output.counted(found.count, 'time')}, as in {found.example}")


@contextmanager
def _output_file(path: Path | None, force: bool) -> Iterator[IO[bytes]]:
    """Yields stdout, or a temporary file that is renamed when it is complete."""
    if path is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists() and not force:
        raise Conflict(f"{path} exists already: choose another name, or pass --force to replace it")
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path.parent))
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def import_(
    file: Annotated[
        str, Parameter(help="A file, a folder, a zip file or a server's URL; '-' reads an export from stdin.")
    ],
    /,
    *,
    source: Annotated[
        str | None, Parameter(name="--from", help="The program it comes from, where it is not recognised: chatgpt, …")
    ] = None,
    fields: Annotated[
        str | None, Parameter(name="--map", help="Which field is which in plain rows: role=author,content=body,…")
    ] = None,
    agent: Annotated[str | None, Parameter(help="The agent of other programs' conversations.")] = None,
    dry_run: Annotated[
        bool, Parameter(negative="", show_default=False, help="Only count what another program's file would bring.")
    ] = False,
    strict: Annotated[
        bool, Parameter(negative="", show_default=False, help="Stop at the first damaged record of such a file.")
    ] = False,
    on_conflict: OnConflictOption = "skip",
    verify: Annotated[
        bool, Parameter(negative="", show_default=False, help="Read back every message of an export that was stored.")
    ] = False,
    context: Context,
) -> int:
    """Import what `export` or another program wrote.

    ChatGPT, Claude, Codex, Open WebUI and others are recognised: see docs/howto/import.md. What is stored already is
    skipped, so that an interrupted import can be repeated and a newer file adds only what is new. Exit code 5 if there
    were conflicts. A missing store is created.
    """
    path = None if file == STDIN else Path(file)
    is_url = "://" in file
    if path is not None and not is_url and not path.exists():
        raise NotFound(f"there is no file or folder {file}")
    if path is not None and (is_url or source is not None or not is_own_export(path)):
        given = file if is_url else path
        return import_foreign(given, context, importer=source, fields=fields, agent=agent, dry=dry_run, strict=strict)
    if agent or dry_run or strict or fields:
        raise ValidationError("--agent, --dry-run, --strict and --map are for other programs' files, not for an export")
    with context.open(create=True) as store, _lines(path, context) as lines, _resumable():
        report = store.import_(lines, on_conflict=on_conflict, verify=verify)
    how = "everything was read back and is equal" if verify else "hashes and counts agree"
    return _finish(report, "Imported", how, context)


@contextmanager
def _lines(path: Path | None, context: Context) -> Iterator[IO[bytes] | CountingReader]:
    if path is None:
        yield sys.stdin.buffer
        return
    size = path.stat().st_size
    with path.open("rb") as file, output.progress_bar("importing kB", size // 1000, shown=not context.json) as progress:
        yield CountingReader(file, progress)


class CountingReader:
    """A file that reports how much of it was read."""

    def __init__(self, file: IO[bytes], progress: output.OnProgress) -> None:
        self._file = file
        self._progress = progress
        self._done = 0

    def read(self, size: int) -> bytes:
        block = self._file.read(size)
        self._done += len(block)
        self._progress(self._done // 1000)
        return block


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        output.print_note(_RESUME)
        raise


def _finish(report: Report, verb: str, how: str, context: Context) -> int:
    if context.json:
        output.print_json(report)
    else:
        output.print_report(report, verb, how)
    if not report.verified:
        return Corrupt.exit_code
    return Conflict.exit_code if report.conflicts else 0


def copy(
    source: Annotated[str, Parameter(name="FROM", help="The URL of the store to copy.")],
    target: Annotated[str, Parameter(name="TO", help="The URL of the store to copy to. A missing one is created.")],
    /,
    *,
    agent: Annotated[str | None, Parameter(help="Only the conversations of this agent.")] = None,
    all_tenants: Annotated[
        bool, Parameter(negative="", show_default=False, help="Every tenant, not only one.")
    ] = False,
    on_conflict: OnConflictOption = "skip",
    context: Context,
) -> int:
    """Copy a store to another, of any kind.

    The copy is exact if the target supports it, and verified by reading it back. It can be stopped and repeated: it
    continues, and adds what was written since. --tenant and --user copy only that tenant or user. Exit code 5 if there
    were conflicts, 6 if the stored data differs.
    """
    if all_tenants and (context.tenant or context.user or agent):
        raise ValidationError("--all-tenants copies everything: leave --tenant, --user and --agent out")
    with context.open_whole(source) as whole, context.open_whole(target, create=True) as other:
        store = whole if all_tenants else _tenant(whole, context)
        total = None if context.user or agent else (whole.admin if all_tenants else store).stats().messages
        with output.progress_bar("copying messages", total, shown=not context.json) as progress, _resumable():

            def moved(report: Report) -> None:
                progress(report.messages)

            if all_tenants:
                report = whole.admin.copy_to(other, on_conflict=on_conflict, progress=moved)
            else:
                report = store.copy_to(
                    _tenant(other, context),
                    user_id=context.user,
                    agent_id=agent,
                    on_conflict=on_conflict,
                    progress=moved,
                )
    return _finish(report, "Copied", "everything was read back and is equal", context)


def _tenant(store: sync.Store, context: Context) -> sync.Store:
    return store if context.tenant is None else store.tenant(context.tenant)


def backup(
    file: Annotated[Path, Parameter(help="The new file; a folder for a file: store. It must not exist.")],
    /,
    *,
    context: Context,
) -> None:
    """Copy the whole store to a file.

    The copy contains all tenants and is consistent, while writes continue. `restore` restores it.
    """
    context.refuse_user()
    with context.open_whole() as store:
        path = store.backup(file)
    size = path.stat().st_size if path.is_file() else None
    if context.json:
        output.print_json({"file": str(path), "bytes": size})
    else:
        output.print_note(f"backed up to {path}" + (f", {output.size(size)}" if size is not None else ""))


def restore(
    file: Annotated[Path, Parameter(help="What `backup` or `export` wrote.")],
    /,
    *,
    context: Context,
) -> int:
    """Restore what `backup` or `export` wrote.

    A backup becomes the store at --url, which must not exist: nothing is overwritten. An export is imported.
    """
    if not file.exists():
        raise NotFound(f"there is no file {file}")
    kind = kind_of(file)
    if kind is None:
        return import_(str(file), context=context)
    target = restore_backup(file, kind, context.url)
    if context.json:
        output.print_json({"url": context.url, "file": str(target)})
    else:
        output.print_note(f"restored {file} to {context.url}")
    return 0


# A backup is copied next to its target, checked, and then renamed

Kind = Literal["sqlite", "file"]

_MAGIC = b"SQLite format 3\0"
_SQLITE_SUFFIXES = ("", "-wal", "-shm")


def kind_of(backup: Path) -> Kind | None:
    """Returns which backend wrote the backup; None if it is not a backup."""
    if backup.is_dir():
        if not (backup / STORE_FILE).exists():
            raise FormatMismatch(f"the folder {backup} is not a backup: it has no {STORE_FILE}", wanted=STORE_FILE)
        return "file"
    with backup.open("rb") as opened:
        return "sqlite" if opened.read(len(_MAGIC)) == _MAGIC else None


def restore_backup(backup: Path, kind: Kind, url: str) -> Path:
    """Restores a backup to the file or folder of the URL, and returns it. Never overwrites one that exists."""
    target = path_of(url)
    if target is None or Url(url).scheme != kind:
        raise Unsupported(
            f"this backup is restored to a {kind}: URL, not to {url}: restore it, then use `hansard copy`",
            capability="backup",
        )
    if not is_missing(url) or (
        kind == "sqlite" and any(_with_suffix(target, end).exists() for end in _SQLITE_SUFFIXES)
    ):
        raise _exists_error(target)
    part = target.with_name(target.name + ".restoring")
    try:
        _copy(backup, part)
        _check_backup(backup, part, kind)
        _rename_to_target(part, target)
    finally:
        _remove(part)
    return target


def _exists_error(target: Path) -> Conflict:
    return Conflict(f"{target} exists already: move it away first, nothing is overwritten")


def _copy(backup: Path, part: Path) -> None:
    if backup.is_dir():
        shutil.copytree(backup, part)
    else:
        shutil.copyfile(backup, part)


def _check_backup(backup: Path, part: Path, kind: Kind) -> None:
    """Opens the copy as a store and checks it, to detect a damaged or foreign file before it is renamed."""
    from hansard import sync

    slashes = ":///" if kind == "sqlite" else "://"
    try:
        with sync.connect(kind + slashes + quote(str(part.absolute()))) as store:
            found = next((each.what for each in store.admin.check() if isinstance(each, Problem)), None)
    except Corrupt as error:
        found = str(error).removeprefix(f"{part.absolute()} is damaged: ")
    if found is not None:
        raise Corrupt(f"the backup {backup} is damaged, and was not restored: {found}", where=str(backup))
    for path in part.rglob("*") if part.is_dir() else [part]:
        if path.is_file():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())


def _rename_to_target(part: Path, target: Path) -> None:
    """Renames the copy, unless the target was created meanwhile."""
    try:
        if part.is_dir():
            # Replaces an empty folder, but nothing else.
            part.rename(target)
        else:
            # A link, because a rename would replace a file that was created meanwhile.
            os.link(part, target)
    except OSError as error:
        if target.exists():
            raise _exists_error(target) from error
        part.rename(target)  # not every file system has links


def _with_suffix(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


def _remove(part: Path) -> None:
    if part.is_dir():
        shutil.rmtree(part, ignore_errors=True)
    for end in _SQLITE_SUFFIXES:
        _with_suffix(part, end).unlink(missing_ok=True)
