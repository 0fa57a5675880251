"""`serve`: the store behind HTTP."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from hansard import __version__
from hansard.cli import output
from hansard.cli.session import Given
from hansard.errors import Unsupported, ValidationError

_SERVER = ("starlette", "uvicorn", "anyio", "h11", "click")


def serve(
    url: Annotated[str | None, Parameter(name="URL", help="The store, as --url gives it.")] = None,
    /,
    *,
    host: Annotated[str, Parameter(help="The address to listen on. The default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port; 0 takes a free one.")] = 8787,
    session: Given,
) -> None:
    """Serve a store over HTTP.

    So far: a page at / that says what is running, and the checks /healthz and /readyz. Ctrl-C stops it. The store is
    made when it is missing.
    """
    if not 0 <= port <= 65535:
        raise ValidationError(f"--port is {port}: it must be between 0 and 65535")
    try:
        from hansard.server.running import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER:
            raise
        raise Unsupported("hansard serve needs an extra: pip install 'hansard[server]'", capability="server") from error
    import asyncio

    where = session.url if url is None else url

    def announce(address: str) -> None:
        output.note(f"Hansard {__version__} on {address}, serving {where}. Ctrl-C stops it.")

    asyncio.run(run(where, host, port, announce))
