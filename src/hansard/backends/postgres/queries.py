"""The SQL of `queries.sql`, by name, with the tables of the schema that was asked for.

The files name the tables `hansard.…`, the schema that a store has unless told otherwise. Tables are always named with
their schema: a connection that comes out of a pooler may have any search path.
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
    """The same SQL on the tables of another schema."""
    return sql if schema == DEFAULT_SCHEMA else _TABLE.sub(lambda _: f"{quoted(schema)}.", sql)


@lru_cache(256)
def combined(queries: tuple[str, ...]) -> str:
    """One statement for several queries, on one snapshot: each row of theirs behind the number of its query.

    The values of the queries follow each other. A column that is an array cannot be read out of such a row.
    """
    parts: list[str] = []
    given = 0
    for number, sql in enumerate(queries):
        shifted = _PARAMETER.sub(lambda found, by=given: f"${int(found[1]) + by}", sql)  # type: ignore[misc]
        parts.append(f"SELECT {number}, answer FROM ({shifted}) AS answer")
        given += max(int(place) for place in _PARAMETER.findall(sql))
    return " UNION ALL ".join(parts)


def quoted(name: str) -> str:
    """An identifier as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it. Only for what no statement takes as a parameter."""
    return "'" + text.replace("'", "''") + "'"
