"""Named SQL: `queries.sql` holds each statement below a heading `-- name --` and a line of purpose."""

from __future__ import annotations

import re

_HEADING = re.compile(r"^-- (\w+) --$", re.MULTILINE)


def parse(text: str) -> dict[str, str]:
    """Parses `-- name --` headings, each followed by lines of purpose and the statement."""
    parts = _HEADING.split(text)[1:]
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError("a query name occurs twice in queries.sql")
    return {name: _statement(body) for name, body in zip(names, bodies, strict=True)}


def _statement(body: str) -> str:
    lines = (line for line in body.strip().splitlines() if not line.startswith("--"))
    return " ".join(" ".join(lines).split()).rstrip(";")
