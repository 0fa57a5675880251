"""The `conversation_search` tool: search for a model.

What is searched, and how, is fixed when the tool is created. A model passes a query and a limit, and nothing that it
writes can name another conversation, user or tenant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from hansard import codec
from hansard.analysis import analyse, parse_query, searchable
from hansard.errors import ValidationError
from hansard.model import Message
from hansard.search.hits import Hit, Hits

NAME = "conversation_search"
MOST = 20
"""The most results that a model can request."""
_DEFAULT = 5
_SHOWN = 600
"""Characters of each result."""
_NOTHING = "Nothing found."

Find = Callable[[str, int], Awaitable[Hits]]
"""Searches for a query, up to a limit."""
Mode = Literal["words", "meaning", "hybrid"]
_ADVICE: dict[Mode, str] = {
    "words": 'Use a few keywords; "quotes" for an exact phrase, prefix* for beginnings, -word to exclude, OR for '
    "alternatives.",
    "meaning": "Say in a few words what you look for; -word excludes.",
    "hybrid": "Say in a few words what you look for, or name a thing exactly; -word excludes.",
}


class SearchTool:
    """A tool for a model, in the format of its API. Call it to run it: `await tool(query="…")`."""

    def __init__(self, find: Find, where: str, mode: Mode = "words") -> None:
        self._find = find
        self.mode = mode
        self.name = NAME
        self.description = (
            f"Search {where} for earlier messages that are no longer in view. Returns the best matches with their "
            f"author and time. {_ADVICE[mode]}"
        )
        self.parameters: dict[str, Any] = {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to search for."},
                "limit": {
                    "type": "integer",
                    "description": f"The most results to return, {_DEFAULT} by default.",
                    "minimum": 1,
                    "maximum": MOST,
                },
            },
            "required": ["query"],
            "additionalProperties": False,
        }

    @property
    def __name__(self) -> str:
        return self.name

    def openai(self) -> dict[str, Any]:
        """For `tools` of Chat Completions."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.parameters},
        }

    def openai_responses(self) -> dict[str, Any]:
        """For `tools` of the Responses API."""
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": False,
        }

    def anthropic(self) -> dict[str, Any]:
        """For `tools` of the Messages API."""
        return {"name": self.name, "description": self.description, "input_schema": self.parameters}

    async def __call__(self, query: str, limit: int = _DEFAULT) -> str:
        """Runs the search and returns the results as text."""
        wanted = min(max(limit, 1), MOST)
        hits = await self._find(query, wanted)
        if not hits:
            return _NOTHING
        if self.mode != "words" or any(_has_all(hit) for hit in hits):
            return _as_text(hits)
        return f"No message has all of these words. These have some:\n\n{_as_text(hits)}"

    async def run(self, arguments: str | Mapping[str, Any]) -> str:
        """Runs it with a model's arguments: as JSON, or decoded.

        Errors in them are returned to the model, which can try again. Only `query` and `limit` are read.
        """
        try:
            if isinstance(arguments, str):
                given = msgspec.json.decode(arguments, type=_Arguments, strict=False)
            else:
                given = msgspec.convert(dict(arguments), _Arguments, strict=False)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            return f"Error in the arguments: {error}"
        try:
            return await self(given.query, _DEFAULT if given.limit is None else given.limit)
        except ValidationError as error:
            return f"Error in the arguments: {error}"


class _Arguments(Struct):
    query: str
    limit: int | None = None
    """With some APIs a model writes `null` for a missing argument."""


codec.prepare(_Arguments)


def _has_all(hit: Hit) -> bool:
    return parse_query(hit.query).matches(analyse(hit.text))


def _as_text(hits: Hits) -> str:
    """Returns each result with its author and time, in plain text."""
    return "\n\n".join(passage for hit in hits for passage in _passages(hit))


def _passages(hit: Hit) -> list[str]:
    if not hit.passages:
        return [_line(hit.message, hit.cut(_SHOWN).text)]
    return ["\n".join(_line(each, _text(hit, each)) for each in passage.messages) for passage in hit.passages]


def _text(hit: Hit, message: Message) -> str:
    return hit.cut(_SHOWN).text if message.id == hit.message.id else searchable(message)[:_SHOWN]


def _line(message: Message, text: str) -> str:
    who = message.participant.display_name or message.participant.id if message.participant else message.role
    return f"[{message.created_at:%Y-%m-%d %H:%M} UTC] {who}: {text.strip()}"
