"""The coding agents: where each keeps its transcripts, how they are read, and how a session is resumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from hansard.errors import ValidationError
from hansard.importers import claude_code, codex
from hansard.importers.transcript_file import TranscriptImporter
from hansard.model import Conversation

GROUP = "hansard.coding_agents"

Environment = Mapping[str, str]


class CodingAgent(Protocol):
    """One coding agent. Plugins register theirs under the entry point group `hansard.coding_agents`."""

    @property
    def name(self) -> str:
        """The name of its importer, which is `imported_from` in the metadata of its conversations."""

    @property
    def importer(self) -> TranscriptImporter: ...

    def folders(self, environment: Environment) -> list[Path]:
        """The folders that hold its transcripts, at any depth, whether they exist or not."""

    def is_transcript(self, path: Path) -> bool:
        """Whether a file is a transcript, by its name."""

    def resume_command(self, conversation: Conversation) -> list[str]:
        """The command that continues the session."""

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        """Where the agent looks for the session's transcript; None if that is not known."""


def home(environment: Environment) -> Path:
    return Path(environment.get("HOME") or Path.home())


class ClaudeCodeAgent:
    name = "claude-code"
    importer = claude_code.ClaudeCode()

    def folders(self, environment: Environment) -> list[Path]:
        given = environment.get("CLAUDE_CONFIG_DIR")
        usual = [home(environment) / ".claude", home(environment) / ".config" / "claude"]
        return [folder / "projects" for folder in ([Path(given)] if given else []) + usual]

    def is_transcript(self, path: Path) -> bool:
        return path.suffix == ".jsonl"

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

    def is_transcript(self, path: Path) -> bool:
        return path.suffix == ".jsonl" and path.name.startswith("rollout-")

    def resume_command(self, conversation: Conversation) -> list[str]:
        return ["codex", "resume", session_of(conversation)]

    def transcript_path(self, conversation: Conversation, environment: Environment) -> Path | None:
        name = conversation.metadata.get("transcript")
        if known := _known_path(conversation):
            return known
        if not isinstance(name, str) or not name.startswith("rollout-"):
            return None
        return self.folders(environment)[0] / f"{conversation.created_at:%Y/%m/%d}" / name


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
    return (ClaudeCodeAgent(), CodexAgent(), *plugins)


def agent_named(name: str) -> CodingAgent:
    for agent in coding_agents():
        if agent.name == name:
            return agent
    known = ", ".join(agent.name for agent in coding_agents())
    raise ValidationError(f"no coding agent is called {name!r}: there are {known}")
