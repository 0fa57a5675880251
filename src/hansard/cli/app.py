"""The commands, their common options, and their exit codes.

Global options may appear anywhere in a command line. A command prints its result to stdout, as text or, with `--json`,
as one JSON document; everything else goes to stderr. Exit codes come from the error table in `hansard.errors`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import UnusedCliTokensError

from hansard import __version__
from hansard.cli.context import CommandContext
from hansard.cli.values import STDIN, visible
from hansard.errors import HansardError, ValidationError

INTERRUPTED = 130
BROKEN_PIPE = 141
NARROWEST = 40

app = App(
    name="hansard",
    help="The conversation store for AI agents.",
    version=__version__,
    version_flags=["--version"],
    help_format="plaintext",
    result_action="return_value",
)
_EVERY_COMMAND = Group("Options of every command", sort_key=100)
app.meta.group_parameters = _EVERY_COMMAND
app["--help"].group = app["--version"].group = _EVERY_COMMAND


_COMMANDS = {
    "Reading": "show:conversations show:show search:search show:branches show:watch tail:tail why:why",
    "Talking": "chat:chat",
    "Writing": "edit:append edit:delete ratings:rate ratings:label members:member",
    "Moving": "transfer:export transfer:import_ transfer:copy transfer:backup transfer:restore",
    "Coding agents": "collect:collect collect:resume",
    "Sharing": "shares:share shares:shares shares:unshare",
    "Serving": "serve:serve serve:config browse:open_ serve:demo serve:mcp serve:keys",
    "Maintenance": "admin:stats admin:usage admin:tenants admin:check admin:reindex admin:upgrade"
    " admin:purge admin:vacuum admin:erase_user",
    "This installation": "embedder:embedder doctor:doctor completion:completion bench:bench admin:version",
}
"""The commands by group, as modules and functions: only the one that is called is imported."""

for _number, (_title, _members) in enumerate(_COMMANDS.items()):
    _group = Group(_title, sort_key=_number)
    for _command in _members.split():
        _name = _command.partition(":")[2].strip("_").replace("_", "-")
        app.command(f"hansard.cli.{_command}", name=_name, group=_group)


def _unwrap_help() -> None:
    """Puts each paragraph of a docstring on one line, so that any terminal width can wrap it."""
    for name in app:
        command = app[name]
        command.help = "\n\n".join(" ".join(each.split()) for each in command.help.split("\n\n")).strip()


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    url: Annotated[
        str | None,
        Parameter(
            name=["--url", "-u"], help="The store: $HANSARD_URL, else sqlite:///hansard.db, or what hansard.toml says."
        ),
    ] = None,
    tenant: Annotated[str | None, Parameter(help="The tenant: 'default' where a command needs one.")] = None,
    user: Annotated[str | None, Parameter(help="Use the view of this user.")] = None,
    json: Annotated[
        bool, Parameter(negative="", show_default=False, help="Print JSON on stdout, and errors as JSON on stderr.")
    ] = False,
) -> int:
    _refuse_empty({"--tenant": tenant, "--user": user})
    command, bound, ignored = app.parse_args(_with_stdin(tokens), exit_on_error=False, print_error=False)
    given = {name: CommandContext(url, tenant, user, json) for name in ignored}
    return command(*bound.args, **bound.kwargs, **given) or 0


def _refuse_empty(options: dict[str, str | None]) -> None:
    """Refuses `--user "$NAME"` with an unset variable: some commands would take it for no user, and do too much."""
    for option, value in options.items():
        if value == "":
            raise ValidationError(f"{option} is empty: pass a name, or leave it out")


def _with_stdin(tokens: Sequence[str]) -> list[str]:
    """Replaces a lone hyphen, which means stdin unless it follows `--`: the parser would treat it as an option."""
    end = _end_of_options(tokens)
    return [STDIN if token == "-" and at < end else token for at, token in enumerate(tokens)]


def _end_of_options(tokens: Sequence[str]) -> int:
    return tokens.index("--") if "--" in tokens else len(tokens)


def run(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code."""
    options = arguments[: _end_of_options(arguments)]
    as_json = "--json" in options
    _set_minimum_width()
    if not arguments or not {"--help", "-h"}.isdisjoint(options):
        _unwrap_help()
    try:
        code: int | None = app.meta(list(arguments), exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        return print_usage_error(error, as_json=as_json)
    except HansardError as error:
        return print_hansard_error(error, as_json=as_json)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:
        _discard_output()
        return print_system_error(error, as_json=as_json)
    return code or 0


def _set_minimum_width() -> None:
    """Sets a minimum width: cyclopts fails to print help 0 columns wide, and does not terminate for 1 column."""
    columns = shutil.get_terminal_size().columns
    if columns < NARROWEST or os.environ.get("COLUMNS") == "0":
        os.environ["COLUMNS"] = str(max(columns, NARROWEST))


def _discard_output() -> None:
    """Discards unwritten output. Otherwise, Python would fail again at exit, with another exit code."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# Errors: one line or one JSON object on stderr


def print_hansard_error(error: HansardError, *, as_json: bool) -> int:
    _print_error(error.code, str(error), error.details, as_json=as_json)
    return error.exit_code


def print_usage_error(error: Exception, *, as_json: bool) -> int:
    """Reports an invalid command line."""
    text = _unexpected(error) if isinstance(error, UnusedCliTokensError) else str(error)
    text = " ".join(text.replace(STDIN, "-").split())
    _print_error(ValidationError.code, text, {}, as_json=as_json)
    return ValidationError.exit_code


def _unexpected(error: UnusedCliTokensError) -> str:
    tokens = error.unused_tokens or []
    return f"unexpected argument{'s' * (len(tokens) != 1)}: {shlex.join(tokens)} (see --help)"


def print_system_error(error: OSError, *, as_json: bool) -> int:
    """Reports an error of the operating system: a full disk, a missing folder, a file without read permission."""
    what = error.strerror or str(error)
    text = f"{what}: {error.filename}" if error.filename else what
    _print_error(HansardError.code, text, {}, as_json=as_json)
    return HansardError.exit_code


def _print_error(code: str, message: str, details: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        body = {"error": {"code": code, "message": message, "details": details}}
        text = msgspec.json.encode(body).decode()
    else:
        text = "hansard: " + visible(message.replace("\n", " "))
    print(text, file=sys.stderr)
