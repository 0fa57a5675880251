"""The SQL of `queries.sql`, by name, with the tables of the schema that was asked for.

The files name the tables `hansard.…`, the schema that a store has unless told otherwise. Tables are always named with
their schema: a connection that comes out of a pooler may have any search path.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

from hansard.backends.statements import parse

DEFAULT_SCHEMA = "hansard"

_TABLE = re.compile(rf"\b{DEFAULT_SCHEMA}\.(?=\w)")

QUERIES = parse(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))


@lru_cache(1024)
def in_schema(sql: str, schema: str) -> str:
    """The same SQL on the tables of another schema."""
    return sql if schema == DEFAULT_SCHEMA else _TABLE.sub(lambda _: f"{quoted(schema)}.", sql)


def quoted(name: str) -> str:
    """An identifier as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL writes it. Only for what no statement takes as a parameter."""
    return "'" + text.replace("'", "''") + "'"
