"""All importers: those that come with Hansard, and those of plugins."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from hansard.errors import ValidationError
from hansard.importers.importer import Importer
from hansard.importers.source import ImportSource

GROUP = "hansard.importers"


@cache
def importers() -> tuple[Importer, ...]:
    """In the order in which they are asked whether they recognise a source: plain rows last."""
    from hansard.importers import (
        adk,
        agents_session,
        ai_dev_kit,
        chainlit,
        chatgpt,
        claude_ai,
        claude_code,
        codex,
        gemini_cli,
        gemini_takeout,
        langchain_history,
        langfuse,
        langgraph_saver,
        librechat,
        llm_logs,
        makers,
        modernpath,
        open_webui,
        openai_jsonl,
        opencode,
        tables,
        toolpack,
        tpipe,
    )

    own: list[Importer] = [
        chatgpt.ChatGpt(),
        claude_ai.ClaudeAi(),
        gemini_cli.GeminiCli(),
        claude_code.ClaudeCode(),
        codex.Codex(),
        opencode.Opencode(),
        gemini_takeout.GeminiTakeout(),
        open_webui.OpenWebUi(),
        ai_dev_kit.AiDevKit(),
        modernpath.ModernPath(),
        toolpack.Toolpack(),
        makers.Makers(),
        tpipe.TPipe(),
        librechat.LibreChat(),
        langfuse.Langfuse(),
        llm_logs.LlmLogs(),
        langgraph_saver.LangGraphSaver(),
        adk.AdkDatabase(),
        chainlit.Chainlit(),
        agents_session.AgentsSession(),
        langchain_history.LangChainHistory(),
        openai_jsonl.OpenAiJsonl(),
        openai_jsonl.ShareGpt(),
        tables.Table("jsonl"),
        tables.Table("csv"),
    ]
    plugins: list[Importer] = [point.load()() for point in entry_points(group=GROUP)]
    return (*plugins, *own)


def importer_named(name: str, map: Mapping[str, str] | None = None) -> Importer:
    """The importer of that name. `map` is for plain rows: which field of a row is which."""
    from hansard.importers.tables import Table

    for importer in importers():
        if importer.name == name:
            return Table(name, map) if map and isinstance(importer, Table) else importer
    known = ", ".join(importer.name for importer in importers())
    raise ValidationError(f"no importer is called {name!r}: there are {known}")


def parsed_map(fields: str | None) -> dict[str, str]:
    """`role=author,content=body` as a mapping."""
    pairs = [pair.partition("=") for pair in (fields or "").split(",") if pair]
    if any(not name or not field for name, _, field in pairs):
        raise ValidationError("--map takes pairs: role=author,content=body")
    return {name.strip(): field.strip() for name, _, field in pairs}


def importer_for(source: ImportSource) -> Importer:
    """The importer that recognises the source."""
    for importer in importers():
        if importer.recognises(source):
            return importer
    known = ", ".join(importer.name for importer in importers())
    raise ValidationError(
        f"{source.path} is of no known kind: it is not a Hansard export, and none of {known}. Name its kind with "
        "--from, or say which field is which in JSON Lines or CSV: --from jsonl --map role=author,content=body"
    )
