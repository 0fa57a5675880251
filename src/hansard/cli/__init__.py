"""The `hansard` command. Start reading in `app.py`."""

from hansard.cli.start import main

__all__ = ["main"]
