"""What an import found, stored and could not keep."""

from __future__ import annotations

from msgspec import Struct, field

_MOST_PROBLEMS = 100
"""Problems that a report lists; the others are only counted."""


class ImportLoss(Struct):
    """Something that the foreign format has and a Store cannot keep."""

    count: int
    example: str


class ImportProblem(Struct, frozen=True):
    """A damaged piece of a source, and where it is."""

    where: str
    what: str


class ImportReport(Struct):
    source: str = ""
    """The name of the importer that read it."""
    new: int = 0
    """Conversations that were not stored before."""
    grown: int = 0
    """Conversations that were stored before and have new messages."""
    unchanged: int = 0
    messages: int = 0
    """Messages that were stored by this import."""
    branches: int = 0
    lines: int = 0
    """Lines of transcripts that were stored, so that the file can be written again."""
    attachments: int = 0
    losses: dict[str, ImportLoss] = field(default_factory=dict)
    problems: list[ImportProblem] = field(default_factory=list)
    more_problems: int = 0

    @property
    def conversations(self) -> int:
        return self.new + self.grown + self.unchanged

    def lose(self, what: str, example: str, times: int = 1) -> None:
        if (loss := self.losses.get(what)) is not None:
            loss.count += times
        else:
            self.losses[what] = ImportLoss(times, example)

    def complain(self, where: str, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(ImportProblem(where, what))
        else:
            self.more_problems += 1

    def merge(self, other: ImportReport) -> None:
        """Adds what another report has found."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for what, loss in other.losses.items():
            self.lose(what, loss.example, loss.count)
        for problem in other.problems:
            self.complain(problem.where, problem.what)

    def clear(self) -> None:
        """Forgets what it has found."""
        for name in _COUNTS:
            setattr(self, name, 0)
        self.losses.clear()
        self.problems.clear()


_COUNTS = ("new", "grown", "unchanged", "messages", "branches", "lines", "attachments", "more_problems")
