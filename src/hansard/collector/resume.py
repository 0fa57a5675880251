"""Continues a session in its own agent: the command, and the transcript that the agent needs for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from msgspec import Struct

from hansard.collector.agents import CodingAgent, agent_named, session_of
from hansard.collector.session_files import stored_files
from hansard.errors import NotFound, ValidationError
from hansard.importers.transcripts import has_lines, raw_lines
from hansard.model import Conversation
from hansard.rules import not_found
from hansard.store import Store


class Resumption(Struct, frozen=True):
    command: list[str]
    folder: str | None
    """Where the command must run."""
    restored: list[str]
    """Transcripts and other files that were written again."""


async def resumption(store: Store, conversation_id: str, environment: Mapping[str, str] | None = None) -> Resumption:
    """Returns how a session goes on, and writes its transcripts again if the agent has deleted them."""
    environment = os.environ if environment is None else environment
    conversation = await store.get_conversation(conversation_id)
    if conversation is None:
        raise not_found(conversation_id)
    source = conversation.metadata.get("imported_from")
    if not isinstance(source, str):
        raise ValidationError(f"conversation {conversation_id!r} comes from no coding agent, so none can resume it")
    agent = agent_named(source)
    if session_of(conversation).startswith("-"):
        raise ValidationError(f"the session {session_of(conversation)!r} would be an option of the agent's command")
    session = await store.get_conversation(session_of(conversation)) or conversation
    restored = [
        str(path)
        for each in [session, *await _subagents(store, session)]
        if (path := await _restore(store, agent, each, environment)) is not None
    ]
    async for path, content in stored_files(store, session.id):
        if not path.exists():
            _refuse_elsewhere(path, agent, environment)
            with _written(path) as file:
                file.write(content)
            restored.append(str(path))
    project = session.metadata.get("project")
    return Resumption(agent.resume_command(session), project if isinstance(project, str) else None, restored)


async def _subagents(store: Store, session: Conversation) -> list[Conversation]:
    return [each async for each in store.iter_conversations(metadata={"session": session.id}, archived=None)]


async def _restore(
    store: Store, agent: CodingAgent, conversation: Conversation, environment: Mapping[str, str]
) -> Path | None:
    """Writes a transcript that is missing, byte for byte, and returns its path. One that exists stays as it is."""
    path = agent.transcript_path(conversation, environment)
    if path is None or path.exists():
        return None
    if not await has_lines(store, conversation.id):
        raise NotFound(f"the transcript {path} is gone, and its lines are not stored")
    _refuse_elsewhere(path, agent, environment)
    with _written(path) as file:
        async for line in raw_lines(store, conversation.id):
            file.write(line)
    return path


def _refuse_elsewhere(path: Path, agent: CodingAgent, environment: Mapping[str, str]) -> None:
    """A store may hold what others have written, in an export or on a server: it must not name any file."""
    folders = agent.folders(environment)
    if not any(path.resolve().is_relative_to(folder.resolve()) for folder in folders):
        known = ", ".join(map(str, folders))
        raise ValidationError(f"{path} is in no folder of {agent.name} ({known}), so it is not written again")


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    """A file that is there when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            part.chmod(0o600)
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
