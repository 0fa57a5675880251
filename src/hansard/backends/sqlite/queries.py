"""The SQL of `queries.sql`, by name."""

from __future__ import annotations

from importlib import resources

from hansard.backends.shared.statements import parse

QUERIES = parse(resources.files(__package__).joinpath("queries.sql").read_text("utf-8"))
