"""All importers: those that come with Hansard, and those of plugins."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points

from hansard.errors import ValidationError
from hansard.importers.importer import Importer
from hansard.importers.source import ImportSource, ServerSource, ZipSource

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


def importer_for(source: ImportSource, remedy: str = "") -> Importer:
    """The importer that recognises the source. `remedy` ends the error if none does."""
    for importer in importers():
        if importer.recognises(source):
            return importer
    if why := _unreadable(source):
        raise ValidationError(f"{source.path} {why}")
    known = ", ".join(importer.name for importer in importers())
    raise ValidationError(f"{source.path} is of no known kind: it is not a Hansard export, and none of {known}{remedy}")


def _unreadable(source: ImportSource) -> str | None:
    """Why nobody can read a source, if that can be told from its first bytes."""
    names = source.names()
    if not names:
        return None if isinstance(source, ServerSource) else "is empty: there is no file in it"
    if len(names) > 1:
        return None
    head = source.head(names[0])
    if not head:
        return "is empty"
    if head.startswith(b"PK\x03\x04"):
        inside = f"holds another zip file, {names[0]!r}: unpack it, and import that one"
        cut = "is a damaged zip file: its end is missing. Download it again"
        return inside if isinstance(source, ZipSource) else cut
    if _is_utf16(head):
        return "is UTF-16: convert it to UTF-8 first, as with `iconv -f UTF-16 -t UTF-8`"
    if b"\x00" in head:
        return None  # no text in any encoding
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError as error:
        return f"is not UTF-8 (at byte {error.start:,}): convert it first, as with `iconv -f LATIN1 -t UTF-8`"
    return None


def _is_utf16(head: bytes) -> bool:
    """Whether a file begins with readable UTF-16, with a byte order mark or with every second byte mostly zero."""
    evens, odds = head[::2].count(0), head[1::2].count(0)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif max(evens, odds) * 4 > len(head) and min(evens, odds) * 20 <= max(evens, odds):
        encoding = "utf-16-be" if evens > odds else "utf-16-le"
    else:
        return False
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return False
    unreadable = sum(not (character.isprintable() or character.isspace()) for character in text)
    return bool(text) and unreadable * 20 < len(text)
