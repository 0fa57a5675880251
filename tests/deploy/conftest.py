"""Fixtures of the command line, for the files that configure it."""

from tests.cli.conftest import shell

__all__ = ["shell"]
