"""The way in: quick where little is asked, and clear where the extra is missing."""

from __future__ import annotations

import sys

EXTRA = "hansard: the command line needs an extra: pip install 'hansard[cli]'"


def main() -> None:
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["version"]):
        from hansard import __version__

        print(__version__)
        return
    try:
        import rich  # noqa: F401  # the parts of it are imported where they are needed

        from hansard.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("cyclopts", "rich"):
            raise
        sys.exit(EXTRA)
    sys.exit(run(arguments))
