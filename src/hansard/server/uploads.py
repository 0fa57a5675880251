"""Uploaded files of other programs, stored in the caller's view, for the API and for the page.

An upload goes to a temporary file as it arrives, and is read from there on a thread of its own. It is not trusted: its
databases are opened read-only and with limits, no class that it names is imported, and what it may unpack to or hold in
one piece is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from hansard.errors import QuotaExceeded, TimedOut, ValidationError
from hansard.importers import Importer, ImportReport, ImportSource, importer_for, importer_named, load, open_source
from hansard.importers.load import Owner
from hansard.importers.registry import parsed_map
from hansard.importers.values import reporting_times
from hansard.server.endpoints import Id
from hansard.server.problems import HttpError
from hansard.server.request import Request

T = TypeVar("T")
_REMEDY = ". Say what kind it is (source); of JSON Lines or CSV, also which field is which (map)"
_DONE = object()
_LEAST_RATE = 10_000
"""Bytes that an upload must send in a second, on average, after its first `body_seconds`."""


class ImportFileQuery(Struct, frozen=True, forbid_unknown_fields=True):
    source: Id | None = None
    """The importer, where the file is not recognised."""
    map: Annotated[str, Meta(max_length=2_000)] | None = None
    """Which field is which in plain rows: `role=author,content=body`."""
    agent_id: Id | None = None
    dry_run: bool = False
    strict: bool = False


@asynccontextmanager
async def received(request: Request[Any, Any], name: str) -> AsyncIterator[Path]:
    """Receives the body into a temporary file of that name, which is removed afterwards."""
    _check_name(name)
    # The body of an upload that has to wait here is not read: it takes no space on our disk.
    async with request.context.uploads.slot(request.store.tenant_id):
        with TemporaryDirectory(prefix="hansard-upload-") as folder:
            path = Path(folder) / name
            await _receive(request, path)
            try:
                async with request.context.imports:
                    yield path
            except ValidationError as error:
                if folder not in str(error):
                    raise
                # The message names the file, not where it is on this server.
                raise ValidationError(str(error).replace(f"{folder}/", "")) from error


def _check_name(name: str) -> None:
    if name in (".", "..") or any(each in name for each in "/\\\0") or len(name.encode()) > 200:
        raise ValidationError("the name of a file has no slashes, and at most 200 bytes")


async def _receive(request: Request[Any, Any], path: Path) -> None:
    most = request.context.settings.max_upload_bytes
    size, began = 0, monotonic()
    with path.open("wb") as file:
        async for piece in request.stream.chunks():
            size += len(piece)
            if size > most:
                text = f"the file is larger than {most:,} bytes"
                raise HttpError(413, QuotaExceeded(text, limit=most, value=size))
            _check_rate(size, monotonic() - began - request.context.settings.body_seconds)
            file.write(piece)


def _check_rate(size: int, seconds: float) -> None:
    if size < seconds * _LEAST_RATE:
        text = f"the file arrives too slowly: at least {_LEAST_RATE:,} bytes a second are needed"
        raise HttpError(408, TimedOut(text))


async def imported(request: Request[Any, Any], path: Path, query: ImportFileQuery) -> ImportReport:
    """Imports a received file of another program."""
    with ThreadPoolExecutor(1, thread_name_prefix="hansard-import") as thread:
        loop = asyncio.get_running_loop()
        source = await loop.run_in_executor(thread, _opened, path, request.context.settings.max_body_bytes)
        try:
            importer = await loop.run_in_executor(thread, _importer, source, query)
            report = ImportReport(importer.name)
            owner = Owner(agent_id=query.agent_id)
            async with aclosing(_on_thread(reporting_times(importer.read(source, report), report), thread)) as found:
                return await load(request.store, found, report, owner=owner, dry_run=query.dry_run, strict=query.strict)
        finally:
            await loop.run_in_executor(thread, source.close)


def _opened(path: Path, element_bytes: int) -> ImportSource:
    source = open_source(path)
    source.is_trusted = False
    source.element_bytes = element_bytes
    return source


def _importer(source: ImportSource, query: ImportFileQuery) -> Importer:
    if query.map is not None and query.source not in ("jsonl", "csv"):
        raise ValidationError("map is for plain rows: pass source=jsonl or source=csv with it")
    return importer_named(query.source, parsed_map(query.map)) if query.source else importer_for(source, _REMEDY)


async def _on_thread(found: Iterator[T], thread: ThreadPoolExecutor) -> AsyncGenerator[T]:
    """What an iterator yields, each piece made on the thread: decoding must not keep others waiting."""
    loop = asyncio.get_running_loop()
    try:
        while (each := await loop.run_in_executor(thread, next, found, _DONE)) is not _DONE:
            yield each  # type: ignore[misc]
    finally:
        await loop.run_in_executor(thread, found.close)  # type: ignore[attr-defined]
