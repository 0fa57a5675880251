"""Commands of the server: `serve`, `config`, `demo`, `mcp`, `keys`."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from msgspec import structs

from hansard import __version__
from hansard.cli import output
from hansard.cli.configuration import Options, Value, are_in_store, keys_path, resolve
from hansard.cli.context import CommandContext, Context
from hansard.cli.extras import require
from hansard.cli.store_keys import KeysInStore
from hansard.cli.table import print_table
from hansard.errors import NotFound, ValidationError
from hansard.model import DEFAULT_TENANT
from hansard.server.key_file import Key, KeyFile
from hansard.urls import shown


def serve(
    url: Annotated[str | None, Parameter(name="URL", help="The store, like --url.")] = None,
    /,
    *,
    options: Annotated[Options | None, Parameter(name="*", help="The options of the server.")] = None,
    context: Context,
) -> None:
    """Serve a store over HTTP.

    A web page at /, the API under /api/v1, OpenAI's wire format under /v1, and the checks /healthz and /readyz. Without
    keys, it serves only this machine. Ctrl-C stops it. A missing store is created. Every option can be set in the
    environment and in a file, too: see `hansard config`.
    """
    configured = resolve(options or Options(), context.given_url if url is None else url)
    configured.check()
    configured.require_extras("serve")
    from hansard.server.process import run

    where = configured.of("url")

    def announce(address: str) -> None:
        output.print_note(f"Hansard {__version__} on {address}, serving {shown(where)}. Ctrl-C stops it.")

    settings = configured.settings()
    run(
        where,
        configured.of("port"),
        announce,
        settings,
        workers=configured.of("workers"),
        log_level=configured.of("log_level"),
    )


def config(
    url: Annotated[str | None, Parameter(name="URL", help="The store, like --url.")] = None,
    /,
    *,
    options: Annotated[Options | None, Parameter(name="*", help="The options of the server.")] = None,
    context: Context,
) -> None:
    """Show the settings of the server, and where each one was set.

    The command line comes first, then the environment, then the file of settings. Takes every option of `hansard
    serve`, and checks them as it does, without starting it.
    """
    configured = resolve(options or Options(), context.given_url if url is None else url)
    configured.check()
    if context.json:
        items = [{"name": each.name, "value": each.shown, "origin": each.origin} for each in configured.values()]
        output.print_json({"items": items})
        return
    print_table(("setting", "value", "origin"), [_row(each) for each in configured.values()], wrap="value")


def _row(setting: Value) -> tuple[str, str, str]:
    value = setting.shown
    text = ", ".join(value) if isinstance(value, tuple) else "" if value is None else str(value)
    return setting.name.replace("_", "-"), text, setting.origin


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

    require("demo", context.url if url is None else url)
    from hansard.server.web.sample_data import load_sample_into

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
    require("mcp", context.url if url is None else url)
    import asyncio

    from hansard.server.mcp import run_stdio

    asyncio.run(run_stdio(context.url if url is None else url, context.tenant, context.user))


def keys(
    action: Annotated[
        Literal["list", "create", "revoke", "import"], Parameter(name="ACTION", help="list, create, revoke or import.")
    ] = "list",
    name: Annotated[
        str | None,
        Parameter(
            name="NAME", help="The name of the new key; the id or name of the one to revoke; or the file to import."
        ),
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
        Parameter(name=("--keys", "--file"), help="The key file: $HANSARD_KEYS, else hansard-keys.json; or `store`."),
    ] = None,
    context: Context,
) -> None:
    """Create, list and revoke the keys of a server.

    A key is bound to the tenant and the user that --tenant and --user name. Its secret is shown once and not stored.
    """
    path = file or keys_path()
    found = KeysInStore(context.url) if are_in_store(path) else KeyFile(path)
    if action == "list":
        _list(found, context)
    elif name is None:
        raise ValidationError(f"keys {action} needs a NAME")
    elif action == "import":
        _import(found, Path(name), context)
    elif action == "revoke":
        ended = found.revoke(name)
        output.print_json(_shown(ended)) if context.json else output.print_note(f"Revoked {ended.id} ({ended.name}).")
    else:
        wanted = [word.strip() for word in scopes.split(",")]
        _create(found, name, wanted, context, operator=operator, rate=rate, daily_bytes=daily_bytes, days=days)


def _import(found: KeyFile | KeysInStore, file: Path, context: CommandContext) -> None:
    """Copies the keys of a file into the store. Their tokens stay valid."""
    if isinstance(found, KeyFile):
        raise ValidationError("keys are imported into the store: add --keys store")
    if not file.is_file():
        raise NotFound(f"there is no key file {file}")
    added = found.add(KeyFile(file).list())
    output.print_json({"imported": added}) if context.json else output.print_note(f"Imported {added} keys.")


def _list(found: KeyFile | KeysInStore, context: CommandContext) -> None:
    listed = [_shown(key) for key in found.list()]
    if context.json:
        output.print_json({"items": listed})
        return
    columns = ("id", "name", "scopes", "tenant", "user", "rate", "daily_bytes", "expires_at", "revoked_at")
    rows = [[", ".join(key[name]) if name == "scopes" else key[name] for name in columns] for key in listed]
    leave_out = ("daily_bytes", "rate", "revoked_at", "expires_at", "user", "tenant")
    print_table(columns, rows, numbers=("rate", "daily_bytes"), shorten="name", leave_out=leave_out)


def _days_from_now(days: float) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(days=days)
    except (OverflowError, ValueError) as error:
        raise ValidationError(f"--days is {days}: a key cannot end then") from error


def _create(
    found: KeyFile | KeysInStore,
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
        expires_at=None if days is None else _days_from_now(days),
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
