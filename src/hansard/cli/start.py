"""The entry point. It answers `--version` without loading the other modules, and reports a missing extra."""

from __future__ import annotations

import os
import sys


def main() -> None:
    _open_closed_streams()
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["version"]):
        from hansard import __version__

        print(__version__)
        return
    try:
        import rich  # noqa: F401  # its modules are imported where they are needed

        from hansard.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cyclopts", "rich"):
            raise
        sys.exit(_missing(arguments))
    sys.exit(run(arguments))


def _missing(arguments: list[str]) -> str:
    """Returns a message that names every extra that the command line needs, so that one installation is enough."""
    from hansard.cli import extras

    command = next((word for word in arguments if not word.startswith("-")), "")
    urls = [*arguments, os.environ.get("HANSARD_URL", "")]
    needed = [extras.of_command(command), *(extra for extra in map(extras.of_url, urls) if extra)]
    return "hansard: " + extras.message("this command", extras.missing(needed))


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that the caller has closed, as `2>&-` and some daemons do.

    Such a stream is None in Python, and the next opened file, such as a store's, would get its file descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is the one of the stream.
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # until the end
