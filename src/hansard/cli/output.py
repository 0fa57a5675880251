"""Output of the commands: facts, reports, local times, sizes, previews, progress bars, and JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.cli.values import visible
from hansard.contract.backend import Capabilities
from hansard.model import Conversation, Message, Receipt, Report

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_PREVIEW = 60
_UNBOUNDED = 4000
"""Columns if stdout is not a terminal: programs that read a pipe cut lines themselves."""
_SHOWN = 20
SURVIVES = {
    "none": "nothing: they end with the process",
    "process": "a crash of this program, but perhaps not of the machine or the server",
    "machine": "a crash of the machine",
}
"""What acknowledged writes survive, by `Capabilities.durability`."""


def print_json(value: Any) -> None:
    """Prints one JSON document to stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def console() -> Console:
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            """Raises, because Rich would exit with an error."""
            raise BrokenPipeError

    if hasattr(sys.stdout, "reconfigure"):
        # Print characters that the terminal cannot encode as escapes, instead of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    width = None if sys.stdout.isatty() else _UNBOUNDED
    return Screen(width=width, highlight=False, markup=False, emoji=False)


def print_facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Prints names and values. Leaves out empty values."""
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, show_edge=False, show_header=False)
    drawn.add_column(style="dim", no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, value in pairs:
        if value not in (None, "", {}, ()):
            drawn.add_row(name, Text(cell(value)))
    draw(drawn)


def draw(drawn: Table, *, width: int | None = None) -> None:
    """Prints a table `width` cells wide, even if the terminal is narrower."""
    screen = console()
    if screen.is_terminal:
        screen.print(drawn, width=width, crop=False)
        return
    with screen.capture() as captured:
        screen.print(drawn, width=width, crop=False)
    for line in captured.get().splitlines():
        print(line.rstrip())


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, datetime):
        return local(value)
    if isinstance(value, dict | list | tuple):
        return visible(msgspec.json.encode(value).decode())
    return visible(str(value))


def print_line(text: str) -> None:
    """Prints a line to stdout."""
    from rich.text import Text

    console().print(Text(visible(text)))


def print_note(text: str) -> None:
    """Prints a line to stderr, apart from the result."""
    print(visible(text), file=sys.stderr)


def local(time: datetime) -> str:
    return time.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def preview(text: str | None, cells: int = _PREVIEW) -> str:
    """Returns the beginning of a text on one line, at most `cells` narrow characters wide."""
    from rich.text import Text

    if not text:
        return ""
    # Four times as many characters are enough for any width, so a huge text need not be processed as a whole.
    line = Text(" ".join(visible(text[: cells * 4]).split()))
    line.truncate(cells, overflow="ellipsis")
    return line.plain


def size(count: int | None) -> str | None:
    if count is None:
        return None
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:,.0f} {unit}" if unit == "bytes" else f"{amount:,.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def receipt_text(receipt: Receipt) -> str:
    """Returns what a deletion removed, as text."""
    names = ("conversations", "messages", "branches", "summaries", "records", "blobs", "usage_rows")
    parts = [
        counted(getattr(receipt, name), _singular(name), name.replace("_", " "))
        for name in names
        if getattr(receipt, name)
    ]
    return ", ".join(parts) or "nothing"


def print_physically_gone(receipt: Receipt, capabilities: Capabilities) -> None:
    """Prints whether the deleted bytes are gone and, if not, where they may remain."""
    if receipt.physically_gone:
        if receipt:
            print_line("The bytes are physically gone.")
    elif receipt or capabilities.secure_delete:
        print_line(f"The bytes are not all physically gone: they may remain {capabilities.remnants}")


def _singular(name: str) -> str:
    return {"branches": "branch", "summaries": "summary"}.get(name, name.removesuffix("s")).replace("_", " ")


def print_report(report: Report, verb: str, how: str) -> None:
    """Prints the result of a copy or an import, and `how` it was verified."""
    print_line(f"{verb}: {_counts(report)}")
    if report.skipped or report.skipped_records:
        passed = counted(report.skipped, "conversation"), counted(report.skipped_records, "record")
        print_line(f"Already there, and equal: {passed[0]}, {passed[1]}")
    _problems("Conflicts, left unchanged", report.conflicts)
    _problems("Not stored exactly", report.losses)
    print_line(f"Verified: {how}." if report.verified else "NOT verified: see above.")


def _counts(report: Report) -> str:
    names = ("conversations", "messages", "summaries", "records", "blobs")
    return ", ".join(counted(getattr(report, name), _singular(name), name) for name in names)


def _problems(title: str, found: Sequence[Any]) -> None:
    if found:
        print_line(f"{title} ({len(found):,}):")
    for problem in found[:_SHOWN]:
        print_line(f"  {problem.where}: {problem.what}")
    if len(found) > _SHOWN:
        print_line(f"  … and {len(found) - _SHOWN:,} more: --json lists them all")


# Messages, as they are stored


def print_raw(message: Message) -> None:
    """Prints the content as it is stored: text as text, everything else as JSON on one line."""
    sys.stdout.flush()
    content = message.content
    body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    sys.stdout.buffer.write(body + b"\n")


def print_messages_json(conversation: Conversation, messages: Iterator[Message]) -> None:
    """Prints one JSON document with any number of messages, in constant memory."""
    write = sys.stdout.buffer.write
    write(b'{"conversation":' + msgspec.json.encode(conversation) + b',"messages":[')
    for number, message in enumerate(messages):
        write((b"," if number else b"") + msgspec.json.encode(message))
    write(b"]}\n")
    sys.stdout.buffer.flush()


# Progress, as a bar on stderr if that is a terminal

OnProgress = Callable[[int], None]
"""Called with the total amount of work done so far."""


@contextmanager
def progress_bar(what: str, total: int | None, *, shown: bool, unit: str = "") -> Iterator[OnProgress]:
    """A bar with the time that is left. With a `unit`, also the rate, and the time at which it will end."""
    if not shown or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    more = (TextColumn("{task.fields[pace]}"),) if unit else ()
    with Progress(*columns, *more, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total, pace="")

        def move(done: int) -> None:
            progress.update(task, completed=done)
            speed, left = progress.tasks[0].speed, progress.tasks[0].time_remaining
            progress.update(task, pace=_pace(speed, left, unit))

        yield move


def _pace(speed: float | None, left: float | None, unit: str) -> str:
    """The rate and the end of some work, such as `1,250 kB/s, done at 14:05:20`."""
    if speed is None:
        return ""
    end = "" if left is None else f", done at {datetime.now().astimezone() + timedelta(seconds=left):%H:%M:%S}"
    return f"{speed:,.0f} {unit}/s{end}"
