"""opencode: what `opencode export` prints, its storage folder, or its database.

All three hold the same objects: a session, its messages, and the parts of each message. A tool's part holds the call
and its result; these are split, so that each result follows its call.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.database import ForeignDatabase, json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.importers.row_sorter import RowSorter
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, count, data_url_part, items, mapping, number, sides, text, time
from hansard.model import NOT_YET, Message, Usage

_PASSED_OVER = ("step-start", "step-finish", "snapshot", "patch", "agent", "compaction", "retry")
"""Parts about an agent's work that say nothing."""
_SESSION_COLUMNS = ("id", "title", "directory", "parent_id", "version", "time_created", "time_archived")


class Opencode:
    name = "opencode"
    title = "opencode: `opencode export`, its storage folder, or opencode.db"

    def recognises(self, source: ImportSource) -> bool:
        if source.has_table("part", "message_id", "session_id", "data"):
            return True
        names = source.names()
        if len(names) == 1 and names[0].endswith(".json"):
            head = source.head(names[0])
            return b'"info"' in head and b'"sessionID"' in head and b'"parts"' in head
        return any(_kind(name) == "session" for name in names) and any(_kind(name) == "part" for name in names)

    def mark(self, source: ImportSource) -> int:
        """The time of the last change of a database, in milliseconds; 0 if it does not tell."""
        with source.tables() as database:
            if database is None:
                return 0
            times = (_last(database, table) for table in ("session", "message", "part"))
            return max(times)

    def changed(self, source: ImportSource, since: int, report: ImportReport) -> Iterator[ForeignConversation]:
        """The sessions of a database that have changed, up to the last answer that is finished."""
        with source.tables() as database:
            if database is not None:
                yield from _database(database, report, since, only_finished=True)

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        with source.tables() as database:
            if database is not None:
                yield from _database(database, report)
                return
        names = source.names()
        if any(_kind(name) == "part" for name in names):
            yield from _folder(source, report)
            return
        for name in names:
            for _, given in json_stream.array_objects(source, name, report, "session"):
                yield _conversation(mapping(given.get("info")), items(given.get("messages")), report)


def _kind(name: str) -> str:
    """`session`, `message` or `part`: the folder below `storage` that a file is in."""
    folders = PurePosixPath(name).parts[:-1]
    return next((each for each in reversed(folders) if each in ("session", "message", "part")), "")


