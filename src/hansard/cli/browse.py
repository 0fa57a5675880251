"""`open`: the page of a store, in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated
from urllib.parse import quote

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import Context, require_store
from hansard.cli.extras import require
from hansard.rules import not_found
from hansard.urls import Url


def open_(
    conversation: Annotated[str | None, Parameter(name="CONVERSATION", help="Show this conversation.")] = None,
    /,
    *,
    print_only: Annotated[
        bool, Parameter(name="--print", negative="", show_default=False, help="Print the address, and open no browser.")
    ] = False,
    context: Context,
) -> None:
    """Open the page in the browser.

    It serves the store on a free port of this machine until Ctrl-C. If the store is a Hansard server, it opens that
    server's page and ends.
    """
    context.refuse_user()
    path = "" if context.tenant is None else f"/t/{quote(context.tenant, safe='')}/"
    if conversation is not None:
        path = f"{path.rstrip('/')}/c/{quote(conversation, safe='')}"
    if Url(context.url).scheme in ("http", "https"):
        _show(context.url.rstrip("/") + path, print_only=print_only)
        return
    require_store(context.url)
    require("open", context.url)
    if conversation is not None:
        with context.open() as store:
            if store.get_conversation(conversation) is None:
                raise not_found(conversation)
    from hansard.server.process import run
    from hansard.server.settings import Settings

    def announce(address: str) -> None:
        _show(address.rstrip("/") + path, print_only=print_only)
        output.print_note("Ctrl-C stops it.")

    run(context.url, 0, announce, Settings(), workers=1, log_level="warning")


def _show(address: str, *, print_only: bool) -> None:
    output.print_line(address)
    if not print_only and not webbrowser.open(address):
        output.print_note("there is no browser here: open the address yourself")
