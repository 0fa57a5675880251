"""The SQL of `queries.sql`, by name, with the tables of the requested schema.

The files name the tables `hansard.…`, the default schema. Tables are always qualified: a connection from a pooler may
have any search path.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

from hansard.backends.shared.statements import parse

DEFAULT_SCHEMA = "hansard"

_PARAMETER = re.compile(r"\$(\d+)")
_TABLE = re.compile(rf"\b{DEFAULT_SCHEMA}\.(?=\w)")

QUERIES = parse(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))


@lru_cache(1024)
def in_schema(sql: str, schema: str) -> str:
    """Returns the same SQL for the tables of another schema."""
    return sql if schema == DEFAULT_SCHEMA else _TABLE.sub(lambda _: f"{quoted(schema)}.", sql)


@lru_cache(256)
def combined(queries: tuple[str, ...]) -> str:
    """Combines several queries into one statement, on one snapshot: each row follows the number of its query.

    The parameters of the queries follow each other. A column that is an array cannot be read from such a row.
    """
    parts: list[str] = []
    given = 0
    for number, sql in enumerate(queries):
        shifted = _PARAMETER.sub(lambda found, by=given: f"${int(found[1]) + by}", sql)  # type: ignore[misc]
        parts.append(f"SELECT {number}, answer FROM ({shifted}) AS answer")
        given += max(int(place) for place in _PARAMETER.findall(sql))
    return " UNION ALL ".join(parts)


def quoted(name: str) -> str:
    """Quotes an identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quotes a text literal, for statements that take no parameters."""
    return "'" + text.replace("'", "''") + "'"