def _folder(source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
    """`session/<project>/<id>.json`, `message/<session>/<id>.json` and `part/<message>/<id>.json`."""
    with RowSorter() as sorter:
        sessions: list[dict[str, Any]] = []
        for name in source.named(".json"):
            for _, given in json_stream.array_objects(source, name, report, "object"):
                if _kind(name) == "session":
                    sessions.append(given)
                elif _kind(name) == "message":
                    sorter.add(f"message {text(given.get('sessionID'))}", given)
                elif _kind(name) == "part":
                    sorter.add(f"part {text(given.get('messageID'))}", given)
        for session in sessions:
            messages = [each for _, each in sorter.places(f"message {text(session.get('id'))}")]
            whole = [
                {"info": each, "parts": [part for _, part in sorter.places(f"part {text(each.get('id'))}")]}
                for each in messages
            ]
            yield _conversation(session, whole, report)


def _last(database: ForeignDatabase, table: str) -> int:
    if "time_updated" not in database.columns(table):
        return 0
    return next((int(row[0] or 0) for row in database.rows(f"SELECT max(time_updated) FROM {table}")), 0)


def _changed(database: ForeignDatabase, since: int) -> set[str] | None:
    """The ids of the sessions that have changed since; None if that cannot be known."""
    found: set[str] = set()
    for table, column in (("session", "id"), ("message", "session_id"), ("part", "session_id")):
        if not {"time_updated", column} <= database.columns(table):
            return None
        query = f"SELECT DISTINCT {column} FROM {table} WHERE time_updated >= ?"
        found |= {text(row[0]) for row in database.rows(query, since)}
    return found


def _is_finished(info: dict[str, Any]) -> bool:
    is_answer = info.get("role") == "assistant"
    return not is_answer or bool(mapping(info.get("time")).get("completed") or info.get("error"))


def _database(
    database: ForeignDatabase, report: ImportReport, since: int = 0, *, only_finished: bool = False
) -> Iterator[ForeignConversation]:
    columns = database.columns("session")
    about = [each for each in _SESSION_COLUMNS if each in columns]
    changed = _changed(database, since) if since else None
    for row in list(database.rows(f"SELECT {', '.join(about)} FROM session ORDER BY id")):
        given = dict(zip(about, row, strict=True))
        if changed is not None and given["id"] not in changed:
            continue
        time_of = {"created": given.get("time_created"), "archived": given.get("time_archived")}
        messages = []
        query = "SELECT id, data FROM message WHERE session_id = ?"
        infos = [{"id": id} | mapping(json_of(data)) for id, data in database.rows(query, given["id"])]
        for info in sorted(infos, key=_order):
            if only_finished and not _is_finished(info):
                break
            pieces = database.rows("SELECT id, data FROM part WHERE message_id = ? ORDER BY id", info["id"])
            found = [{"id": part_id} | mapping(json_of(body)) for part_id, body in pieces]
            messages.append({"info": info, "parts": found})
        yield _conversation(given | {"time": time_of, "parentID": given.get("parent_id")}, messages, report)


def _order(info: dict[str, Any]) -> tuple[float, str]:
    """By time first: the ids count milliseconds, and begin again every 795 days."""
    created = mapping(info.get("time")).get("created")
    return number(created) or 0.0, text(info.get("id"))


def _conversation(session: dict[str, Any], given: list[Any], report: ImportReport) -> ForeignConversation:
    ordered = sorted(map(mapping, given), key=lambda each: _order(mapping(each.get("info"))))
    found: list[ForeignMessage] = []
    before: str | None = None
    for each in ordered:
        for message in _messages(mapping(each.get("info")), items(each.get("parts")), report):
            found.append(ForeignMessage(message, before))
            before = message.id
    times = mapping(session.get("time"))
    used = [each.message.usage for each in found if each.message.usage is not None]
    models = [usage.model for usage in used if usage.model]
    cost = round(sum(usage.cost for usage in used), 6)
    parent = text(session.get("parentID"))
    about = {
        "project": text(session.get("directory")),
        "version": text(session.get("version")),
        "model": models[-1] if models else "",
        "models": sorted(set(models)),
        "cost": cost,
        "session": parent,
        "is_subagent": bool(parent),
    }
    return ForeignConversation(
        id=text(session.get("id")),
        messages=found,
        title=text(session.get("title")) or None,
        created_at=time(times.get("created")),
        archived_at=time(times.get("archived")),
        agent_id="opencode",
        metadata={"imported_from": "opencode"} | {name: value for name, value in about.items() if value},
    )


def _messages(info: dict[str, Any], given: list[Any], report: ImportReport) -> Iterator[Message]:
    role, id = text(info.get("role")) or "assistant", text(info.get("id"))
    ordered = sorted(map(mapping, given), key=lambda part: text(part.get("id")))
    groups = sides(piece for part in ordered for piece in _pieces(part, role, report)) or [
        (role, [parts.Text(text="")])
    ]
    tokens = mapping(info.get("tokens"))
    usage = Usage(
        model=text(info.get("modelID")) or None,
        input_tokens=count(tokens.get("input")),
        output_tokens=count(tokens.get("output")),
        reasoning_tokens=count(tokens.get("reasoning")),
        cached_tokens=count(mapping(tokens.get("cache")).get("read")),
        cost=number(info.get("cost")) or 0.0,
    )
    answer = max((at for at, (side, _) in enumerate(groups, 1) if side == "assistant"), default=0)
    for at, (side, pieces) in enumerate(groups, 1):
        content, format = content_of(pieces)
        is_last = at == len(groups)
        yield Message(
            side,
            content,
            id if is_last else f"{id}.{at}",
            format=format,
            created_at=time(mapping(info.get("time")).get("created")) or NOT_YET,
            status="interrupted" if is_last and info.get("error") else "complete",
            usage=usage if at == answer and role == "assistant" else None,
        )


def _pieces(part: dict[str, Any], role: str, report: ImportReport) -> Iterator[tuple[str, parts.AnyPart]]:
    kind = text(part.get("type"))
    if kind == "text" and text(part.get("text")):
        yield role, parts.Text(text=part["text"])
    elif kind == "reasoning":
        yield role, parts.Reasoning(text=text(part.get("text")))
    elif kind == "tool":
        yield from _tool(part)
    elif kind == "file":
        found = data_url_part(text(part.get("url")), text(part.get("mime")), text(part.get("filename")) or None)
        if found is not None:
            report.attachments += 1
            yield role, found
        else:
            report.lose("file that is only named", text(part.get("url")) or str(part)[:120])
    elif kind not in ("text", *_PASSED_OVER):
        report.lose(f"part of the kind {kind!r}", str(part)[:120])


def _tool(part: dict[str, Any]) -> Iterator[tuple[str, parts.AnyPart]]:
    state, call = mapping(part.get("state")), text(part.get("callID")) or text(part.get("id"))
    name, status = text(part.get("tool")), text(state.get("status"))
    yield "assistant", parts.ToolCall(id=call, name=name, arguments=state.get("input") or {})
    if status in ("completed", "error"):
        output = state.get("output") if status == "completed" else state.get("error")
        yield "tool", parts.ToolResult(id=call, output=output or "", is_error=status == "error", name=name or None)
