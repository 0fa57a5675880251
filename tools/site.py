"""Builds the site of the documentation: `make docs`.

The pages of docs/ and two generated parts, the Python API from its docstrings and the REST API from its OpenAPI
document, are put into one folder, and Zensical builds that folder strictly: a link that leads nowhere is an error. The
order of the pages is that of docs/index.md. The site is written to site/VERSION/, beside the versions that are there
already.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hansard.server import api_docs, openapi
from hansard.server.app import PUBLIC
from hansard.version import VERSION

ROOT = Path(__file__).parents[1]
PYTHON_API = {
    "store": ("The Store", ["hansard.store.store.Store", "hansard.connection.connect"]),
    "parts": (
        "Records, blobs, administration",
        ["hansard.store.records.Records", "hansard.store.blobs.Blobs", "hansard.store.admin.Admin"],
    ),
    "values": ("Values", ["hansard.model", "hansard.limits"]),
    "errors": ("Errors", ["hansard.errors"]),
    "agents": ("Capture and Chat", ["hansard.agents.capture.capture.Capture", "hansard.agents.chat.chat.Chat"]),
    "backends": ("For authors of backends", ["hansard.contract.backend", "hansard.contract.storage"]),
}
"""The generated pages: their titles, and what they contain."""
_LINK = re.compile(r"\[([^]]+)\]\(([^)#]+\.md)\)")


def stage(folder: Path) -> None:
    """Puts everything that the site is made of into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder / "docs")
    generated = folder / "docs/reference/python"
    generated.mkdir()
    for name, (title, things) in PYTHON_API.items():
        parts = "\n\n".join(f"::: {thing}" for thing in things)
        (generated / f"{name}.md").write_text(f"# {title}\n\n{parts}\n", encoding="utf-8")
    (folder / "docs/reference/rest.md").write_text(_rest_page(), encoding="utf-8")
    (folder / "docs/api.css").write_bytes((ROOT / "src/hansard/server/web/static/api.css").read_bytes())
    settings = (ROOT / "tools/zensical.toml").read_text("utf-8")
    settings = settings.replace('paths = ["src"]', f"paths = [{_toml(str(ROOT / 'src'))}]")
    nav = f'nav = {_toml(_nav())}\nextra_css = ["api.css"]\n'
    (folder / "zensical.toml").write_text(settings.replace("[project]\n", f"[project]\n{nav}", 1), encoding="utf-8")


def _rest_page() -> str:
    rendered = api_docs.fragment(openapi.document(PUBLIC))
    # Markdown must not read the text of the document.
    return f'# The REST API\n\nEvery server shows this page at `/api/docs`.\n\n<div class="api">{rendered}</div>\n'


def _nav() -> list[dict[str, Any]]:
    """Returns the sections of docs/index.md with the pages that they link to, and the generated ones."""
    text = (ROOT / "docs/index.md").read_text("utf-8")
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    nav: list[dict[str, Any]] = [{"Home": "index.md"}]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        pages: list[dict[str, Any]] = [{_plain(label): path} for label, path in _LINK.findall(body)]
        if title == "Reference":
            listed = [{heading: f"reference/python/{name}.md"} for name, (heading, _) in PYTHON_API.items()]
            pages += [{"The REST API": "reference/rest.md"}, {"Python API": listed}]
        nav.append({title: pages})
    return nav


def _plain(label: str) -> str:
    return label.replace("`", "")


def _toml(value: Any) -> str:
    """Returns a value of lists, tables and texts in TOML."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def build(folder: Path) -> Path:
    """Builds what `stage` made. Ends the program if anything is wrong."""
    zensical = Path(sys.executable).with_name("zensical")
    done = subprocess.run(
        [zensical, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False, timeout=500
    )
    said = done.stdout + done.stderr
    if done.returncode or "No issues found" not in said:
        sys.exit(f"the site cannot be built without warnings:\n{said}")
    return folder / "site"


def publish(built: Path, target: Path) -> None:
    """Adds the built site to the versions in a folder. Its start page leads to the newest."""
    shutil.rmtree(target / VERSION, ignore_errors=True)
    shutil.copytree(built, target / VERSION)
    versions = sorted((path.parent.name for path in target.glob("*/index.html")), key=_numbers, reverse=True)
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    (target / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    (target / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={versions[0]}/">'
        f'<title>Hansard</title><a href="{versions[0]}/">Hansard {versions[0]}</a>\n',
        encoding="utf-8",
    )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    folder = ROOT / ".cache/site"
    stage(folder)
    publish(build(folder), target)
    print(f"The site is in {target}")


if __name__ == "__main__":
    main()
