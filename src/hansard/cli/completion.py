"""`completion`: completion of commands and options in a shell."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(name="SHELL", help="bash, zsh or fish.")],
    /,
    *,
    install: Annotated[
        bool, Parameter(negative="", show_default=False, help="Install it for this user, and print the file.")
    ] = False,
    context: Context,
) -> None:
    """Print the completion script of a shell, or install it."""
    from hansard.cli.app import app

    if not install:
        sys.stdout.write(app.generate_completion(prog_name="hansard", shell=shell))
        return
    path: Path = app.install_completion(shell=shell)
    if context.json:
        output.print_json({"path": str(path)})
    else:
        output.print_line(f"Installed {path}: new shells complete `hansard`.")
