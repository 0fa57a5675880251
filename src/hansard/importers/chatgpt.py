"""ChatGPT's data export: `conversations.json` or its shards, alone, in a folder or in the zip file that people get.

A conversation is a tree of nodes (`mapping`) and the node that is shown (`current_node`). Nodes without a message, as
the root, are passed over: their children follow their parents. Hidden messages are kept, with `hidden` in their
metadata. What a model thought (`thoughts`) becomes a reasoning part of a message of its own; a message to a tool
becomes a tool call, and the tool's answer its result, with its pictures. Content of an unknown kind is kept as it is.
Metadata of messages and conversations are kept too, but for `_NOTES`, which say nothing about what was said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from hansard.formats import parts
from hansard.importers import json_stream
from hansard.importers.attachments import AttachedFiles
from hansard.importers.database import json_of
from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.plain_files import chained
from hansard.importers.report import ImportReport
from hansard.importers.source import ImportSource
from hansard.importers.values import content_of, items, mapping, text, time
from hansard.model import NOT_YET, Message, Participant, Usage

ORIGIN = "chatgpt"
"""The origin of parts that are kept as they are."""
_USED = {"model_slug", "finish_details", "attachments", "aggregate_result", "is_visually_hidden_from_conversation"}
"""Metadata of messages that are kept elsewhere than in the metadata."""

_FILE = re.compile(r"conversations(-\d+)?\.json$")
_SIGN = re.compile(rb'"mapping"\s*:')
_ROLES = {"user", "assistant", "system", "tool"}
_NOTES = {
    *("request_id", "message_type", "message_source", "timestamp_", "parent_id", "turn_exchange_id", "is_complete"),
    *("default_model_slug", "serialization_metadata", "can_save", "rebase_system_message", "rebase_developer_message"),
    *("pad", "conversation_id", "is_user_system_message", "safe_urls", "resolved_model_slug", "turn_trace_id"),
    *("client_actions", "permissions", "targeted_reply_label", "exclusive_key", "is_loading_message"),
}
"""Metadata of messages about requests and the page, which are not kept."""
_LEFT_OUT = _USED | _NOTES
_OF_CONVERSATION = {
    *("mapping", "id", "conversation_id", "title", "create_time", "update_time", "current_node", "is_archived"),
    *("moderation_results", "safe_urls", "blocked_urls", "async_status", "sugar_item_visible"),
}
_TEXTS: dict[Any, tuple[str, ...]] = {
    None: ("text",),
    "text": ("text",),
    "code": ("text",),
    "execution_output": ("text",),
    "system_error": ("text",),
    "audio_transcription": ("text",),
    "tether_quote": ("text",),
    "tether_browsing_display": ("result", "summary"),
    "sonic_webpage": ("text", "snippet"),
    "user_editable_context": ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context", "repository", "repo_summary", "structured_context"),
}
"""Where each kind of content has its texts. All others are kept as they are."""
_POINTERS = ("asset_pointer", "audio_asset_pointer", "video_container_asset_pointer", "frames_asset_pointers")
"""Fields that name files: a pointer, an object with one, or several."""
_INDEXES = (
    *("export_manifest.json", "conversation_asset_file_names.json", "message_feedback.json", "group_chats.json"),
    "shared_conversations.json",
)
_EMPTY_FILE = 16
"""Bytes of a JSON file that says that there is nothing."""


class ChatGpt:
    name = "chatgpt"
    title = "ChatGPT data export: the zip, its folder, or conversations.json"

    def recognises(self, source: ImportSource) -> bool:
        return any(_SIGN.search(source.head(name)) for name in _files(source))

    def read(self, source: ImportSource, report: ImportReport) -> Iterator[ForeignConversation]:
        export = _Export(source, report)
        for name in export.files:
            for where, given in json_stream.array_objects(source, name, report):
                if isinstance(given.get("mapping"), dict):
                    yield _Reader(given, export).conversation(where)
                elif isinstance(given.get("conversations"), list):
                    yield from export.wrapped(where, given["conversations"])
                else:
                    report.complain(where, "it has no messages ('mapping')")
        yield from export.group_chats()
        export.report_rest()


def _files(source: ImportSource) -> list[str]:
    names = [name for name in source.names() if _is_shard(PurePosixPath(name).name)]
    # A file by itself may have any name, such as `conversations (1).json`.
    return names or [name for name in source.named(".json") if len(source.names()) == 1 and name not in _INDEXES]


def _is_shard(name: str) -> bool:
    return _FILE.search(name) is not None and name not in _INDEXES


class _Export:
    """What is next to the conversations: attachments, ratings, links."""

    def __init__(self, source: ImportSource, report: ImportReport) -> None:
        self.source = source
        self.report = report
        self.files = _files(source)
        self.attachments = AttachedFiles(source, report)
        for _, given in self._objects("conversation_asset_file_names.json"):
            self.attachments.names |= {text(path): text(name) for path, name in given.items() if text(name)}
        self.ratings = dict(self._ratings())
        self.shares = {
            text(given.get("conversation_id")): text(given.get("id"))
            for _, given in self._objects("shared_conversations.json")
        }

    def _objects(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for path in self.source.names():
            if PurePosixPath(path).name == name:
                yield from json_stream.array_objects(self.source, path, self.report, "object")

    def _ratings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """What was rated, by message id."""
        for _, given in self._objects("message_feedback.json"):
            if rating := text(given.get("rating")):
                about = mapping(json_of(given.get("content")))
                said = text(given.get("text")) or text(about.get("text"))
                tags = [text(each) for each in items(about.get("tags"))]
                comment = "; ".join(filter(None, [*tags, said]))
                found = {"rating": rating} | ({"rating_comment": comment} if comment else {})
                yield text(given.get("message_id")) or text(given.get("id")), found

    def wrapped(self, where: str, given: list[Any]) -> Iterator[ForeignConversation]:
        """Conversations of an export that is an object around them."""
        for number, each in enumerate(map(mapping, given), 1):
            if isinstance(each.get("mapping"), dict):
                yield _Reader(each, self).conversation(f"{where}, {number}")
            else:
                self.report.complain(f"{where}, {number}", "it has no messages ('mapping')")

    def group_chats(self) -> Iterator[ForeignConversation]:
        for where, given in self._objects("group_chats.json"):
            for number, chat in enumerate(map(mapping, items(given.get("chats"))), 1):
                yield self._group_chat(chat, f"{where}, chat {number}")

    def _group_chat(self, given: dict[str, Any], where: str) -> ForeignConversation:
        found = []
        for number, each in enumerate(map(mapping, items(given.get("messages"))), 1):
            for attachment in items(each.get("attachments")):
                named = text(mapping(attachment).get("name")) or str(attachment)[:120]
                self.report.lose("attachment of a group chat", named)
            by = text(each.get("user_id")) or text(each.get("author_id"))
            role = text(each.get("role"))
            found.append(
                Message(
                    role if role in _ROLES else "user",
                    text(each.get("text")),
                    text(each.get("id")) or str(number),
                    participant=Participant("user", by) if by else None,
                    created_at=time(each.get("created_at")) or NOT_YET,
                )
            )
        if not found:
            self.report.lose("conversation without any message", where)
        return ForeignConversation(
            id=text(given.get("id")) or where,
            messages=chained(found),
            title=text(given.get("name")) or text(given.get("title")) or None,
            created_at=time(given.get("created_at")) or time(given.get("create_time")),
            metadata={"imported_from": "chatgpt", "group_chat": True}
            | {name: given[name] for name in ("members", "participants") if given.get(name)},
        )

    def report_rest(self) -> None:
        """Reports what no conversation has taken."""
        for id in self.ratings:
            self.report.lose("rating of a message that is not in the export", id)
        for name in self.source.names():
            path = PurePosixPath(name)
            if path.suffix == ".json" and name not in self.files and path.name not in _INDEXES:
                if self.source.size(name) > _EMPTY_FILE:
                    self.report.lose("file of the export that holds no conversation", name)
            elif path.suffix not in (".json", ".html") and name not in self.attachments.taken:
                self.report.lose("file that no message refers to", name)


class _Reader:
    """One conversation of an export."""

    def __init__(self, given: dict[str, Any], export: _Export) -> None:
        self._given = given
        self._nodes: dict[str, dict[str, Any]] = {id: mapping(node) for id, node in given["mapping"].items()}
        self._export = export
        self._report = export.report
        self._messages: dict[str, Message] = {}
        self._missing: list[str] = []
        """The attachments of a message that the export does not have."""
        self._pictures: list[dict[str, Any]] = []
        """How the pictures of a message were made."""

    def conversation(self, where: str) -> ForeignConversation:
        given = self._given
        for id, node in self._nodes.items():
            if (message := self._message(id, mapping(node.get("message")))) is not None:
                self._messages[id] = message
        found = [ForeignMessage(message, self._parent(id)) for id, message in self._messages.items()]
        if not found:
            self._report.lose("conversation without any message", where)
        id = text(given.get("conversation_id")) or text(given.get("id")) or where
        kept = {name: value for name, value in given.items() if value and name not in _OF_CONVERSATION}
        shared = {"share_id": share} if (share := self._export.shares.get(id)) else {}
        return ForeignConversation(
            id=id,
            messages=found,
            leaf=self._nearest(text(given.get("current_node")) or None),
            title=text(given.get("title")) or None,
            created_at=time(given.get("create_time")),
            archived_at=(time(given.get("update_time")) or NOT_YET) if given.get("is_archived") else None,
            metadata=kept | shared | {"imported_from": "chatgpt"},
            is_parsed=True,
        )

    def _parent(self, id: str) -> str | None:
        parent = text(self._nodes[id].get("parent")) or None
        return parent if parent in self._messages and parent != id else self._nearest(parent, id)

    def _nearest(self, id: str | None, below: str | None = None) -> str | None:
        """The node, or the first one above it that has a message. A parent that is missing is left as it is."""
        seen = {below}
        while id in self._nodes and id not in self._messages and id not in seen:
            seen.add(id)
            id = text(self._nodes[id].get("parent")) or None
        return id

    def _message(self, id: str, given: dict[str, Any]) -> Message | None:
        if not given:
            return None
        author, theirs = mapping(given.get("author")), mapping(given.get("metadata"))
        said = mapping(given.get("content"))
        role = text(author.get("role"))
        self._missing, self._pictures = [], []
        content, format = self._content(id, given, role, said, theirs)
        metadata = self._metadata(id, given, author, theirs, said)
        if not content and role == "system" and not metadata.keys() - {"hidden"}:
            return None
        is_whole = given.get("status") != "in_progress" and metadata.get("finish") != "interrupted"
        return Message(
            role if role in _ROLES else "system",
            content,
            id,
            format=format,
            created_at=time(given.get("create_time")) or NOT_YET,
            status="complete" if is_whole else "interrupted",
            usage=_usage(text(theirs.get("model_slug"))),
            metadata=metadata or None,
        )

    def _metadata(
        self, id: str, given: dict[str, Any], author: dict[str, Any], theirs: dict[str, Any], content: dict[str, Any]
    ) -> dict[str, Any]:
        kept = {name: value for name, value in theirs.items() if value and name not in _LEFT_OUT}
        if theirs.get("is_visually_hidden_from_conversation") or given.get("weight") == 0:
            kept["hidden"] = True
        if "finish_details" in theirs and (finish := mapping(theirs["finish_details"]).get("type")):
            kept["finish"] = finish
        for name in ("channel", "update_time"):
            if value := given.get(name):
                kept[name] = value
        if who := author.get("name"):
            kept["tool" if author.get("role") == "tool" else "author"] = who
        if self._pictures:
            kept["pictures"] = self._pictures
        if self._missing:
            kept["missing_attachments"] = self._missing
        if content.get("content_type") != "text":
            kept |= {name: value for name, value in _about(content).items() if value}
        ratings = self._export.ratings
        rating = (ratings.pop(id, None) or ratings.pop(text(given.get("id")), None)) if ratings else None
        return kept | rating if rating else kept

    def _content(
        self, id: str, given: dict[str, Any], role: str, content: dict[str, Any], theirs: dict[str, Any]
    ) -> tuple[Any, str]:
        is_only_text = content.get("content_type") == "text" and role != "tool" and given.get("recipient") == "all"
        if is_only_text and not theirs.get("attachments") and (plain := _only_text(content)):
            return plain, "text"
        pieces = [*self._pieces(given, content), *self._attached(given), *self._drawn(given)]
        if not pieces and (instructions := mapping(theirs.get("user_context_message_data"))):
            pieces = [parts.Text(text="\n\n".join(filter(None, map(text, instructions.values()))))]
        recipient = text(given.get("recipient")) or "all"
        if role == "tool":
            pieces = self._result(id, given, pieces)
        elif role == "assistant" and recipient != "all":
            said = [piece.text for piece in pieces if isinstance(piece, parts.Text)]
            call = parts.ToolCall(id=text(given.get("id")), name=recipient, arguments="\n".join(said))
            pieces = [call, *(piece for piece in pieces if not isinstance(piece, parts.Text))]
        return content_of(pieces)

    def _result(self, id: str, given: dict[str, Any], pieces: list[parts.AnyPart]) -> list[parts.AnyPart]:
        """What a tool has answered: texts and pictures are its result."""
        inside = [each for each in pieces if isinstance(each, parts.Text | parts.Media)]
        output: Any = "\n".join(each.text for each in inside if isinstance(each, parts.Text))
        if any(isinstance(each, parts.Media) for each in inside):
            output = [parts.to_json(each) for each in inside]
        status = text(mapping(mapping(given.get("metadata")).get("aggregate_result")).get("status"))
        is_error = mapping(given.get("content")).get("content_type") == "system_error"
        result = parts.ToolResult(
            id=self._call_before(id, text(given.get("id"))),
            output=output,
            is_error=is_error or "error" in status or "fail" in status,
            name=text(mapping(given.get("author")).get("name")) or None,
        )
        return [result, *(each for each in pieces if each not in inside)]

    def _pieces(self, given: dict[str, Any], content: Mapping[str, Any]) -> Iterator[parts.AnyPart]:
        kind = content.get("content_type")
        if isinstance(content.get("parts"), list):
            yield from self._listed(given, kind, content["parts"])
        elif kind == "thoughts":
            yield parts.Reasoning(text=_thoughts(content.get("thoughts")))
        elif kind == "reasoning_recap":
            yield parts.Reasoning(text=text(content.get("content")))
        elif any(content.get(name) for name in _POINTERS):
            yield from self._pointed(given, content)
        elif isinstance(kind, str | None) and kind in _TEXTS:
            if said := _text_of(content):
                yield parts.Text(text=said)
        else:
            yield parts.OtherPart(native=dict(content), origin=ORIGIN)

    def _listed(self, given: dict[str, Any], kind: object, pieces: list[Any]) -> Iterator[parts.AnyPart]:
        if kind != "multimodal_text" and all(isinstance(piece, str) for piece in pieces):
            pieces = ["\n".join(filter(None, pieces))]
        for piece in pieces:
            if isinstance(piece, str):
                if piece:
                    yield parts.Text(text=piece)
            elif isinstance(piece, dict) and not isinstance(piece.get("parts"), list):
                yield from self._pieces(given, piece)
            elif piece:
                yield parts.OtherPart(native=piece, origin=ORIGIN)

    def _pointed(self, given: dict[str, Any], piece: Mapping[str, Any]) -> Iterator[parts.AnyPart]:
        """The files that a piece of content points to: one, or the sound, the film and its frames."""
        self._pictures += filter(None, [mapping(mapping(piece.get("metadata")).get("dalle"))])
        for name in _POINTERS:
            found = piece.get(name)
            for each in found if isinstance(found, list) else [found]:
                pointer = text(each) or text(mapping(each).get("asset_pointer"))
                if pointer and (part := self._attachment(pointer, given)) is not None:
                    yield part

    def _attached(self, given: dict[str, Any]) -> Iterator[parts.AnyPart]:
        attachments = items(mapping(given.get("metadata")).get("attachments"))
        shown = str(mapping(given.get("content")).get("parts")) if attachments else ""
        for each in attachments:
            id = text(mapping(each).get("id"))
            if not id:
                self._report.lose("attachment that is not in the export", str(each)[:120])
            elif id not in shown and (part := self._attachment(id, given)):
                yield part

    def _drawn(self, given: dict[str, Any]) -> Iterator[parts.AnyPart]:
        """The pictures that code has drawn."""
        result = mapping(mapping(given.get("metadata")).get("aggregate_result"))
        for each in map(mapping, items(result.get("messages"))):
            pointer = text(each.get("image_url"))
            if pointer and (part := self._attachment(pointer, given)) is not None:
                yield part

    def _attachment(self, pointer: str, given: dict[str, Any]) -> parts.AnyPart | None:
        """The file of a pointer. The message may say its name and kind; else its path does."""
        id = pointer.rpartition("/")[2].partition("#")[0].partition("?")[0]
        listed = map(mapping, items(mapping(given.get("metadata")).get("attachments")))
        said = next((each for each in listed if each.get("id") == id), {})
        name = text(said.get("name")) or None
        path = self._export.attachments.find(id)
        if path is None:
            self._report.lose("attachment that is not in the export", name or pointer)
            self._missing.append(name or pointer)
            return None
        kind = text(said.get("mime_type")) or text(said.get("mimeType")) or None
        return self._export.attachments.part(path, name if said else PurePosixPath(path).name, kind)

    def _call_before(self, node: str, id: str) -> str:
        """The id of the message that called the tool: the first above the tool's messages. A call may have several."""
        seen = {node}
        above = text(self._nodes[node].get("parent"))
        while above in self._nodes and above not in seen:
            seen.add(above)
            message = mapping(self._nodes[above].get("message"))
            if mapping(message.get("author")).get("role") != "tool":
                return text(message.get("id")) or id
            above = text(self._nodes[above].get("parent"))
        return id


