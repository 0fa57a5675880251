"""The page at `/`: what is running, and how much it holds. One file, no script, nothing from elsewhere."""

from __future__ import annotations

from html import escape

from hansard.backend import Capabilities
from hansard.model import Stats

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Hansard</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 12vh auto 4rem; padding: 0 1.5rem; }}
  h1 {{ font-weight: 600; letter-spacing: -0.02em; margin: 0; }}
  p {{ color: GrayText; margin: 0.25rem 0 2rem; }}
  table {{ border-collapse: collapse; width: 100%; }}
  th, td {{ text-align: left; font-weight: normal; padding: 0.5rem 0; border-top: 1px solid #8884; }}
  th {{ color: GrayText; width: 12rem; }}
  p.more {{ margin-top: 2rem; }}
  td {{ font-variant-numeric: tabular-nums; }}
</style>
</head>
<body>
<main>
<h1>Hansard</h1>
<p>The conversation store for AI agents</p>
<table>
{rows}
</table>
<p class="more"><a href="{root}/api/v1/openapi.json">The API</a> · <a href="{root}/metrics">Metrics</a> ·
<a href="{root}/readyz">Readiness</a> · documentation: <code>docs/server.md</code></p>
</main>
</body>
</html>
"""

_DURABILITY = {
    "none": "nothing: it ends with the process",
    "process": "a crash of the process",
    "machine": "a crash of the machine",
}


def render(version: str, capabilities: Capabilities, stats: Stats | None, root: str = "") -> str:
    """The page. Without statistics, it says that the store does not answer. `root` is what stands before every path."""
    rows = [
        ("Version", version),
        ("Store", capabilities.name),
        ("What is stored survives", _DURABILITY[capabilities.durability]),
        ("State", "ready" if stats is not None else "the store does not answer"),
        *(_counts(stats) if stats is not None else ()),
    ]
    return _PAGE.format(rows="\n".join(_row(name, value) for name, value in rows), root=escape(root))


def _counts(stats: Stats) -> list[tuple[str, str]]:
    rows = [(name, f"{getattr(stats, name.lower()):,}") for name in ("Tenants", "Conversations", "Messages", "Records")]
    rows.append(("Blobs", f"{stats.blobs:,} ({megabytes(stats.blob_bytes)})"))
    if stats.bytes is not None:
        rows.append(("On disk", megabytes(stats.bytes)))
    return rows


def megabytes(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"


def _row(name: str, value: str) -> str:
    return f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
