"""The table of errors in the documentation is the table in the code."""

from __future__ import annotations

import inspect

from tests.docs import pages

from hansard import errors


def _row(kind: type[errors.HansardError]) -> str:
    return f"| `{kind.__name__}` | `{kind.code}` | {kind.status} | {kind.exit_code} | {inspect.getdoc(kind)} |"


def test_the_table_is_the_one_in_the_code() -> None:
    section = pages.sections(pages.read("docs/reference/errors.md"), 2)["The table"]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [_row(kind) for kind in errors.TABLE.values()]


def test_every_fact_of_an_error_is_named() -> None:
    facts = {fact for kind in errors.TABLE.values() for fact in kind("it went wrong").details}
    assert facts <= pages.code_words(pages.read("docs/reference/errors.md"))
