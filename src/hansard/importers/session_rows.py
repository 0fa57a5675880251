"""Tables in which each row is a message of a session, as many frameworks have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from hansard.importers.importer import ForeignConversation, ForeignMessage
from hansard.importers.report import ImportReport
from hansard.model import NOT_YET, Message


class SessionRow(Struct, frozen=True):
    id: str
    session: str
    body: Any
    """The message as an object; anything else is reported."""
    created_at: object = None
    problem: str = "its message is not a JSON object"
    """What is wrong with a row whose body is none."""


def sessions(
    rows: Iterator[SessionRow],
    message: Callable[[SessionRow], Message],
    report: ImportReport,
    name: str,
    *,
    is_parsed: bool = False,
) -> Iterator[ForeignConversation]:
    """Rows in the order of sessions, one conversation each. `is_parsed`: as in `ForeignConversation`."""
    session: str | None = None
    found: list[ForeignMessage] = []
    for row in rows:
        if session is not None and row.session != session:
            if found:
                yield _conversation(session, found, name, is_parsed=is_parsed)
            found = []
        session = row.session
        if not isinstance(row.body, dict):
            report.complain(f"session {session!r}, row {row.id}", row.problem)
            continue
        before = found[-1].message.id if found else None
        found.append(ForeignMessage(message(row), before))
    if session is not None and found:
        yield _conversation(session, found, name, is_parsed=is_parsed)


def _conversation(session: str, messages: list[ForeignMessage], name: str, *, is_parsed: bool) -> ForeignConversation:
    first = messages[0].message.created_at if messages else NOT_YET
    return ForeignConversation(
        id=session,
        messages=messages,
        created_at=None if first is NOT_YET else first,
        metadata={"imported_from": name},
        is_parsed=is_parsed,
    )
