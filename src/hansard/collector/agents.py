"""The coding agents: where each keeps its transcripts, how they are read, and how a session is resumed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from msgspec import structs

from hansard.errors import ValidationError
from hansard.importers import claude_code, codex, gemini_cli, opencode
from hansard.importers.importer import ForeignConversation
from hansard.importers.report import ImportReport
from hansard.importers.source import FileSource
from hansard.importers.transcript_file import TranscriptImporter
from hansard.model import Conversation

GROUP = "hansard.coding_agents"

Environment = Mapping[str, str]

_CODEX_DAY = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")
"""The day of a session, by the clock of its machine, which names the folders of its transcript."""


class CodingAgent(Protocol):
    """One coding agent. Plugins register theirs under the entry point group `hansard.coding_agents`."""

    @property
    def name(self) -> str:
        """The name of its importer, which is `imported_from` in the metadata of its conversations."""

    def folders(self, environment: Environment) -> list[Path]:
        """The folders that hold its transcripts, at any depth, whether they exist or not."""

    def transcript(self, path: Path) -> Path | None:
        """The transcript that a file is or belongs to, by its name; None if it is something else."""

    def resume_command(self, conversation: Conversation) -> list[str]:
        """The command that continues the session."""

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        """Where the agent looks for the session's transcript; None if that is not known."""


@runtime_checkable
class LineAgent(CodingAgent, Protocol):
    """A coding agent whose transcripts only grow, line by line."""

    @property
    def importer(self) -> TranscriptImporter: ...


@runtime_checkable
class FilesAgent(CodingAgent, Protocol):
    """A coding agent that keeps other files with its transcripts."""

    def session_of_file(self, path: Path) -> str | None:
        """The session that a file belongs to which is no transcript, by its name; None if it is something else."""


@runtime_checkable
class SnapshotAgent(CodingAgent, Protocol):
    """A coding agent that changes what it has written: a document, or a database of all sessions."""

    def mark(self, path: Path) -> int:
        """What to pass as `since` next time."""

    def changed(self, path: Path, since: int, report: ImportReport) -> Iterator[ForeignConversation]:
        """The conversations that may have changed since. 0 is all of them."""


def home(environment: Environment) -> Path:
    return Path(environment.get("HOME") or Path.home())


class ClaudeCodeAgent:
    name = "claude-code"
    importer = claude_code.ClaudeCode()

    def folders(self, environment: Environment) -> list[Path]:
        given = environment.get("CLAUDE_CONFIG_DIR")
        usual = [home(environment) / ".claude", home(environment) / ".config" / "claude"]
        return [folder / "projects" for folder in ([Path(given)] if given else []) + usual]

    def transcript(self, path: Path) -> Path | None:
        return path if path.suffix == ".jsonl" else None

    def session_of_file(self, path: Path) -> str | None:
        """Long outputs of tools, which the transcript only names, and what is known of a subagent."""
        at = next((each for each in path.parents if each.name in ("tool-results", "subagents")), None)
        return at.parent.name if at is not None and path.suffix != ".jsonl" else None

    def resume_command(self, conversation: Conversation) -> list[str]:
        return ["claude", "--resume", session_of(conversation)]

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        project = conversation.metadata.get("project")
        if known := _known_path(conversation):
            return known
        if not isinstance(project, str):
            return None
        return self.folders(environment)[0] / re.sub(r"[^a-zA-Z0-9]", "-", project) / f"{conversation.id}.jsonl"


class CodexAgent:
    name = "codex"
    importer = codex.Codex()

    def folders(self, environment: Environment) -> list[Path]:
        folder = Path(environment.get("CODEX_HOME") or home(environment) / ".codex")
        return [folder / "sessions", folder / "archived_sessions"]

    def transcript(self, path: Path) -> Path | None:
        return path if path.suffix == ".jsonl" and path.name.startswith("rollout-") else None

    def resume_command(self, conversation: Conversation) -> list[str]:
        return ["codex", "resume", session_of(conversation)]

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        if known := _known_path(conversation):
            return known
        name = Path(str(conversation.metadata.get("transcript"))).name
        day = _CODEX_DAY.match(name)
        return self.folders(environment)[0].joinpath(*day.groups(), name) if day is not None else None


class GeminiCliAgent:
    name = "gemini-cli"
    _importer = gemini_cli.GeminiCli()

    def folders(self, environment: Environment) -> list[Path]:
        return [home(environment) / ".gemini" / "tmp"]

    def transcript(self, path: Path) -> Path | None:
        return path if path.suffix in (".json", ".jsonl") and "chats" in path.parts else None

    def mark(self, path: Path) -> int:
        return 0

    def changed(self, path: Path, since: int, report: ImportReport) -> Iterator[ForeignConversation]:
        source = FileSource(path)
        if not self._importer.is_session(source.head(path.name)):
            return
        about: dict[str, Any] = {"transcript": str(path)}
        if path.parent.name != "chats":
            about["session"] = path.parent.name  # of a subagent
        folder = next(each for each in path.parents if each.name == "chats").parent
        if (root := folder / ".project_root").is_file():
            about["project"] = root.read_text("utf-8", "replace").strip()
        for given in self._importer.read(source, report):
            yield structs.replace(given, metadata={**given.metadata, **about})

    def resume_command(self, conversation: Conversation) -> list[str]:
        return ["gemini", "--resume", session_of(conversation)]

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        if known := _known_path(conversation):
            return known
        parts = Path(str(conversation.metadata.get("transcript"))).parts
        start = parts.index("chats") - 1 if "chats" in parts[1:] else None
        return self.folders(environment)[0].joinpath(*parts[start:]) if start is not None else None


class OpencodeAgent:
    name = "opencode"
    _importer = opencode.Opencode()

    def folders(self, environment: Environment) -> list[Path]:
        data = Path(environment.get("XDG_DATA_HOME") or home(environment) / ".local" / "share")
        return [data / "opencode"]

    def transcript(self, path: Path) -> Path | None:
        name = path.name.removesuffix("-wal")
        return path.with_name(name) if name == "opencode.db" else None

    def mark(self, path: Path) -> int:
        return self._importer.mark(FileSource(path))

    def changed(self, path: Path, since: int, report: ImportReport) -> Iterator[ForeignConversation]:
        source = FileSource(path)
        if self._importer.recognises(source):
            yield from self._importer.changed(source, since, report)

    def resume_command(self, conversation: Conversation) -> list[str]:
        return ["opencode", "--session", session_of(conversation)]

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        return None  # its sessions are in a database


def session_of(conversation: Conversation) -> str:
    """The session's id: that of the session which a subagent belongs to."""
    session = conversation.metadata.get("session")
    return session if isinstance(session, str) else conversation.id


def _known_path(conversation: Conversation) -> Path | None:
    """The path that was collected, which is absolute; an import knows only a name."""
    name = conversation.metadata.get("transcript")
    return Path(name) if isinstance(name, str) and Path(name).is_absolute() else None


@cache
def coding_agents() -> tuple[CodingAgent, ...]:
    plugins: list[CodingAgent] = [point.load()() for point in entry_points(group=GROUP)]
    return (ClaudeCodeAgent(), CodexAgent(), GeminiCliAgent(), OpencodeAgent(), *plugins)


def agent_named(name: str) -> CodingAgent:
    for agent in coding_agents():
        if agent.name == name:
            return agent
    known = ", ".join(agent.name for agent in coding_agents())
    raise ValidationError(f"no coding agent is called {name!r}: there are {known}")
