"""The results of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from hansard.model import Conversation, Message
from hansard.search.periods import Period

SNIPPET = 160
"""Characters of a snippet."""


class Snippet(Struct, frozen=True, gc=False):
    """A piece of a message's text around the match."""

    text: str
    start: int
    """Its position in `hit.text`."""
    highlights: tuple[tuple[int, int], ...] = ()
    """The matches, as ranges in this text."""

    def marked(self, before: str = "**", after: str = "**") -> str:
        """Returns the text with marks around the matches."""
        pieces, end = [], 0
        for start, stop in self.highlights:
            pieces += [self.text[end:start], before, self.text[start:stop], after]
            end = stop
        return "".join([*pieces, self.text[end:]])


class Passage(Struct, frozen=True, gc=False):
    """Messages that follow each other, with what was found among them."""

    messages: tuple[Message, ...]
    found: tuple[str, ...]
    """The ids of the messages that were found, the best first."""


class Hit(Struct, frozen=True, gc=False):
    """A message that was found."""

    conversation: Conversation
    message: Message
    score: float = 0.0
    """How well it matches, relative to the other hits of the same search; 0 if sorted by time."""
    query: str = ""
    passages: tuple[Passage, ...] = ()
    """With `around`, the messages around it; with `group_by`, the passages of its conversation, the best first."""
    in_pieces: bool = False
    """It was found with `match="part"`."""

    @property
    def text(self) -> str:
        """The searchable text of the message: its text, tool calls and results, names of documents."""
        from hansard.analysis import searchable

        return searchable(self.message)

    @property
    def snippet(self) -> Snippet:
        """The best matching part of the text, computed on access."""
        return self.cut()

    def cut(self, characters: int = SNIPPET) -> Snippet:
        """Returns a snippet of that length, or a little more."""
        from hansard.analysis import parse_pieces, parse_query
        from hansard.search import snippets

        query = parse_pieces(self.query) if self.in_pieces else parse_query(self.query)
        return snippets.cut(self.text, query, characters)


class Hits(list[Hit]):
    """The hits of a search, and where to continue."""

    __slots__ = ("_next", "complete", "period")

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        next_cursor: str | Callable[[], str] | None = None,
        complete: bool = True,
        period: Period | None = None,
    ) -> None:
        list.__init__(self, hits)
        self._next = next_cursor
        self.complete = complete
        """False if the search stopped at its limit: older messages were not compared."""
        self.period = period
        """With `time="auto"`, the time that the query named and that was searched."""

    @property
    def next_cursor(self) -> str | None:
        """For `cursor=` of the next search; None if there are no more. Computed on access."""
        if callable(self._next):
            self._next = self._next()
        return self._next
