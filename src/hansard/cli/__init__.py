"""The `hansard` command. Begin with `app.py`."""

from hansard.cli.start import main

__all__ = ["main"]
