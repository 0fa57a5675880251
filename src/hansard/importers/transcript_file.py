"""A transcript file of a coding agent: its lines as objects to read, and as lines to keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import Struct

from hansard.importers import json_stream
from hansard.importers.importer import ForeignConversation
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.transcripts import Transcript, TranscriptLine, transcript_line
from hansard.model import Message, Usage

_TITLE_WORDS = 12
_TITLE_CHARACTERS = 120
_NOT_TYPED = ("<", "#", "[Request interrupted", "Caveat:")
"""How texts begin that an agent writes in its user's name."""


class SessionState(Struct, frozen=True, omit_defaults=True):
    """What a session must know of its lines so far to go on with the next one."""

    id: str = ""
    """Of the conversation."""
    parents: dict[str, str | None] = {}
    """The nearest message above each of the newest lines that are no messages."""
    last: str | None = None
    """The last message."""
    turns: tuple[str | None, ...] = ()
    """The message before each of the newest turns."""
    answered: str | None = None
    """The last answer."""
    responses: dict[str, tuple[str, ...]] = {}
    """The messages of the newest responses, which may get more."""
    metadata: dict[str, Any] = {}
    titles: dict[str, str] = {}
    models: tuple[str, ...] = ()
    cost: float = 0.0


class TranscriptSession(Protocol):
    """Reads the lines of one transcript. It can begin in the middle, with the state of the lines before."""

    def add(self, number: int, entry: dict[str, Any]) -> Message | None:
        """Takes a line, and returns the message that it holds."""

    def conversation(self, file: TranscriptFile) -> ForeignConversation:
        """The messages of the lines that were added. Their parents may be in lines before."""

    def usages(self) -> dict[str, Usage]:
        """Usage of messages in lines before, by their ids, which became known later."""

    def state(self) -> SessionState: ...


class TranscriptImporter(Protocol):
    """An importer whose files grow line by line, so that they can be followed."""

    def session(self, name: str, state: SessionState | None = None) -> TranscriptSession: ...

    def is_transcript(self, head: bytes) -> bool:
        """Whether a file that begins so is a transcript of this kind."""


class TranscriptFile:
    """Callers keep each line that `entries` yields, with the message that it holds."""

    def __init__(self) -> None:
        self._lines: list[TranscriptLine] = []
        self._ends_with_newline = True
        self._size = 0

    def entries(
        self, source: ImportSource, name: str, report: ImportReport
    ) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
        """The number, the bytes and the object of each line. A line that is no object is reported and kept.

        An agent may be writing the last line at this moment: half a line is reported, and not kept.
        """
        with source.open(name) as file:
            for element in json_stream.lines(file, blank=True):
                line = element.line
                self._ends_with_newline = line.endswith(b"\n") or not line
                if isinstance(element.value, dict):
                    yield element.number, line, element.value
                    continue
                if line.strip() or element.problem:
                    report.complain(f"{name}, line {element.number}", element.problem or "it is not an object")
                if line.endswith(b"\n"):
                    self.keep(line)
                else:
                    self._ends_with_newline = True

    def keep(self, line: bytes, message: Message | None = None) -> None:
        self._lines.append(transcript_line(line, message))
        self._size += len(line)

    def transcript(self) -> Transcript:
        return Transcript(self._lines, self._ends_with_newline, self._size)


def transcripts(
    importer: TranscriptImporter, source: ImportSource, report: ImportReport, *, otherwise: str | None = None
) -> Iterator[ForeignConversation]:
    """Reads the transcripts of a source. `otherwise` is what to report of a file that is none; None reads all files."""
    for name in source.named(".jsonl"):
        session, file = importer.session(name), TranscriptFile()
        try:
            if otherwise is not None and not importer.is_transcript(source.head(name)):
                report.complain(name, otherwise)
                continue
            for number, line, entry in file.entries(source, name, report):
                file.keep(line, session.add(number, entry))
        except FileNotFoundError:
            report.complain(name, "it was deleted before it was read")  # agents delete their transcripts
            continue
        yield session.conversation(file)


def first_words(texts: Iterable[str]) -> str | None:
    """A title: the first words that the user has typed."""
    for text in texts:
        words = text.split()[:_TITLE_WORDS]
        if words and not text.lstrip().startswith(_NOT_TYPED):
            return " ".join(words)[:_TITLE_CHARACTERS]
    return None
