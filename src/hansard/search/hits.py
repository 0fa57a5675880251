"""What a search gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from hansard.model import Conversation, Message

SNIPPET = 160
"""Characters of a snippet."""


class Snippet(Struct, frozen=True, gc=False):
    """A piece of a message's text around what was found."""

    text: str
    start: int
    """Where in `hit.text` it begins."""
    highlights: tuple[tuple[int, int], ...] = ()
    """What was found, as places in this text."""

    def marked(self, before: str = "**", after: str = "**") -> str:
        """The text with marks around what was found."""
        pieces, end = [], 0
        for start, stop in self.highlights:
            pieces += [self.text[end:start], before, self.text[start:stop], after]
            end = stop
        return "".join([*pieces, self.text[end:]])


class Hit(Struct, frozen=True, gc=False):
    """A message that was found."""

    conversation: Conversation
    message: Message
    score: float = 0.0
    """How well it fits, beside the other hits of the same search; 0 when the newest were asked for."""
    query: str = ""

    @property
    def text(self) -> str:
        """What of the message was searched: its text, tool calls and results, names of documents."""
        from hansard.analysis import searchable

        return searchable(self.message)

    @property
    def snippet(self) -> Snippet:
        """The part of the text that fits best, cut when it is asked for."""
        return self.cut()

    def cut(self, characters: int = SNIPPET) -> Snippet:
        """A snippet of that length, or a little more."""
        from hansard.analysis import parse_query
        from hansard.search import snippets

        return snippets.cut(self.text, parse_query(self.query), characters)


class Hits(list[Hit]):
    """The hits of a search, and where to go on from."""

    def __init__(
        self, hits: Iterable[Hit] = (), *, next_cursor: str | Callable[[], str] | None = None, complete: bool = True
    ) -> None:
        super().__init__(hits)
        self._next = next_cursor
        self.complete = complete
        """False when the search stopped at its bound: what is older was not looked at."""

    @property
    def next_cursor(self) -> str | None:
        """For `cursor=` of the next search; None when there is no more. Made when it is asked for."""
        if callable(self._next):
            self._next = self._next()
        return self._next
