"""An answer in the terminal: a spinner until it begins, then Markdown, block by block, as it is streamed."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from hansard.cli import output
from hansard.cli.values import visible

_FENCES = ("```", "~~~")


async def print_answer(pieces: AsyncIterator[str], author: str) -> None:
    """Prints an answer while it is streamed. Programs that read a pipe get its text as it is."""
    if sys.stdout.isatty():
        await _print_markdown(pieces, author)
        return
    async for piece in pieces:
        sys.stdout.write(visible(piece))
        sys.stdout.flush()
    print(flush=True)


async def _print_markdown(pieces: AsyncIterator[str], author: str) -> None:
    from rich.live import Live
    from rich.markdown import Markdown
    from rich.spinner import Spinner
    from rich.text import Text

    screen = output.console()
    screen.print(Text(visible(author), style="bold green"))
    rest = ""
    try:
        with Live(Spinner("dots", style="dim"), console=screen, transient=True, refresh_per_second=10) as live:
            async for piece in pieces:
                blocks, rest = split_blocks(rest + visible(piece))
                for block in blocks:
                    screen.print(Markdown(block), "")
                live.update(Markdown(rest))
    finally:
        # What has arrived of an interrupted answer is printed, too.
        if rest.strip():
            screen.print(Markdown(rest))


def split_blocks(text: str) -> tuple[list[str], str]:
    """Splits Markdown into its finished blocks and the rest. A blank line ends a block, except in fenced code."""
    blocks: list[str] = []
    lines: list[str] = []
    fence = ""
    *whole, last = text.split("\n")
    for line in whole:
        mark = line.lstrip()[:3]
        if mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        if line.strip() or fence:
            lines.append(line)
        elif lines:
            blocks.append("\n".join(lines))
            lines = []
    return blocks, "\n".join([*lines, last])
