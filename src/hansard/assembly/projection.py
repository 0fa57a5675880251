"""A conversation as one agent sees it: who wrote each message, and which concern the agent.

The agent's own messages are the assistant's. Other agents and users appear as `user`, with their names: as a prefix of
the text, or in the provider's `name` field. Names and texts come from outside: names are made unique and unable to
imitate something else, and a line that imitates another participant's prefix is quoted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from hansard.formats.dialogue import passes, side_of
from hansard.formats.parts import AnyPart, Reading, Reasoning, Text, ToolCall, ToolResult
from hansard.model import Message, Participant

Names = Literal["prefix", "field", "none"]

_INSTRUCTING = ("system", "developer")
_ROLE_WORDS = ("system", "developer", "assistant", "user", "tool", "agent")
_COLONS = ":\uff1a\ufe55\ufe13\u2236\ua789\u02d0\u0589"
"""The colon, and characters that look like one."""
_BREAKS = re.compile(rf"[\s{_COLONS}\x00-\x1f\x7f]+")
_FIELD_ODD = re.compile(r"[^a-zA-Z0-9_-]+")
_LINE_ENDS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE_START = re.compile(rf"(?<=[{_LINE_ENDS}])(?=([^{_LINE_ENDS}{_COLONS}]{{1,400}})[{_COLONS}])")
_PARENTHESES = re.compile(r"[()\uff08\uff09\ufe59\ufe5a\u207d\u207e\u208d\u208e\u2768-\u276b]")
_FIELD_LENGTH = 64
_NAME_LENGTH = 100
_ALIKE = str.maketrans("авекмнорстухіјѕԁһӏԛԝαβεικνορτυχ", "abekmhopctyxijsdhlqwabeiknoptux")
"""Small Cyrillic and Greek letters that look like Latin ones, in one of their cases."""
_BLANK = "\u115f\u1160\u2800"
"""Letters and signs that are invisible."""


class Viewpoint(Struct, frozen=True):
    """The agent that a prompt is for."""

    agent_id: str | None = None
    names: frozenset[str] = frozenset()
    """The agent's names: id, name, aliases, in the spelling of mentions."""

    def is_own(self, message: Message) -> bool:
        who = message.participant
        if who is None or self.agent_id is None:
            return side_of(message.role) == "assistant"
        return who.kind == "agent" and who.id == self.agent_id

    def is_mentioned(self, message: Message) -> bool:
        return any(_spelled(mention) in self.names for mention in message.mentions)


def viewpoint(agent_id: str | None, agent_name: str | None, aliases: Iterable[str]) -> Viewpoint:
    names = [name for name in (agent_id, agent_name, *aliases) if name]
    return Viewpoint(agent_id, frozenset(map(_spelled, names)))


def aliases_of(channels: Iterable[Any]) -> list[str]:
    """Returns the ids under which chat platforms know the agent, from channel objects that have one."""
    found = []
    for channel in channels:
        for name in ("bot_user_id", "botUserId"):
            value = channel.get(name) if isinstance(channel, dict) else getattr(channel, name, None)
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                found.append(str(value))
                break
    return found


def _spelled(name: str) -> str:
    return name.removeprefix("@").casefold()


# Addressed messages


def is_shared(messages: Iterable[Message], view: Viewpoint) -> bool:
    """Whether several agents or several users take part. Otherwise every message is addressed to the agent."""
    agents: set[str] = {view.agent_id} if view.agent_id else set()
    users: set[str] = set()
    for message in messages:
        who = message.participant
        if who is not None and who.kind != "system":
            (agents if who.kind == "agent" else users).add(who.id)
            if len(agents) > 1 or len(users) > 1:
                return True
    return False


def always_stays(message: Message) -> bool:
    """Whether it is a system message or pinned."""
    return message.pinned or instructs(message)


def instructs(message: Message) -> bool:
    who = message.participant
    return message.role in _INSTRUCTING or (who is not None and who.kind == "system")


def addressed(messages: Sequence[Message], view: Viewpoint) -> list[bool]:
    """Returns which messages (oldest first) concern the agent.

    Its own, those that mention it, direct ones, those that it answered, and the newest; system and pinned ones too.
    """
    concerns = [
        view.is_own(message) or view.is_mentioned(message) or message.scope == "dm" or always_stays(message)
        for message in messages
    ]
    if concerns:
        concerns[-1] = True
    for index in range(len(messages) - 1, 0, -1):
        if view.is_own(messages[index]):
            _add_question(messages, concerns, index - 1)
    return concerns


def _add_question(messages: Sequence[Message], concerns: list[bool], index: int) -> None:
    """Adds the messages directly before an answer, by one participant: they were answered."""
    asker = _speaker(messages[index])
    while index >= 0 and not concerns[index] and _speaker(messages[index]) == asker:
        concerns[index] = True
        index -= 1