@lru_cache
def _usage(model: str) -> Usage | None:
    return Usage(model=model) if model else None


def _only_text(content: Mapping[str, Any]) -> str:
    """The text of a content that has nothing else; empty for any other."""
    pieces = content.get("parts")
    if not isinstance(pieces, list):
        return ""
    if len(pieces) == 1:
        return text(pieces[0])  # as most
    if not all(isinstance(piece, str) for piece in pieces):
        return ""
    return "\n".join(filter(None, pieces))


def _text_of(content: Mapping[str, Any]) -> str:
    """The texts of a content of a known kind."""
    found = [content.get(name) for name in _TEXTS[content.get("content_type")]]
    return "\n\n".join(dict.fromkeys(parts.as_text(each) for each in found if each))


def _thoughts(given: object) -> str:
    if isinstance(given, str):
        return given
    found = []
    for each in map(mapping, items(given)):
        said = text(each.get("content")) or "\n".join(map(text, items(each.get("chunks"))))
        found.append(f"{text(each.get('summary'))}\n{said}".strip())
    return "\n\n".join(filter(None, found))


def _about(content: Mapping[str, Any]) -> dict[str, Any]:
    """What a content says about itself: the page that it is from, the language of its code, the error that it is."""
    kind, language = content.get("content_type"), content.get("language")
    page = {name: content[name] for name in ("title", "url", "domain") if content.get(name)}
    return {
        "language": language if language != "unknown" else None,
        "page": page if kind in ("tether_quote", "sonic_webpage") else None,
        "error": content.get("name") if kind == "system_error" else None,
    }
