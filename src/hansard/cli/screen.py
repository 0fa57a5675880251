"""Rich's console, ending as the command line ends."""

from __future__ import annotations

from rich.console import Console


class Screen(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the program itself, and say that it failed."""
        raise BrokenPipeError