def _speaker(message: Message) -> tuple[str, str]:
    who = message.participant
    return (who.kind, who.id) if who is not None else (message.role, "")


# Names


class Labels:
    """The names of all participants in a prompt, each distinct."""

    def __init__(self, messages: Iterable[Message], view: Viewpoint) -> None:
        self._labels: dict[tuple[str, str], str] = {}
        self._fields: dict[tuple[str, str], str] = {}
        # The agent's own names too: no other participant may use them.
        self._taken: set[str] = {*_ROLE_WORDS, *map(_folded, view.names)}
        for message in messages:
            who = message.participant
            if who is not None and who.kind != "system" and not view.is_own(message):
                self._add(who)

    def _add(self, who: Participant) -> None:
        key = (who.kind, who.id)
        if key in self._labels:
            return
        name = _BREAKS.sub(" ", who.display_name or who.id)[:_NAME_LENGTH]
        # Only we may write "(agent)", in any spelling.
        name = re.sub(r"\(agent\)", "", name, flags=re.IGNORECASE)
        if "agent" in _folded(name):
            name = _PARENTHESES.sub("", name)
        name = name.strip() or "unnamed"
        unique, number = name, 1
        while _folded(unique) in self._taken:
            number += 1
            unique = f"{name} [{_BREAKS.sub(' ', who.id).strip()}]" if number == 2 else f"{name} [{number}]"
        self._taken.add(_folded(unique))
        self._labels[key] = f"{unique} (agent)" if who.kind == "agent" else unique
        self._fields[key] = self._field(unique, who)

    def _field(self, name: str, who: Participant) -> str:
        """Returns a unique name in characters that a provider's `name` field accepts."""
        plain = _FIELD_ODD.sub("_", name).strip("_") or _FIELD_ODD.sub("_", who.id).strip("_") or "unnamed"
        field, number = plain[:_FIELD_LENGTH], 1
        while field in self._fields.values():
            number += 1
            field = f"{plain[: _FIELD_LENGTH - 6]}_{number}"
        return field

    def of(self, who: Participant) -> str:
        return self._labels[who.kind, who.id]

    def field_of(self, who: Participant) -> str:
        return self._fields[who.kind, who.id]

    def quoted(self, text: str) -> str:
        """Returns the text with each line after the first that begins like a participant's prefix made a quotation."""
        return _LINE_START.sub(lambda found: "> " if self._imitates(found[1]) else "", text)

    def _imitates(self, name: str) -> bool:
        spelled = _folded(_PARENTHESES.sub(" ", name))
        return spelled in self._taken or _folded(spelled.removesuffix("agent")) in self._taken


def _folded(name: str) -> str:
    """Returns a spelling in which names that look alike are equal: width, case, spaces and marks do not matter."""
    if name.isascii():
        return " ".join(name.lower().split()).strip("*_`~>#- ")
    folded = unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)
    visible = "".join(
        each for each in folded if unicodedata.category(each) not in ("Cf", "Mn", "Me") and each not in _BLANK
    )
    return " ".join(visible.split()).strip("*_`~>#- ")


# Projection


def project(message: Message, reading: Reading, view: Viewpoint, labels: Labels, names: Names) -> Reading:
    """Returns the message as the agent sees it."""
    who = message.participant
    if who is None:
        return reading
    side = side_of(reading.role or message.role)
    if view.is_own(message):
        return reading if side == "assistant" else structs.replace(reading, role="assistant", native=None)
    if who.kind == "system":
        return structs.replace(reading, role="system", native=None)
    if side == "tool" or (view.agent_id is None and side != "user"):
        return reading
    # Calls and reasoning of other agents are not this agent's.
    parts: list[AnyPart] = [part for part in reading.parts if not isinstance(part, ToolCall | Reasoning)]
    name = labels.field_of(who) if names == "field" else reading.name
    # Content of the format `json` cannot have a name.
    if names == "prefix" and parts and not passes(parts[0]):
        parts = _prefixed(parts, labels.of(who), labels)
    return Reading(parts, "user", name)


def _prefixed(parts: list[AnyPart], label: str, labels: Labels) -> list[AnyPart]:
    """Returns the parts with the name before the first text; the name alone if there is no text."""
    prefixed: list[AnyPart] = []
    named = False
    for part in parts:
        if not isinstance(part, Text) or not part.text.strip():
            prefixed.append(part)
        elif named:
            # Not the first text, so its first line could imitate a prefix too.
            prefixed.append(Text(labels.quoted(f"\n{part.text}").removeprefix("\n")))
        else:
            prefixed.append(Text(f"{label}: {labels.quoted(part.text)}"))
            named = True
    # Results of tools need no name.
    is_shown = any(not isinstance(part, ToolResult) for part in parts)
    return [Text(f"{label}:"), *parts] if is_shown and not named else prefixed
