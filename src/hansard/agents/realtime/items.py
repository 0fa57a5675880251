"""A conversation item during its session: what is known of it, and its message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from hansard import rules
from hansard.formats.openai_realtime import FORMAT
from hansard.model import Message, Participant, Status, Usage

_ROLES = {"function_call_output": "tool", "mcp_approval_response": "user"}
_STATUS: dict[Any, Status] = {"completed": "complete", "incomplete": "interrupted", "in_progress": "in_progress"}
_MOST_PARTS = 1000
_BYTES_A_MS = 48
"""PCM of 16 bits at 24 kHz, as the API sends it by default."""


class RealtimeItem(Struct):
    """What the events have reported about an item so far."""

    id: str
    message_id: str
    native: dict[str, Any]
    """As in the last event that is reliable about it, without audio."""
    status: Status = "in_progress"
    is_done: bool = False
    is_ours: bool = True
    """False: restored from the store, which is more reliable than the session."""
    usage: Usage | None = None
    metadata: dict[str, Any] = {}
    interim: dict[int, str] = {}
    """The interim transcripts of parts that are not final, by index."""
    spoken_ms: dict[int, float] = {}
    stored: Message | None = None
    """As it was last written."""
    is_tried: bool = False
    """The store may have it, even if it did not confirm it."""
    is_deleted: bool = False
    is_refused: bool = False
    """The store will not accept it: deleted meanwhile, or too long."""
    written_at: float = 0.0
    is_urgent: bool = False
    """Something is final. If only interim words have come, it may wait for its interval."""

    @property
    def role(self) -> str:
        role = self.native.get("role")
        return role if isinstance(role, str) else _ROLES.get(str(self.native.get("type")), "assistant")

    def message(self, who: Mapping[str, Participant | None], lease: datetime) -> Message:
        """Returns its current message."""
        metadata: dict[str, Any] | None = self.metadata or None
        if self.status == "in_progress":
            metadata = rules.leased(metadata, lease)
        return Message(
            self.role if self.role in ("user", "assistant", "system", "tool") else "assistant",
            self.content() if self.message_id == self.id else {**self.content(), "id": self.message_id},
            id=self.message_id,
            format=FORMAT,
            participant=who.get(self.role),
            status=self.status,
            usage=self.usage,
            metadata=metadata,
        )

    def content(self) -> dict[str, Any]:
        """Returns the item, with interim words where there are no final ones."""
        parts = self.native.get("content")
        if not self.interim or not isinstance(parts, list):
            return self.native
        size = max(len(parts), *(index + 1 for index in self.interim))
        filled = [*parts, *({"type": "output_audio"} for _ in range(size - len(parts)))]
        for index, text in self.interim.items():
            if not isinstance(filled[index], dict):
                continue
            key = "text" if "text" in str(filled[index].get("type")) else "transcript"
            if not filled[index].get(key):
                filled[index] = {**filled[index], key: text}
        return {**self.native, "content": filled}

    # Events

    def take(self, native: dict[str, Any], *, final: bool, keep_audio: bool, trusted: bool = False) -> None:
        """Takes the item from an event. A truncated item stays truncated, unless the event is `trusted` to know."""
        known = self.native.get("content")
        self.native = bare(native, keep_audio=keep_audio)
        parts = self.native.get("content")
        if isinstance(parts, list) and not trusted:
            self._keep_words(parts, known if isinstance(known, list) else [])
        reported = _STATUS.get(native.get("status"))
        if final:
            self.is_done = True
            self.status = reported if reported is not None and reported != "in_progress" else "complete"
            if self.status == "complete":
                self.interim = {}
        elif not self.is_done:
            # Messages of a user, the system or a tool are complete.
            self.status = reported or ("in_progress" if self.role == "assistant" else "complete")
        if self.metadata.get("heard_ms"):
            self.status = "interrupted"

    def _keep_words(self, parts: list[Any], known: list[Any]) -> None:
        """Keeps a known transcript if the event has none; words that were truncated are not restored."""
        heard = self.metadata.get("heard_ms", {})
        for index, part in enumerate(parts):
            if not isinstance(part, dict):
                continue
            old = known[index].get("transcript") if index < len(known) and isinstance(known[index], dict) else None
            if str(index) in heard:
                words = part.pop("transcript", None)
                if words:
                    generated = {str(index): words, **self.metadata.get("generated", {})}
                    self.metadata = {**self.metadata, "generated": generated}
            if old and not part.get("transcript"):
                part["transcript"] = old

    def part(self, index: int) -> dict[str, Any] | None:
        parts = self.native.get("content")
        if not isinstance(parts, list) or not 0 <= index < len(parts) or not isinstance(parts[index], dict):
            return None
        found: dict[str, Any] = parts[index]
        return found

    def add_text(self, index: int, text: str) -> None:
        if not 0 <= index < _MOST_PARTS:
            raise ValueError(f"item {self.id} cannot have a part {index}")
        self.interim = {**self.interim, index: self.interim.get(index, "") + text}

    def add_audio(self, index: int, audio: str) -> None:
        self.spoken_ms = {
            **self.spoken_ms,
            index: self.spoken_ms.get(index, 0.0) + len(audio) * 3 / 4 / _BYTES_A_MS,
        }

    def truncate(self, index: int, heard_ms: int, *, estimate: bool) -> None:
        """Truncates the item to what was heard. The generated text stays in the metadata."""
        part = self.part(index)
        generated = (part or {}).get("transcript") or self.interim.get(index)
        self.interim = {place: text for place, text in self.interim.items() if place != index}
        # A repeated event must not overwrite it: the first one had all the words.
        whole = {**({str(index): generated} if generated else {}), **self.metadata.get("generated", {})}
        heard = {**self.metadata.get("heard_ms", {}), str(index): heard_ms}
        self.metadata = {**self.metadata, "heard_ms": heard, **({"generated": whole} if whole else {})}
        self.status = "interrupted"
        if part is not None:
            part.pop("transcript", None)
            words = whole.get(str(index))
            length = self.spoken_ms.get(index)
            if estimate and words and length:
                part["transcript"] = _first_words(words, heard_ms / length)


def _first_words(text: str, share: float) -> str:
    """Returns about that share of a text, whole words only, and never more than the share."""
    if share >= 1:
        return text
    end = int(len(text) * max(share, 0.0))
    return text[: text.rfind(" ", 0, end + 1)] if " " in text[: end + 1] else ""


def bare(native: dict[str, Any], *, keep_audio: bool) -> dict[str, Any]:
    """Returns the item as it is stored: without its audio, and without its status, which the message has."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(native))
    copy.pop("status", None)
    parts = copy.get("content")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and not keep_audio:
            part.pop("audio", None)
    return copy


def plain_event(event: Any) -> dict[str, Any] | None:
    """Returns an event as on the wire, given as JSON, a mapping or the SDK's object. None if it is not an event."""
    try:
        if isinstance(event, str | bytes):
            event = msgspec.json.decode(event)
        elif callable(dump := getattr(event, "model_dump", None)):
            event = dump(mode="json", exclude_unset=True)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    return dict(event) if isinstance(event, Mapping) and isinstance(event.get("type"), str) else None
