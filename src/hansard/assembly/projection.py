"""A conversation as one agent hears it: whose words are whose, and what was said to it.

The agent's own messages are the assistant's. Other agents and users speak as `user`, under their names: as a prefix of
the text, or in the provider's own `name` field. A name is data from outside, and so is the text behind it: names are
made unique and unable to look like something else, and a line that imitates somebody's prefix is quoted.
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
"""The colon, and what looks like one."""
_BREAKS = re.compile(rf"[\s{_COLONS}\x00-\x1f\x7f]+")
_FIELD_ODD = re.compile(r"[^a-zA-Z0-9_-]+")
_LINE_ENDS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_LINE_START = re.compile(rf"(?<=[{_LINE_ENDS}])(?=([^{_LINE_ENDS}{_COLONS}]{{1,400}})[{_COLONS}])")
_PARENTHESES = re.compile(r"[()\uff08\uff09\ufe59\ufe5a\u207d\u207e\u208d\u208e\u2768-\u276b]")
_FIELD_LENGTH = 64
_NAME_LENGTH = 100
_ALIKE = str.maketrans("авекмнорстухіјѕԁһӏԛԝαβεικνορτυχ", "abekmhopctyxijsdhlqwabeiknoptux")
"""Small Cyrillic and Greek letters that pass for Latin ones, in one of their cases."""
_BLANK = "\u115f\u1160\u2800"
"""Letters and signs that show nothing."""


class Viewpoint(Struct, frozen=True):
    """Who listens."""

    agent_id: str | None = None
    names: frozenset[str] = frozenset()
    """What the agent is called by: id, name, aliases, as `mentioned` spells them."""

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
    """The ids under which chat platforms know the agent, from channel objects that expose one."""
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


# --- addressed --------------------------------------------------------------------------------------------------------


def is_shared(messages: Iterable[Message], view: Viewpoint) -> bool:
    """Whether several agents or several users take part. Elsewhere everything is addressed to the agent."""
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
    """System messages and pinned ones."""
    return message.pinned or instructs(message)


def instructs(message: Message) -> bool:
    who = message.participant
    return message.role in _INSTRUCTING or (who is not None and who.kind == "system")


def addressed(messages: Sequence[Message], view: Viewpoint) -> list[bool]:
    """Which messages (oldest first) concern the agent.

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
    """What stands right before an answer was answered: the last thing that one speaker said, in however many pieces."""
    asker = _speaker(messages[index])
    while index >= 0 and not concerns[index] and _speaker(messages[index]) == asker:
        concerns[index] = True
        index -= 1


def _speaker(message: Message) -> tuple[str, str]:
    who = message.participant
    return (who.kind, who.id) if who is not None else (message.role, "")


# --- names ------------------------------------------------------------------------------------------------------------


class Labels:
    """The names of everybody in a prompt, each unlike every other."""

    def __init__(self, messages: Iterable[Message], view: Viewpoint) -> None:
        self._labels: dict[tuple[str, str], str] = {}
        self._fields: dict[tuple[str, str], str] = {}
        # The agent's own names too: nobody else may pass for it.
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
        # "(agent)" is ours to say, however it is spelled.
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
        """The name in characters that a provider's `name` field takes, and nobody else's."""
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
        """The text with each line that begins like somebody's prefix, after the first, made a quotation."""
        return _LINE_START.sub(lambda found: "> " if self._imitates(found[1]) else "", text)

    def _imitates(self, name: str) -> bool:
        spelled = _folded(_PARENTHESES.sub(" ", name))
        return spelled in self._taken or _folded(spelled.removesuffix("agent")) in self._taken


def _folded(name: str) -> str:
    """Spelled so that what looks alike is equal: width, case, spaces and marks around it do not matter."""
    if name.isascii():
        return " ".join(name.lower().split()).strip("*_`~>#- ")
    folded = unicodedata.normalize("NFKD", name).casefold().translate(_ALIKE)
    visible = "".join(
        each for each in folded if unicodedata.category(each) not in ("Cf", "Mn", "Me") and each not in _BLANK
    )
    return " ".join(visible.split()).strip("*_`~>#- ")


# --- projecting -------------------------------------------------------------------------------------------------------


def project(message: Message, reading: Reading, view: Viewpoint, labels: Labels, names: Names) -> Reading:
    """The message as the agent hears it."""
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
    # What another agent called or thought is not this one's to answer for.
    parts: list[AnyPart] = [part for part in reading.parts if not isinstance(part, ToolCall | Reasoning)]
    name = labels.field_of(who) if names == "field" else reading.name
    # Content of the format `json` has no place for a name.
    if names == "prefix" and parts and not passes(parts[0]):
        parts = _prefixed(parts, labels.of(who), labels)
    return Reading(parts, "user", name)


def _prefixed(parts: list[AnyPart], label: str, labels: Labels) -> list[AnyPart]:
    """The parts, the first text of which begins with the name; a name alone where there is no text."""
    prefixed: list[AnyPart] = []
    named = False
    for part in parts:
        if not isinstance(part, Text) or not part.text.strip():
            prefixed.append(part)
        elif named:
            # Not the first text, so that its first line may pass for somebody's too.
            prefixed.append(Text(labels.quoted(f"\n{part.text}").removeprefix("\n")))
        else:
            prefixed.append(Text(f"{label}: {labels.quoted(part.text)}"))
            named = True
    # Results of tools say nothing that needs a name.
    is_shown = any(not isinstance(part, ToolResult) for part in parts)
    return [Text(f"{label}:"), *parts] if is_shown and not named else prefixed
