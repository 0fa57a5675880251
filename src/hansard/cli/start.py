"""The entry point. It answers `--version` without loading the other modules, and reports a missing extra."""

from __future__ import annotations

import os
import sys

EXTRA = (
    "hansard: the command line needs an extra: pip install 'hansard[cli]', or pip install 'hansard[server]', which "
    "includes it, for hansard serve"
)


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
        sys.exit(EXTRA)
    sys.exit(run(arguments))


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that the caller has closed, as `2>&-` and some daemons do.

    Such a stream is None in Python, and the next opened file, such as a store's, would get its file descriptor.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is the one of the stream.
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # until the end
