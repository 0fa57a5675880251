"""Commands of the server: `serve`, `demo`, `mcp`, `keys`."""

from __future__ import annotations

import os
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from msgspec import structs

from hansard import __version__
from hansard.cli import output
from hansard.cli.context import CommandContext, Context, EmbedderName
from hansard.cli.table import print_table
from hansard.errors import Unsupported, ValidationError
from hansard.model import DEFAULT_TENANT
from hansard.server.key_file import Key, KeyFile, default_path
from hansard.urls import shown

_SERVER = (
    *("starlette", "uvicorn", "anyio", "h11", "click", "prometheus_client", "websockets"),
    *("jinja2", "markupsafe", "nh3", "pygments", "pyromark"),
)


def serve(
    url: Annotated[str | None, Parameter(name="URL", help="The store, like --url.")] = None,
    /,
    *,
    host: Annotated[
        str, Parameter(help="The address to listen on. By default, only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(help="The port; 0 selects a free one.")] = 8787,
    keys: Annotated[
        Path | None, Parameter(name="--keys", help="The key file: $HANSARD_KEYS, else hansard-keys.json.")
    ] = None,
    require_key: Annotated[
        bool, Parameter(negative="", help="Require a key on this machine, too, even if none exists yet.")
    ] = False,
    jwks: Annotated[str | None, Parameter(help="URL or path of the JSON Web Key Set that verifies tokens.")] = None,
    jwt_issuer: Annotated[str | None, Parameter(help="The required issuer of tokens.")] = None,
    jwt_audience: Annotated[str | None, Parameter(help="The required audience of tokens.")] = None,
    cors_origin: Annotated[
        tuple[str, ...], Parameter(negative="", help="Origin of a web page that may use the API; may be repeated.")
    ] = (),
    upstream: Annotated[
        str | None, Parameter(help="A model endpoint, such as https://api.openai.com/v1; its key is $OPENAI_API_KEY.")
    ] = None,
    model: Annotated[
        str | None, Parameter(help="The model at --upstream that answers on the page; by default, an echo answers.")
    ] = None,
    max_relays: Annotated[int, Parameter(help="Live sessions that a process may relay to it at a time.")] = 100,
    embedder: EmbedderName = None,
    audit_log: Annotated[Path | None, Parameter(help="The file of the audit log.")] = None,
    workers: Annotated[
        int, Parameter(help="Number of processes. More than one needs a store that processes can share.")
    ] = 1,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Parameter(help="The log level; logs are JSON on stderr. Level info logs every request."),
    ] = "warning",
    context: Context,
) -> None:
    """Serve a store over HTTP.

    A web page at /, the API under /api/v1, OpenAI's wire format under /v1, and the checks /healthz and /readyz. Without
    keys, it serves only this machine. Ctrl-C stops it. A missing store is created.
    """
    if not 0 <= port <= 65535:
        raise ValidationError(f"--port is {port}: it must be between 0 and 65535")
    if not 1 <= workers <= 64:
        raise ValidationError(f"--workers is {workers}: it must be between 1 and 64")
    if model is not None and upstream is None:
        raise ValidationError("--model needs --upstream: the endpoint where that model answers")
    if max_relays < 0:
        raise ValidationError(f"--max-relays is {max_relays}: it must be 0 or more")
    try:
        from hansard.server.process import run
        from hansard.server.settings import Settings
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER:
            raise
        raise Unsupported("hansard serve needs an extra: pip install 'hansard[server]'", capability="server") from error
    where = context.url if url is None else url
    settings = Settings(
        host=host,
        keys=keys or default_path(),
        require_key=require_key,
        jwks=jwks,
        jwt_issuer=jwt_issuer,
        jwt_audience=jwt_audience,
        cors_origins=cors_origin,
        upstream=upstream,
        upstream_key=os.environ.get("OPENAI_API_KEY"),
        model=model,
        max_relays=max_relays,
        embedder=embedder,
        audit_log=audit_log,
    )

    def announce(address: str) -> None:
        output.print_note(f"Hansard {__version__} on {address}, serving {where}. Ctrl-C stops it.")

    run(where, port, announce, settings, workers=workers, log_level=log_level)


def demo(
    url: Annotated[str | None, Parameter(name="URL", help="The store, like --url.")] = None,
    /,
    *,
    context: Context,
) -> None:
    """Store sample data.

    Several agents, tools, images, branches, Chinese and Japanese, and a long conversation. Loading it twice stores it
    once; `hansard serve` shows it.
    """
    import asyncio

    try:
        from hansard.server.web.sample_data import load_sample_into
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SERVER:
            raise
        raise Unsupported("hansard demo needs an extra: pip install 'hansard[server]'", capability="server") from error
    where = context.url if url is None else url
    filled = asyncio.run(load_sample_into(where, context.tenant, context.user))
    if context.json:
        output.print_json({"conversations": filled.conversations, "messages": filled.messages})
        return
    stored = f"Stored {filled.messages:,} messages in {filled.conversations:,} conversations."
    output.print_note(f"{stored} See: hansard serve {shlex.quote(shown(where))}")


def mcp(
    url: Annotated[str | None, Parameter(name="URL", help="The store, like --url.")] = None,
    /,
    *,
    context: Context,
) -> None:
    """Serve conversations as tools of the Model Context Protocol, on stdin and stdout.

    A model may list, search and read the conversations in the view of --tenant and --user.
    """
    try:
        from hansard.server.mcp import run_stdio
    except ModuleNotFoundError as error:
        raise Unsupported("hansard mcp needs an extra: pip install 'hansard[mcp]'", capability="mcp") from error
    import asyncio

    asyncio.run(run_stdio(context.url if url is None else url, context.tenant, context.user))


def keys(
    action: Annotated[
        Literal["list", "create", "revoke"], Parameter(name="ACTION", help="list, create or revoke.")
    ] = "list",
    name: Annotated[
        str | None, Parameter(name="NAME", help="The name of the new key; or the id or name of the one to revoke.")
    ] = None,
    /,
    *,
    scopes: Annotated[str, Parameter(help="Its scopes: read, write, admin, separated by commas.")] = "read,write",
    operator: Annotated[
        bool, Parameter(negative="", help="Bound to no tenant: valid for all tenants and the routes under /admin.")
    ] = False,
    rate: Annotated[int | None, Parameter(help="Requests per minute.")] = None,
    daily_bytes: Annotated[int | None, Parameter(help="Bytes that it may send per day.")] = None,
    days: Annotated[float | None, Parameter(help="How many days it is valid. By default, until it is revoked.")] = None,
    file: Annotated[
        Path | None,
        Parameter(name=("--keys", "--file"), help="The key file: $HANSARD_KEYS, else hansard-keys.json."),
    ] = None,
    context: Context,
) -> None:
    """Create, list and revoke the keys of a server.

    A key is bound to the tenant and the user that --tenant and --user name. Its secret is shown once and not stored.
    """
    found = KeyFile(file or default_path())
    if action == "list":
        _list(found, context)
    elif name is None:
        raise ValidationError(f"keys {action} needs a NAME")
    elif action == "revoke":
        ended = found.revoke(name)
        output.print_json(_shown(ended)) if context.json else output.print_note(f"Revoked {ended.id} ({ended.name}).")
    else:
        wanted = [word.strip() for word in scopes.split(",")]
        _create(found, name, wanted, context, operator=operator, rate=rate, daily_bytes=daily_bytes, days=days)


def _list(found: KeyFile, context: CommandContext) -> None:
    listed = [_shown(key) for key in found.list()]
    if context.json:
        output.print_json({"items": listed})
        return
    columns = ("id", "name", "scopes", "tenant", "user", "rate", "daily_bytes", "expires_at", "revoked_at")
    rows = [[", ".join(key[name]) if name == "scopes" else key[name] for name in columns] for key in listed]
    leave_out = ("daily_bytes", "rate", "revoked_at", "expires_at", "user", "tenant")
    print_table(columns, rows, numbers=("rate", "daily_bytes"), shorten="name", leave_out=leave_out)


def _create(
    found: KeyFile,
    name: str,
    scopes: list[str],
    context: CommandContext,
    *,
    operator: bool,
    rate: int | None,
    daily_bytes: int | None,
    days: float | None,
) -> None:
    if operator and (context.tenant is not None or context.user is not None):
        raise ValidationError("an operator's key is bound to no tenant and no user: leave --tenant and --user out")
    for limit, what in ((rate, "--rate"), (daily_bytes, "--daily-bytes"), (days, "--days")):
        if limit is not None and limit <= 0:
            raise ValidationError(f"{what} is {limit}: it must be more than 0")
    key, token = found.create(
        name,
        scopes,
        tenant=None if operator else context.tenant or DEFAULT_TENANT,
        user=context.user,
        rate=rate,
        daily_bytes=daily_bytes,
        expires_at=None if days is None else datetime.now(UTC) + timedelta(days=days),
    )
    if context.json:
        output.print_json({"key": token, **_shown(key)})
        return
    output.print_line(token)
    output.print_note(f"The key {key.id} is shown only this once. Its scopes: {', '.join(key.scopes)}.")


def _shown(key: Key) -> dict[str, Any]:
    """Returns the key without its hash."""
    shown = structs.asdict(key)
    del shown["sha256"]
    return shown
