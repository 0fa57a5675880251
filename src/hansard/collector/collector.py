"""Finds the transcripts of coding agents, stores them, and stores what is added to them.

A file that has only grown is read from where reading ended. One that is new, was truncated or replaced is read whole,
and only what is missing is stored. What a file loses, and a file that is deleted, stays in the store.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct, structs

from hansard.collector.agents import CodingAgent, FilesAgent, LineAgent, SnapshotAgent
from hansard.collector.file_range import FileRange, end_of_lines
from hansard.collector.file_state import FileState, FileStates, FileVersion, check_of, locked, version_of
from hansard.collector.session_files import MOST, store_file
from hansard.collector.snapshot import update_changed
from hansard.collector.tail import LostTrack, append
from hansard.errors import NotFound, ValidationError
from hansard.importers.load import Owner, load
from hansard.importers.report import ImportReport
from hansard.importers.source import HEAD
from hansard.importers.transcript_file import SessionState, TranscriptFile, TranscriptSession
from hansard.importers.transcripts import line_count
from hansard.store import Store

_ATTEMPTS = 5
"""Of importing a file that another collector is importing too."""
_MOST = 16 << 20
"""Bytes that are added at once."""


class Collected(Struct, frozen=True):
    """A transcript of which something was stored."""

    agent: str
    path: str
    conversation_id: str
    title: str | None


OnCollected = Callable[[Collected], None]


class Collector:
    def __init__(
        self,
        store: Store,
        agents: Sequence[CodingAgent],
        *,
        environment: Mapping[str, str] | None = None,
        owner: Owner = Owner(),  # noqa: B008  (frozen)
        on_collected: OnCollected | None = None,
    ) -> None:
        self._store = store
        self._agents = agents
        self._environment = os.environ if environment is None else environment
        self._owner = owner
        self._on_collected = on_collected
        self._states = FileStates(store)
        self.report = ImportReport("collect")
        """Everything that was stored since the start."""

    async def start(self) -> None:
        """Reads how far each file was stored before."""
        await self._states.load()

    def folders(self) -> list[Path]:
        """The folders of the agents that exist."""
        found = [folder for agent in self._agents for folder in agent.folders(self._environment)]
        return [folder for folder in dict.fromkeys(found) if folder.is_dir()]

    async def scan(self) -> None:
        """Stores everything that is new in all folders, the newest files first."""
        found = {
            transcript: agent
            for agent in self._agents
            for folder in agent.folders(self._environment)
            for path in _files(folder)
            if (transcript := agent.transcript(path)) is not None
        }
        versions = {path: version for path in found if (version := self._changed(path)) is not None}
        for path in sorted(versions, key=lambda path: versions[path].modified, reverse=True):
            await self._take(path, found[path])
        for agent in self._agents:
            if isinstance(agent, FilesAgent):
                for folder in agent.folders(self._environment):
                    for path in _files(folder):
                        await self._take_file(path, agent)

    async def take(self, path: Path) -> None:
        """Stores what is new in a file, if it is a transcript."""
        for agent in self._agents:
            transcript = agent.transcript(path)
            folders = agent.folders(self._environment)
            if not any(path.is_relative_to(each) for each in folders):
                continue
            if transcript is not None:
                await self._take(transcript, agent)
            elif isinstance(agent, FilesAgent):
                await self._take_file(path, agent)

    def _changed(self, path: Path) -> FileVersion | None:
        """The version of a file, unless it is stored already or gone."""
        try:
            now, state = version_of(path), self._states.get(path)
        except (FileNotFoundError, PermissionError):
            return None
        return now if state is None or state.version != now else None

    async def _take(self, path: Path, agent: CodingAgent) -> None:
        if self._changed(path) is None:
            return
        with self._reporting(path):
            async with locked(path):
                await self._states.refresh(path)
                await self._take_locked(path, agent)

    @contextmanager
    def _reporting(self, path: Path) -> Iterator[None]:
        """Reports why a file cannot be stored, so that the others are."""
        try:
            yield
        except FileNotFoundError:
            return  # deleted since it was listed: what is stored stays
        except (PermissionError, ValidationError) as error:
            self.report.complain(os.fsencode(path).decode("utf-8", "replace"), str(error))

    async def _take_file(self, path: Path, agent: FilesAgent) -> None:
        """Stores a file that belongs to a session. One whose session is not stored yet waits for the next scan."""
        session = agent.session_of_file(path)
        if session is None or (now := self._changed(path)) is None:
            return
        with self._reporting(path), suppress(NotFound):  # the session was deleted at this moment
            if await self._store.get_conversation(session) is None:
                return
            if now.size > MOST:
                self.report.lose(f"file of more than {MOST >> 20} MB", str(path))
            else:
                await store_file(self._store, session, path)
            await self._states.put(FileState(path=str(path), version=now, session=SessionState(id=session)))

    async def _take_locked(self, path: Path, agent: CodingAgent) -> None:
        now, state = self._changed(path), self._states.get(path)
        if now is None or (state is not None and state.is_refused):
            return
        if isinstance(agent, SnapshotAgent):
            await self._take_snapshot(path, agent, now)
        elif isinstance(agent, LineAgent):
            if state is not None and state.is_grown(path, now):
                await self._follow(path, agent, state)
            elif _is_transcript(path, agent):
                await self._import(path, agent)

    async def _take_snapshot(self, path: Path, agent: SnapshotAgent, now: FileVersion) -> None:
        state = self._states.get(path)
        mark = agent.mark(path)
        for given in agent.changed(path, state.mark if state is not None else 0, self.report):
            report = ImportReport("collect")
            await load(self._store, [given], report, owner=self._owner)
            self._add(report)
            if not report.new and report.conversations:
                await update_changed(self._store, given)
            if report.messages:
                self._tell(agent, path, given.id, given.title or given.first_words)
        await self._states.put(FileState(path=str(path), version=now, mark=mark))

    async def _follow(self, path: Path, agent: LineAgent, state: FileState) -> None:
        """Stores the lines after the offset."""
        while True:
            now, end = _extent(path, state.offset, _MOST)
            if end == state.offset:
                await self._states.put(structs.replace(state, version=now))
                return
            session = agent.importer.session(str(path), state.session)
            read = _read(path, state.offset, end, state.numbers, session, self.report)
            given = session.conversation(read.file)
            try:
                title = await append(self._store, given, session, after=state.lines, title=state.title)
            except LostTrack:
                await self._import(path, agent)
                return
            self.report.messages += len(given.messages)
            self.report.lines += read.kept
            numbers, lines = state.numbers + read.numbers, state.lines + read.kept
            state = _state(path, now, end, session, numbers=numbers, lines=lines, title=title)
            await self._states.put(state)
            self._tell(agent, path, given.id, title)

    async def _import(self, path: Path, agent: LineAgent) -> None:
        """Stores what is missing of the whole file."""
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(attempt / 10)
            if await self._import_once(path, agent, is_last=attempt == _ATTEMPTS - 1):
                return

    async def _import_once(self, path: Path, agent: LineAgent, *, is_last: bool) -> bool:
        """Returns False if another collector has stored a part of the file meanwhile, so that this one gave up."""
        now, end = _extent(path)
        session = agent.importer.session(str(path))
        report = ImportReport("collect")
        read = _read(path, 0, end, 0, session, report)
        given = session.conversation(read.file)
        await load(self._store, [given], report, owner=self._owner)
        found = await self._store.get_conversation(given.id)
        if not report.conversations and found is not None and not is_last:
            return False
        self._add(report)
        if found is None:
            await self._states.put(FileState(path=str(path), version=now, is_refused=True))
            return True
        lines = await line_count(self._store, given.id)
        state = _state(path, now, end, session, numbers=read.numbers, lines=lines, title=found.title)
        await self._states.put(state)
        if report.messages or report.lines:
            self._tell(agent, path, given.id, found.title)
        return True

    def _add(self, report: ImportReport) -> None:
        ours = self.report
        for name in ("new", "grown", "unchanged", "messages", "branches", "lines", "more_problems"):
            setattr(ours, name, getattr(ours, name) + getattr(report, name))
        for problem in report.problems:
            ours.complain(problem.where, problem.what)
        for what, loss in report.losses.items():
            ours.lose(what, loss.example, loss.count)

    def _tell(self, agent: CodingAgent, path: Path, conversation_id: str, title: str | None) -> None:
        if self._on_collected is not None:
            self._on_collected(Collected(agent.name, str(path), conversation_id, title))


class _Read(Struct, frozen=True):
    file: TranscriptFile
    numbers: int
    """Lines that were read."""

    @property
    def kept(self) -> int:
        return len(self.file.transcript().lines)


def _read(path: Path, start: int, end: int, numbers: int, session: TranscriptSession, report: ImportReport) -> _Read:
    """Passes the lines of a part of a file to a session. `numbers` is how many lines are before it."""
    file, source = TranscriptFile(), FileRange(path, start, end)
    for number, line, entry in file.entries(source, str(path), report):
        file.keep(line, session.add(numbers + number, entry))
    return _Read(file, source.numbers)


def _state(
    path: Path,
    now: FileVersion,
    end: int,
    session: TranscriptSession,
    *,
    numbers: int,
    lines: int,
    title: str | None,
) -> FileState:
    return FileState(
        path=str(path),
        version=now,
        offset=end,
        check=check_of(path, end),
        numbers=numbers,
        lines=lines,
        session=session.state(),
        title=title,
    )


def _extent(path: Path, start: int = 0, most: int | None = None) -> tuple[FileVersion, int]:
    """The file as it is now, and the end of the lines to read. In this order: what is written later is seen later."""
    return version_of(path), end_of_lines(path, start, most)


def _is_transcript(path: Path, agent: LineAgent) -> bool:
    with path.open("rb") as file:
        return agent.importer.is_transcript(file.read(HEAD))


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder. Links are not followed."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif entry.is_file(follow_symlinks=False):
                        yield Path(entry.path)
        except (FileNotFoundError, PermissionError):
            continue  # the agent is removing it, or it is another user's
