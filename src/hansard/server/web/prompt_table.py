"""The table of the page "Why": a row for each message, formatted without templates, which take much longer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import markupsafe
from markupsafe import Markup

from hansard.server.web.links import query
from hansard.server.web.prompt_comparison import SUMMARY, Cell, ComparedRow, PromptSide, RowGroup
from hansard.server.web.words import number, say, say_count


def table_of(groups: Sequence[RowGroup], sides: Sequence[PromptSide], base: str, branch: str | None) -> Markup:
    """Renders the rows, next to what became of each message in one or two prompts."""
    writer = _TableWriter(sides, base, branch, _most_tokens(groups))
    kind = "decisions" + (" compared" if len(sides) > 1 else "")
    pieces = [f'<div class="scroll">\n<table class="{kind}">\n  {writer.head()}\n']
    pieces += [writer.group(each) for each in groups]
    return Markup("".join([*pieces, "</table>\n</div>\n"]))


def _most_tokens(groups: Sequence[RowGroup]) -> int:
    tokens = (cell.tokens for group in groups for row in group.rows for cell in row.cells if cell is not None)
    return max(1, max(tokens, default=1))


class _TableWriter:
    def __init__(self, sides: Sequence[PromptSide], base: str, branch: str | None, most: int) -> None:
        self._titles = [str(markupsafe.escape(side.title)) for side in sides]
        self._base = escape(base)
        self._branch = branch
        self._most = most
        self._verdicts = {True: escape(say("kept")), False: escape(say("dropped"))}
        self._absent = escape(say("not included"))

    def head(self) -> str:
        titles = [escape(say("Message")), *self._titles]
        last = ""
        if len(self._titles) == 1:
            titles[1] = escape(say("Reason"))
            last = f'<th scope="col" class="to-right">{escape(say("Tokens"))}</th>'
        cells = "".join([f'<th scope="col">{each}</th>' for each in titles])
        return f"<thead><tr>{cells}{last}</tr></thead>"

    def group(self, group: RowGroup) -> str:
        rows = "".join([self._row(each) for each in group.rows])
        if not group.folded:
            return f"  <tbody>\n{rows}  </tbody>\n"
        count, why = len(group.rows), group.folded
        words = say_count("{n} message dropped: {why}", "{n} messages dropped: {why}", count, why=why)
        button = f'<button type="button" class="quiet" data-unfold aria-expanded="false">{words}</button>'
        return f'  <tbody data-folded>\n  <tr class="unfold"><td colspan="3">{button}</td></tr>\n{rows}  </tbody>\n'

    def _row(self, row: ComparedRow) -> str:
        if len(row.cells) == 1 and (only := row.cells[0]) is not None:
            kind = _kind(only)
            cells = (
                f'      <td><span class="verdict">{self._verdicts[only.is_kept]}</span> {escape(only.words)}</td>\n'
                f'      <td class="to-right"><span class="tokens">{number(only.tokens)}</span>'
                f'<meter class="part" min="0" max="{self._most}" value="{only.tokens}" aria-hidden="true"></meter>'
                "</td>\n"
            )
        else:
            kind = " differs" if len(row.cells) > 1 and row.differs else ""
            cells = "".join([self._cell(*each) for each in zip(row.cells, self._titles, strict=True)])
        return f'    <tr class="{kind}">\n      <td>{self._message(row)}</td>\n{cells}    </tr>\n'

    def _message(self, row: ComparedRow) -> str:
        name = f'<span class="name" dir="auto">{escape(row.who)}</span> ' if row.who else ""
        line = f'{name}<span class="words" dir="auto">{escape(row.text)}</span>'
        is_deleted = row.state == "deleted"
        if row.message_id == SUMMARY or is_deleted:
            line = f'<span class="line">{line}</span>'
        else:
            where = escape(query(at=row.message_id, branch=self._branch))
            line = f'<a class="line" href="{self._base}{where}#m{row.seq}">{line}</a>'
        if not row.state:
            return line
        words = say("deleted since") if is_deleted else say("changed since")
        return f'{line} <span class="state{" bad" if is_deleted else ""}">{escape(words)}</span>'

    def _cell(self, cell: Cell | None, title: str) -> str:
        if cell is None:
            return f'      <td class="absent" data-title="{title}"><span class="dim">{self._absent}</span></td>\n'
        verdict = f'<span class="verdict">{self._verdicts[cell.is_kept]}</span> {escape(cell.words)}'
        tokens = f'<span class="tokens">{number(cell.tokens)}</span>'
        return f'      <td class="{_kind(cell)}" data-title="{title}">{verdict} {tokens}</td>\n'


def _kind(cell: Cell) -> str:
    return "kept" if cell.is_kept else "dropped"
