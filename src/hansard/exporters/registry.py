"""All exporters: those that come with Hansard, and those of plugins."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hansard.errors import ValidationError
from hansard.exporters.exporter import Exporter
from hansard.shown import shown

GROUP = "hansard.exporters"
OWN = "hansard"
"""The name of Hansard's own format, which `hansard.transfer` writes."""


@cache
def exporters() -> tuple[Exporter, ...]:
    from hansard.exporters import (
        chatgpt,
        chatml,
        html,
        librechat,
        markdown,
        openai,
        parquet,
        preference,
        sharegpt,
        table,
    )

    own: list[Exporter] = [
        openai.OpenAi(),
        preference.Preference(),
        sharegpt.ShareGptExporter(),
        chatml.ChatMl(),
        markdown.Markdown(),
        html.Html(),
        table.Csv(),
        parquet.Parquet(),
        chatgpt.ChatGptExporter(),
        chatgpt.ChatGptZipExporter(),
        librechat.LibreChatExporter(),
        librechat.LibreChatZipExporter(),
    ]
    plugins: list[Exporter] = [point.load()() for point in entry_points(group=GROUP)]
    return (*own, *plugins)


def exporter_named(name: str) -> Exporter:
    for exporter in exporters():
        if exporter.name == name:
            return exporter
    known = ", ".join(exporter.name for exporter in exporters())
    raise ValidationError(f"no export format is called {shown(name)}: there are {OWN}, {known}")
