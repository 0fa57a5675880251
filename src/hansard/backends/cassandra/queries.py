"""The statements of `queries.cql`, by name."""

from __future__ import annotations

import re
from importlib.resources import files

from hansard.backends.shared import statements

QUERIES = statements.parse(files(__package__).joinpath("queries.cql").read_text())


def in_keyspace(query: str, keyspace: str) -> str:
    """The query with the full names of its tables, as servers want those of prepared statements."""
    return re.sub(r"\b(FROM|INTO|UPDATE) (?=[a-z])", rf"\1 {keyspace}.", query)
