"""Every row of a store, by raw reads of the tables."""

from __future__ import annotations

import re

from hansard.backends.cassandra.connection import Link
from hansard.backends.cassandra.schema import migrations

TABLES = [
    re.sub(r".*EXISTS (\w+) .*", r"\1", statement)
    for migration in migrations()
    for statement in migration.statements
    if "CREATE TABLE" in statement
]


async def rows_with(link: Link, word: str) -> list[str]:
    """The tables, and the rows, in which a word is left."""
    found: list[str] = []
    for table in TABLES:
        question = f"SELECT * FROM {link.options.keyspace}.{table} WHERE prefix = %s ALLOW FILTERING"
        for row in await link.execute(question, (link.prefix,)):
            text = " ".join(each.decode("latin-1") if isinstance(each, bytes) else str(each) for each in row)
            found += [f"{table}: {text[:300]}"] if word in text else []
    return found
