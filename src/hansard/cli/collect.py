"""The commands `collect` and `resume`: transcripts of coding agents, stored and brought back."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context, path_of, require_store
from hansard.errors import NotFound, Unavailable, ValidationError
from hansard.urls import Url

if TYPE_CHECKING:
    from hansard.collector import Collector
    from hansard.collector.collector import Collected
    from hansard.collector.resume import Resumption
    from hansard.importers.report import ImportReport
    from hansard.store import Store

_SCAN = 60.0
"""Seconds between scans of everything, for events that were lost."""


def collect(
    *,
    agents: Annotated[
        list[str] | None,
        Parameter(name="--agent", negative="", show_default=False, help="Only this coding agent; may be repeated."),
    ] = None,
    once: Annotated[
        bool, Parameter(negative="", show_default=False, help="Store what is there and end, as for cron.")
    ] = False,
    install: Annotated[
        bool, Parameter(negative="", show_default=False, help="Install and start a systemd user unit that collects.")
    ] = False,
    context: Context,
) -> int:
    """Store the transcripts of coding agents.

    Finds those of Claude Code, Codex, Gemini CLI and opencode on this machine, stores them, and follows what is written
    until Ctrl-C. What an agent deletes stays in the store: see docs/howto/collect.md. A missing store is created.
    """
    if install:
        return _install(agents or [], context)
    return asyncio.run(_collect(agents or [], context, once=once))


async def _collect(names: list[str], context: Context, *, once: bool) -> int:
    from hansard import connect
    from hansard.collector import Collector, agent_named, coding_agents

    agents = [agent_named(name) for name in names] or coding_agents()
    async with connect(context.url) as store:
        told = None if once else lambda each: _tell(each, context)
        collector = Collector(_view(store, context), agents, on_collected=told)
        await collector.start()
        if once:
            await collector.scan()
            _print(collector.report, context)
            return ValidationError.exit_code if collector.report.problems else 0
        task = asyncio.ensure_future(_follow(collector))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
    return 0


def _view(store: Store, context: Context) -> Store:
    view = store if context.tenant is None else store.tenant(context.tenant)
    return view if context.user is None else view.user(context.user)


async def _follow(collector: Collector) -> None:
    from hansard.collector.watcher import changes

    folders = ", ".join(map(str, collector.folders())) or "no folder yet: no coding agent has written here"
    output.print_note(f"collecting from {folders}")
    scanned = -_SCAN
    told: set[str] = set()
    """What was said not to be kept: a file that is read again has it again."""
    async for paths in changes(collector.folders):
        try:
            if paths is None or time.monotonic() - scanned >= _SCAN:
                await collector.scan()
                scanned = time.monotonic()
            for path in sorted(paths or ()):
                await collector.take(path)
        except Unavailable as error:
            # What was not stored is found by the next scan.
            output.print_note(f"the store does not answer, trying again: {error}")
            scanned = -_SCAN
            await asyncio.sleep(5)
        _print_problems(collector.report)
        _print_losses(collector.report, told)
        told.update(collector.report.losses)


def _tell(each: Collected, context: Context) -> None:
    if context.json:
        output.print_json(each)
        sys.stdout.flush()
    else:
        output.print_note(f"{each.agent} {each.conversation_id}: {each.title or 'no title yet'}")


def _print_problems(report: ImportReport) -> None:
    for problem in report.problems:
        output.print_note(f"problem: {problem.where}: {problem.what}")
    report.problems.clear()


def _print_losses(report: ImportReport, told: Collection[str] = ()) -> None:
    for what, loss in report.losses.items():
        if what not in told:
            times = output.counted(loss.count, "time")
            output.print_note(f"not kept: {what}, {times}, as {output.preview(loss.example)}")


def _print(report: ImportReport, context: Context) -> None:
    if context.json:
        output.print_json(report)
        return
    output.print_facts(
        [
            ("new conversations", report.new),
            ("messages", report.messages),
            ("lines", report.lines),
        ]
    )
    _print_problems(report)
    _print_losses(report)


def _install(names: list[str], context: Context) -> int:
    from hansard.collector import agent_named, service

    for name in names:
        agent_named(name)
    arguments = ["--url", _absolute(context.url)]
    for option, value in (("--tenant", context.tenant), ("--user", context.user)):
        arguments += [option, value] if value is not None else []
    for name in names:
        arguments += ["--agent", name]
    path, is_started = service.install(arguments, os.environ)
    if context.json:
        output.print_json({"file": str(path), "started": is_started})
    elif is_started:
        output.print_note(f"installed {path}, and started it")
    else:
        output.print_note(f"installed {path}; start it with: systemctl --user enable --now {service.NAME}")
    return 0


def _absolute(url: str) -> str:
    """The URL of an embedded store with its whole path: a service runs in another folder."""
    path = path_of(url)
    if path is None:
        return url
    options = f"?{url.partition('?')[2]}" if "?" in url else ""
    slashes = ":///" if Url(url).scheme == "sqlite" else "://"
    return Url(url).scheme + slashes + quote(str(path.absolute())) + options


def resume(
    id: Annotated[str, Parameter(help="The conversation, as `search` and `conversations` show it.")],
    /,
    *,
    run: Annotated[
        bool, Parameter(negative="", show_default=False, help="Run the command instead of printing it.")
    ] = False,
    context: Context,
) -> int:
    """Continue a session in its own coding agent.

    Prints the agent's command, or runs it with --run. If the agent has deleted the transcript, it is written again
    first, byte for byte.
    """
    require_store(context.url)
    found = asyncio.run(_resumption(id, context))
    for path in found.restored:
        output.print_note(f"restored {path}")
    if run:
        return _run(found)
    if context.json:
        output.print_json(found)
        return 0
    command = shlex.join(found.command)
    output.print_line(f"cd {shlex.quote(found.folder)} && {command}" if found.folder else command)
    return 0


async def _resumption(id: str, context: Context) -> Resumption:
    from hansard import connect
    from hansard.collector.resume import resumption

    async with connect(context.url) as store:
        return await resumption(_view(store, context), id)


def _run(found: Resumption) -> int:
    if found.folder is not None:
        if not Path(found.folder).is_dir():
            raise NotFound(f"the session's folder {found.folder} is gone: create it, then resume")
        os.chdir(found.folder)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvp(found.command[0], found.command)
    except FileNotFoundError as error:
        raise NotFound(f"{found.command[0]} is not installed: {shlex.join(found.command)} would resume it") from error
